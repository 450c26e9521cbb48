"""Takes a backend's sessions away from it, as many a second as the other backends and the clients can bear."""

from __future__ import annotations

import asyncio
import logging

from amqp_session_router.base.model import CONNECTION_FORCED, Phase, Session
from amqp_session_router.control.named_tasks import NamedTasks
from amqp_session_router.routing.routes import Routes

log = logging.getLogger(__name__)

_TICK = 0.05
"""Seconds between two looks: what is due by then goes together."""
_REASON = "the router's operator empties this broker; connect again"


class Emptying:
    """The backends whose sessions are being disconnected gracefully, each by a task of its own."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._tasks = NamedTasks("empty")

    def sessions_of(self, backend: str) -> list[Session]:
        """Return the live sessions that are connected or connecting to `backend`."""
        return [
            session
            for session in self._routes.sessions.live.values()
            if session.backend is not None and session.backend.name == backend
        ]

    def begin(self, backend: str, rate: float) -> int:
        """Disconnect the sessions of `backend`, `rate` a second; returns how many there are.

        Of a draining one all go, those too whose handshake has still to end there, until it drains no more; of another
        those that are open now. What was begun for it before ends.
        """
        before = self._open(backend)
        self._tasks.begin(backend, self._empty(backend, rate, before))
        return len(before)

    def stop(self) -> None:
        """Disconnect no more."""
        self._tasks.stop()

    def _open(self, backend: str) -> list[Session]:
        return [session for session in self.sessions_of(backend) if session.phase in (Phase.OPEN, Phase.PAUSED)]

    def _drains(self, backend: str) -> bool:
        found = self._routes.settings.backends.get(backend)
        return found is not None and found.drain

    async def _empty(self, backend: str, rate: float, sessions: list[Session]) -> None:
        loop = asyncio.get_running_loop()
        begun, done, drained = loop.time(), 0, self._drains(backend)
        while True:
            for session in sessions:
                while done > (loop.time() - begun) * rate:
                    await asyncio.sleep(min(_TICK, 1 / rate))
                if drained and not self._drains(backend):
                    break
                if session.phase in (Phase.OPEN, Phase.PAUSED):
                    session.disconnect(CONNECTION_FORCED, _REASON)
                    done += 1
            if not (drained and self._drains(backend) and self.sessions_of(backend)):
                break
            await asyncio.sleep(_TICK)
            sessions = self._open(backend)
        log.info("emptied", extra={"backend": backend, "sessions": done, "left": len(self.sessions_of(backend))})
