"""What is remembered of each backend between sessions, by the backend's name, so that it outlives a reload."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from amqp_session_router.base.model import Backend

_LEAST_SHARE = 0.01
"""With a share of 0 it would come behind all whose weight is 0, and those that begin together would not differ."""


@dataclass(slots=True)
class Mark:
    """One backend's: `attempted` is the number of the last attempt among all (0: never), `active` its sessions,
    `healthy` what its last check or attempt said, `reason` why not, `since` when it began to take sessions again."""

    attempted: int = 0
    active: int = 0
    healthy: bool = True
    since: float = -math.inf
    reason: str = ""
    attempts: int = 0
    failures: int = 0


UNMARKED = Mark()


class Markers:
    """The marks of all backends. A number and not a time orders the attempts: two never tie, no clock steps back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._marks: dict[str, Mark] = {}
        self._attempts = 0

    def of(self, name: str) -> Mark:
        """Return the mark of the backend `name`, to read."""
        return self._marks.get(name, UNMARKED)

    def _own(self, name: str) -> Mark:
        mark = self._marks.get(name)
        if mark is None:
            mark = self._marks[name] = Mark()
        return mark

    def attempt(self, name: str) -> None:
        """An attempt begins, or a session was promised this backend: it is now the most recently attempted."""
        self._attempts += 1
        mark = self._own(name)
        mark.attempted = self._attempts
        mark.attempts += 1

    def outcome(self, name: str, ok: bool) -> None:
        """Count how an attempt ended."""
        if not ok:
            self._own(name).failures += 1

    def checked(self, name: str, healthy: bool, reason: str = "") -> bool:
        """Set what a check found; returns whether that is news."""
        mark = self._own(name)
        news = mark.healthy != healthy
        mark.healthy, mark.reason = healthy, reason
        if news and healthy:
            self.begins(name)
        return news

    def begins(self, name: str) -> None:
        """It takes sessions from now on, and did not before."""
        self._own(name).since = self._clock()

    def share(self, backend: Backend) -> float:
        """Return the part of its weight by which `backend` counts now: less than 1 in its slow start, never 0."""
        if not backend.slow_start:
            return 1.0
        return min(1.0, max(_LEAST_SHARE, (self._clock() - self.of(backend.name).since) / backend.slow_start))

    def opened(self, name: str) -> None:
        """One more session."""
        self._own(name).active += 1

    def closed(self, name: str) -> None:
        """One session less."""
        mark = self._own(name)
        mark.active = max(0, mark.active - 1)

    def copy(self) -> Markers:
        """Return a copy for code that is not ours: what it changes there changes nothing here."""
        copy = Markers(self._clock)
        copy._marks = {name: replace(mark) for name, mark in self._marks.items()}
        copy._attempts = self._attempts
        return copy

    def forget(self, keep: Iterable[str]) -> None:
        """Drop the marks of backends that are not in `keep` and have no session left."""
        kept = set(keep)
        self._marks = {name: mark for name, mark in self._marks.items() if name in kept or mark.active}
