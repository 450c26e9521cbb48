"""Takes a backend's sessions away from it, as many a second as the other backends and the clients can bear."""

from __future__ import annotations

import asyncio
import logging

from amqp_session_router.base.model import CONNECTION_FORCED, Session
from amqp_session_router.base.paced import paced
from amqp_session_router.control.live_sessions import Turns, is_at, is_open, of_backend
from amqp_session_router.control.named_tasks import NamedTasks
from amqp_session_router.routing.routes import Routes

log = logging.getLogger(__name__)

_PERIOD = 0.05
"""Seconds between two looks for sessions whose handshake has ended."""
_REASON = "the router's operator empties this broker; connect again"


class Emptying:
    """The backends whose sessions are being disconnected gracefully, each by a task of its own."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._tasks = NamedTasks("empty")

    async def begin(self, backend: str, rate: float) -> int:
        """Disconnect the sessions of `backend`, `rate` a second; returns how many there are.

        Of a draining one all go, those too whose handshake has still to end there, until it drains no more; of another
        those that are open now. What was begun for it before ends.
        """
        before = [session for session in await self._sessions(backend) if is_open(session)]
        self._tasks.begin(backend, self._empty(backend, rate, before))
        return len(before)

    def stop(self) -> None:
        """Disconnect no more."""
        self._tasks.stop()

    async def _sessions(self, backend: str) -> list[Session]:
        return await paced(of_backend(self._routes, backend))

    def _drains(self, backend: str) -> bool:
        found = self._routes.settings.backends.get(backend)
        return found is not None and found.drain

    async def _empty(self, backend: str, rate: float, sessions: list[Session]) -> None:
        turns, drained = Turns(rate), self._drains(backend)
        while True:
            for session in sessions:
                await turns.next()
                if drained and not self._drains(backend):
                    break
                # It may have found another backend since.
                if is_open(session) and is_at(session, backend):
                    session.disconnect(CONNECTION_FORCED, _REASON)
                    turns.done += 1
            sessions = await self._sessions(backend)
            if not (drained and self._drains(backend) and sessions):
                break
            await asyncio.sleep(_PERIOD)
        log.info("emptied", extra={"backend": backend, "sessions": turns.done, "left": len(sessions)})
