"""How late the event loop comes to what is due: all sessions wait so long."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left

LAGS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper bounds in seconds of the histogram. A timer of the loop's is itself up to 1 ms late."""
_PERIOD = 0.1
_WINDOW = 10.0


class LoopLag:
    """Looks ten times a second; `counts` is by `LAGS`, and one more for what is beyond."""

    def __init__(self) -> None:
        self.counts = [0] * (len(LAGS) + 1)
        self.seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._greatest = [0.0, 0.0]
        """Of the window that goes on, and of the one before."""
        self._window_ends = 0.0

    @property
    def greatest(self) -> float:
        """The greatest lag of the last 10 to 20 seconds, in seconds."""
        return max(self._greatest)

    def start(self) -> None:
        """Begin to look, on the running loop."""
        self._wait(time.monotonic())

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, now: float) -> None:
        self._due = now + _PERIOD
        self._timer = asyncio.get_running_loop().call_later(_PERIOD, self._look)

    def _look(self) -> None:
        now = time.monotonic()
        self.add(max(0.0, now - self._due), now)
        self._wait(now)

    def add(self, lag: float, now: float) -> None:
        """Count a lag of so many seconds, seen at `now`."""
        self.counts[bisect_left(LAGS, lag)] += 1
        self.seconds += lag
        if now >= self._window_ends:
            self._greatest = [0.0, self._greatest[0]]
            self._window_ends = now + _WINDOW
        self._greatest[0] = max(self._greatest[0], lag)
