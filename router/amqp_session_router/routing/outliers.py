"""Members of farms that are passed over for a while, since their sessions fail: what no check shows."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from amqp_session_router.config.settings import Farm

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Member:
    """What is known of one member of one farm."""

    failures: deque[float] = field(default_factory=deque)
    """When its last ones were."""
    until: float = -math.inf
    """Ejected until then."""
    ejections: int = 0
    spared: float = -math.inf
    """When it was told last that it stays, since too many others are ejected."""


class Outliers:
    """Counts failures of each member of the farms that detect outliers, and says who is ejected."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._farms: list[Farm] = []
        self._members: dict[tuple[str, str], _Member] = {}
        """By farm and backend."""

    def apply(self, farms: Mapping[str, Farm]) -> None:
        """Go by these farms from here on; what is known of their members stays."""
        self._farms = [farm for farm in farms.values() if farm.outliers is not None]
        kept = {(farm.name, backend.name) for farm in self._farms for backend in farm.members}
        self._members = {of: known for of, known in self._members.items() if of in kept}

    def failed(self, backend: str) -> None:
        """A session could not open at the backend of this name, or was lost there."""
        for farm in self._farms:
            if any(member.name == backend for member in farm.members):
                self._count(farm, backend)

    def ejected(self, farm: Farm) -> frozenset[str]:
        """Return the names of the members of `farm` that are ejected now."""
        if farm.outliers is None:
            return frozenset()
        now, found = self._clock(), []
        for backend in farm.members:
            known = self._members.get((farm.name, backend.name))
            if known is None or known.until == -math.inf:
                continue
            if known.until > now:
                found.append(backend.name)
            else:
                known.until = -math.inf
                log.info("backend is taken back", extra={"farm": farm.name, "backend": backend.name})
        return frozenset(found)

    def ejections(self, farm: str, backend: str) -> int:
        """Return how often a member was ejected."""
        known = self._members.get((farm, backend))
        return 0 if known is None else known.ejections

    def _count(self, farm: Farm, backend: str) -> None:
        assert farm.outliers is not None
        limits, now = farm.outliers, self._clock()
        known = self._members.setdefault((farm.name, backend), _Member())
        if known.until > now:
            return
        failures = known.failures
        failures.append(now)
        while len(failures) > limits.failures + 1 or failures[0] <= now - limits.interval:
            failures.popleft()
        if len(failures) <= limits.failures:
            return
        told = {"farm": farm.name, "backend": backend, "failures": len(failures)}
        out = self.ejected(farm) | {backend}
        able = [member.name for member in farm.members if not member.drain]
        if len(out & {*able}) > len(able) * limits.max_ejection_percent // 100:
            if now - known.spared >= limits.interval:
                known.spared = now
                log.warning("backend stays: too many of its farm are ejected", extra=told)
            return
        known.until = now + limits.ejection_time
        known.ejections += 1
        failures.clear()
        log.warning("backend is ejected", extra=told | {"seconds": limits.ejection_time})
