"""The live sessions that a verb is about, and what is done to them: work in steps, of which there may be many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from amqp_session_router.base.model import Phase, Session
from amqp_session_router.base.paced import Steps, strides
from amqp_session_router.routing.routes import Routes

_TICK = 0.05
"""Seconds between two looks: what is due by then goes together."""
_SAVED = 1.0
"""Seconds of turns that nobody took which may be made up for."""
_TOGETHER = 32


def chosen(routes: Routes, wanted: Callable[[Session], bool]) -> Steps[list[Session]]:
    """Return the live sessions that are `wanted`, in the order in which they came."""
    found: list[Session] = []
    for stride in strides(routes.sessions.live.values()):
        found += [session for session in stride if wanted(session)]
        yield
    return found


def of_vhost(routes: Routes, vhost: str) -> Steps[list[Session]]:
    """Return the live sessions of `vhost`."""
    return chosen(routes, lambda one: one.identity is not None and one.identity.vhost == vhost)


def of_backend(routes: Routes, backend: str) -> Steps[list[Session]]:
    """Return the live sessions that are connected or connecting to `backend`."""
    return chosen(routes, lambda one: is_at(one, backend))


def is_at(session: Session, backend: str) -> bool:
    """Return whether it is connected or connecting to `backend`; one that connects may go on to another."""
    return session.backend is not None and session.backend.name == backend


def is_open(session: Session) -> bool:
    """Return whether its client is served, or would be without a pause."""
    return session.phase in (Phase.OPEN, Phase.PAUSED)


class Turns:
    """When the next of many sessions may be disconnected: so many a second, and never so many at a time that others
    wait for it."""

    def __init__(self, rate: float) -> None:
        """`rate`: sessions a second. Made on the running loop, where its time begins."""
        self.done = 0
        """How many were disconnected; whoever does it counts."""
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._asked = 0

    async def next(self) -> None:
        """Wait until another one may go."""
        self._asked += 1
        if self._asked % _TOGETHER == 0:
            await asyncio.sleep(0)
        # Sessions that come after a while without any go at the rate as well.
        self._begun = max(self._begun, self._loop.time() - self.done / self._rate - _SAVED)
        while self.done > (self._loop.time() - self._begun) * self._rate:
            await asyncio.sleep(min(_TICK, 1 / self._rate))
