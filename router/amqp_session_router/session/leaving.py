"""The end of all sessions of a process that leaves: at once, or so many a second that their clients can be served
elsewhere as they come back."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping

from amqp_session_router.base.model import CONNECTION_FORCED, Phase, Session

log = logging.getLogger(__name__)

_TICK = 0.05
"""Seconds between two looks: what is due by then goes together."""
_PART = 0.8
"""Of the time, in which all have got their Close; in the rest they may answer it."""
_REASON = "the router is leaving; connect again"


class Leaving:
    """Closes (320) the sessions that are `live`; what is left of them in the end is cut."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, live: Callable[[], Mapping[str, Session]], cut_all: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._live = live
        self._cut_all = cut_all
        self._deadline = math.inf
        self._timers: list[asyncio.TimerHandle] = []
        self._left: deque[Session] = deque()
        self._rate = 0.0
        self._begun = 0.0
        self._done = 0

    def begin(self, seconds: float, rate: float | None) -> None:
        """Have all gone after at most `seconds`: those that are open `rate` a second, more where they would not be in
        time, None: at once; the others at once. Called again, it may only be sooner."""
        for timer in self._timers:
            timer.cancel()
        self._begun, self._done = self._loop.time(), 0
        self._deadline = min(self._deadline, self._begun + seconds)
        sessions = [*self._live().values()]
        self._left = deque(one for one in sessions if one.phase in (Phase.OPEN, Phase.PAUSED))
        within = self._deadline - self._begun
        if rate is None or within <= 0:
            self._rate = math.inf
        else:
            self._rate = max(rate, len(self._left) / (_PART * within))
        about = {"sessions": len(sessions), "seconds": round(within, 1)}
        log.info("leaving", extra=about | ({} if rate is None else {"rate": round(self._rate, 1)}))
        for session in sessions:
            if session.phase not in (Phase.OPEN, Phase.PAUSED):
                session.disconnect(CONNECTION_FORCED, _REASON)
        self._timers = [self._loop.call_at(self._deadline, self._cut_all)]
        self._go_on()

    def _go_on(self) -> None:
        """Close all that are due by now."""
        due = self._rate * (self._loop.time() - self._begun) if math.isfinite(self._rate) else math.inf
        while self._left and self._done <= due:
            session = self._left.popleft()
            if session.phase in (Phase.OPEN, Phase.PAUSED):
                session.disconnect(CONNECTION_FORCED, _REASON)
                self._done += 1
        if self._left:
            self._timers[1:] = [self._loop.call_later(max(_TICK, 1 / self._rate), self._go_on)]
