"""Connections that a listener's networks keep out: counted, and in the log now and then."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from amqp_session_router.admission.buckets import Clock

log = logging.getLogger(__name__)

WARN_EVERY = 10.0
"""Seconds between two lines of one listener: those kept out may be many, and choose when they come."""


@dataclass(slots=True)
class _Told:
    """What the log was told last of one listener."""

    at: float
    count: int


class Denials:
    """Counts by listener."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[str, _Told] = {}
        self.counts: dict[str, int] = {}
        """How many connections each listener kept out, by its name."""

    def denied(self, listener: str, address: str) -> None:
        """A connection from the IP `address` was kept out."""
        count = self.counts[listener] = self.counts.get(listener, 0) + 1
        now, told = self._clock(), self._told.get(listener)
        if told is not None and now - told.at < WARN_EVERY:
            return
        since = count - (0 if told is None else told.count)
        self._told[listener] = _Told(now, count)
        log.warning("connections are denied", extra={"listener": listener, "address": address, "since": since})
