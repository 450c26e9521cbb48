"""How many attempts beyond their first the sessions of a farm may make, so that they do not bring down what is left.

Finagle's and Linkerd's budget: a share of the first attempts, and some a second in any case.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

from amqp_session_router.config.schema import RetryBudgetPart
from amqp_session_router.config.settings import Farm

log = logging.getLogger(__name__)

_WINDOW = 10.0
"""Seconds in which what was counted goes down to 1/e."""
_WARN_EVERY = 10.0


class RetryBudget:
    """Of one farm."""

    def __init__(self, farm: str, part: RetryBudgetPart, clock: Callable[[], float]) -> None:
        self._farm = farm
        self.part = part
        self._clock = clock
        self._at = clock()
        self._firsts = self._retries = 0.0
        self._warned = -math.inf
        self.exhausted = 0
        """How often it had none left."""

    def first(self) -> None:
        """A session makes its first attempt."""
        self._decay()
        self._firsts += 1

    def retry(self) -> bool:
        """A session is to make another attempt; returns whether it may."""
        now = self._decay()
        if self._retries + 1 <= self.part.ratio * self._firsts + self.part.min_per_second * _WINDOW:
            self._retries += 1
            return True
        self.exhausted += 1
        if now - self._warned >= _WARN_EVERY:
            self._warned = now
            log.warning("the retry budget is used up", extra={"farm": self._farm, "exhausted": self.exhausted})
        return False

    def _decay(self) -> float:
        now = self._clock()
        left = math.exp((self._at - now) / _WINDOW)
        self._firsts, self._retries, self._at = self._firsts * left, self._retries * left, now
        return now


class RetryBudgets:
    """Those of all farms that have one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.by_farm: dict[str, RetryBudget] = {}

    def apply(self, farms: Mapping[str, Farm]) -> None:
        """Go by these farms from here on; a budget that did not change is kept as it is."""
        before, self.by_farm = self.by_farm, {}
        for name, farm in farms.items():
            if (part := farm.retry_budget) is None:
                continue
            old = before.get(name)
            self.by_farm[name] = old if old is not None and old.part == part else RetryBudget(name, part, self._clock)
