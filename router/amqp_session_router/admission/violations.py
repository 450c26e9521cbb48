"""Which limits were passed: the counts for the metrics, and the warnings in the log."""

from __future__ import annotations

import logging

from amqp_session_router.admission.buckets import Clock
from amqp_session_router.admission.effective_limits import EffectiveLimits

log = logging.getLogger(__name__)

LIMITS = (
    "connections of the router",
    "connection_rate_per_address",
    "unauthenticated_per_address",
    "connections",
    "connection_rate",
    "user_connections",
    "user_connection_rate",
    "data_rate",
    "connection_data_rate",
)
"""All that `Violations.refused` may count."""
ALARMS = (
    "connections_alarm",
    "connection_rate_alarm",
    "user_connections_alarm",
    "user_connection_rate_alarm",
    "data_rate_alarm",
    "connection_data_rate_alarm",
    "backend_connections",
)
"""What `Violations.alarms` may count, and with `alarm_only` LIMITS too."""
_WARN_EVERY = 10.0
"""Seconds between two warnings of one limit on one vhost, user or address."""
_SWEEP_AT = 1024
"""Warnings that are remembered before those are dropped that may be repeated."""


class Violations:
    """Counts each limit that was passed, and warns of it now and then."""

    def __init__(self, limits: EffectiveLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._warned: dict[tuple[str, str], float] = {}
        self.refused: dict[str, int] = {}
        """How often each limit refused or delayed, by its name."""
        self.alarms: dict[str, int] = {}
        """How often each limit or alarm was passed without effect, by its name."""

    def has_effect(self, limit: str, whose: str, text: str) -> bool:
        """A limit was passed: warn, count, and return whether it is to have an effect (not with `alarm_only`)."""
        if self._limits.router.alarm_only:
            self.alarm(limit, whose, text)
            return False
        self.refused[limit] = self.refused.get(limit, 0) + 1
        self._warn("limit", limit, whose, text)
        return True

    def alarm(self, limit: str, whose: str, text: str) -> None:
        """An alarm was passed, or a limit that has no effect: warn and count."""
        self.alarms[limit] = self.alarms.get(limit, 0) + 1
        self._warn("alarm", limit, whose, text)

    def _warn(self, kind: str, limit: str, whose: str, text: str) -> None:
        now = self._clock()
        last = self._warned.get((limit, whose))
        if last is not None and now - last < _WARN_EVERY:
            return
        if len(self._warned) >= _SWEEP_AT:
            self._warned = {key: at for key, at in self._warned.items() if now - at < _WARN_EVERY}
        self._warned[limit, whose] = now
        log.warning("%s passed: %s", kind, text, extra={"limit": limit, "of": whose})
