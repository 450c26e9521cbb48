"""The token bucket, by which rates are limited."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], float]


class Bucket:
    """A token bucket that may go into debt: `rate` tokens a second, `burst` at most."""

    __slots__ = ("_at", "_clock", "_level", "burst", "rate")

    def __init__(self, rate: float, burst: float, clock: Clock) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock
        self._level, self._at = burst, clock()

    def level(self) -> float:
        """Return the tokens there are now; negative: the debt."""
        now = self._clock()
        self._level = min(self.burst, self._level + (now - self._at) * self.rate)
        self._at = now
        return self._level

    def try_take(self, tokens: float) -> bool:
        """Take `tokens` if there are so many."""
        if self.level() < tokens:
            return False
        self._take(tokens)
        return True

    def owe(self, tokens: float) -> float:
        """Take `tokens` whether there are or not; returns the seconds until the debt is paid (0.0: there is none)."""
        level = self.level() - tokens
        self._take(tokens)
        return max(0.0, -level / self.rate)

    def _take(self, tokens: float) -> None:
        self._level -= tokens


Buckets = dict[str, Bucket]
"""By the limit's name."""
