"""What the workers of one router tell each other of what they have admitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from amqp_session_router.admission.buckets import Bucket, Clock

ROUTER, VHOST, USER, BACKEND, WAITING = "router", "vhost", "user", "backend", "waiting"
"""What connections are counted of: the router, a vhost, a user, a backend, an address and the paused vhost that it
waits for."""


class Others(Protocol):
    """What the other workers have admitted."""

    def publish(self, kind: str, name: str, count: int) -> None:
        """Let them know how many connections there are here."""

    def publish_all(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Let them know so many of each kind and name, and that there are no others any more."""

    def count(self, kind: str, name: str) -> int:
        """Return how many they have."""

    def bucket(self, limit: str, whose: str, rate: float, burst: float, clock: Clock) -> Bucket:
        """Return a full bucket that is one with theirs."""


class Exchange:
    """This worker's side: what it publishes, and what it goes by. The only worker of a router has nobody to tell.

    Nothing is published before `publish_all`: until then the counts of the process before this one hold, while this one
    takes its connections over.
    """

    def __init__(self, others: Others | None, clock: Clock) -> None:
        """`others`: None if there is one worker only."""
        self._others = others
        self._published_to: Others | None = None
        self._clock = clock

    @property
    def publishes(self) -> bool:
        """Whether `publish_all` was called, and there are others."""
        return self._published_to is not None

    def publish_all(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Publish the counts of each kind and name, and from here on each change."""
        self._published_to = self._others
        if self._others is not None:
            self._others.publish_all(counts)

    def publish(self, kind: str, name: str, count: int) -> None:
        """Let the others know how many connections there are here now."""
        if self._published_to is not None:
            self._published_to.publish(kind, name, count)

    def count(self, kind: str, name: str) -> int:
        """Return how many connections the others have."""
        return 0 if self._others is None else self._others.count(kind, name)

    def bucket(self, limit: str, whose: str | None, rate: float) -> Bucket:
        """Return a full bucket that holds a second's worth: a vhost's or an address's in all workers, None: our own."""
        burst = max(1.0, rate)
        if whose is None or self._others is None:
            return Bucket(rate, burst, self._clock)
        return self._others.bucket(limit, whose, rate, burst, self._clock)
