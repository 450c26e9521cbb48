"""Connections that are counted by a name, a vhost's or a user's: how many there are, and how often they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from amqp_session_router.admission.buckets import Bucket, Buckets
from amqp_session_router.admission.other_workers import USER, VHOST, Exchange
from amqp_session_router.admission.violations import Violations
from amqp_session_router.base.model import CONNECTION_FORCED, NOT_ALLOWED, Refusal, short_string
from amqp_session_router.config.schema import ConnectionLimits

SWEEP_AT = 1024
"""Names without a connection that are kept before those with nothing to remember are dropped."""


@dataclass(frozen=True, slots=True)
class CountedBy:
    """What connections are counted by: in the words of RabbitMQ's own limits, and of ours."""

    kind: str
    """As the other workers are told."""
    prefix: str
    """Of the limits' names."""
    refused: str
    """Begins a refusal; has a place for the name."""
    limit: str
    """The limit that is reached."""
    other: str
    """What the warnings tell of the connection besides."""


BY_VHOST = CountedBy(VHOST, "", "access to vhost '{}' refused", "connection limit", "user")
BY_USER = CountedBy(USER, "user_", "connection refused for user '{}'", "user connection limit", "vhost")


@dataclass(slots=True)
class Counted:
    """What is counted of one name."""

    connections: int = 0
    buckets: Buckets = field(default_factory=dict)


class ConnectionCounts:
    """Counts the connections of each name in all workers, and says where a limit is reached."""

    def __init__(
        self,
        by: CountedBy,
        limits_of: Callable[[str], ConnectionLimits],
        exchange: Exchange,
        violations: Violations,
    ) -> None:
        """`limits_of`: returns the limits of a name as they are set now."""
        self._by = by
        self._limits_of = limits_of
        self._exchange = exchange
        self._violations = violations
        self._counted: dict[str, Counted] = {}

    def count(self, name: str) -> int:
        """Return the connections that are counted on `name` in all workers."""
        found = self._counted.get(name)
        return (0 if found is None else found.connections) + self._exchange.count(self._by.kind, name)

    def counts(self) -> dict[tuple[str, str], int]:
        """Return what the other workers have to know, by kind and name."""
        return {
            (self._by.kind, name): state.connections
            for name, state in self._counted.items()
            if _bounds(self._limits_of(name))
        }

    def adopted(self, name: str) -> None:
        """Count one more connection on `name`, whatever the limits say."""
        state = self._counted.get(name)
        if state is None:
            state = self._counted[name] = Counted()
        self._count_on(name, state, 1)

    def opening(self, name: str, other: str) -> Refusal | None:
        """Count one more connection on `name`; on a Refusal it was not counted. `other`: for the warnings."""
        limits = self._limits_of(name)
        state = self._counted.get(name)
        if state is None:
            self._sweep()
            state = self._counted[name] = Counted()
        self._count_on(name, state, 1)
        refusal = self._refusal(name, other, limits, state)
        if refusal is not None:
            self._count_on(name, state, -1)
        return refusal

    def left(self, name: str) -> None:
        """One connection of `name` less."""
        if (state := self._counted.get(name)) is not None:
            self._count_on(name, state, -1)

    def full(self, name: str, other: str) -> Refusal | None:
        """Return why `name` takes no more connections now."""
        limits = self._limits_of(name)
        if limits.connections is None and limits.connection_rate is None:
            return None
        before = self.count(name)
        refusal = self._too_many(name, other, limits, before)
        state = self._counted.get(name)
        if refusal is not None or state is None:
            return refusal
        rate = self._bucket(state.buckets, "connection_rate", limits.connection_rate, name)
        return None if rate is None or rate.level() >= 1 else self._too_fast(name, other, rate, before)

    def _count_on(self, name: str, state: Counted, more: int) -> None:
        state.connections += more
        if self._exchange.publishes and _bounds(self._limits_of(name)):
            self._exchange.publish(self._by.kind, name, state.connections)

    def _refusal(self, name: str, other: str, limits: ConnectionLimits, state: Counted) -> Refusal | None:
        """Return why the connection that was counted last on `name` may not come in."""
        before = (self.count(name) if _bounds(limits) else state.connections) - 1
        if limits.connections_alarm is not None and before >= limits.connections_alarm:
            self._violations.alarm(f"{self._by.prefix}connections_alarm", name, self._told(before, other))
        refusal = self._too_many(name, other, limits, before)
        if refusal is not None:
            return refusal
        alarm = self._bucket(state.buckets, "connection_rate_alarm", limits.connection_rate_alarm, name)
        if alarm is not None and not alarm.try_take(1):
            self._violations.alarm(f"{self._by.prefix}connection_rate_alarm", name, self._told(before, other))
        rate = self._bucket(state.buckets, "connection_rate", limits.connection_rate, name)
        return None if rate is None or rate.try_take(1) else self._too_fast(name, other, rate, before)

    def _too_many(self, name: str, other: str, limits: ConnectionLimits, before: int) -> Refusal | None:
        most = limits.connections
        if most is None or before < most:
            return None
        if not self._violations.has_effect(f"{self._by.prefix}connections", name, self._told(before, other)):
            return None
        return self._refused(NOT_ALLOWED, name, f"{self._by.limit} ({most}) is reached")

    def _too_fast(self, name: str, other: str, rate: Bucket, before: int) -> Refusal | None:
        if not self._violations.has_effect(f"{self._by.prefix}connection_rate", name, self._told(before, other)):
            return None
        why = f"more than {rate.rate:g} new connections a second; try again later"
        return self._refused(CONNECTION_FORCED, name, why)

    def _refused(self, code: int, name: str, why: str) -> Refusal:
        return Refusal(code, short_string(f"{self._by.refused.format(name)}: {why}"))

    def _told(self, connections: int, other: str) -> str:
        return f"{connections} connections, {self._by.other} {other!r}"

    def _bucket(self, buckets: Buckets, limit: str, rate: float | None, name: str | None) -> Bucket | None:
        """Return the bucket of the limit, of a name's in all workers or (None) of one connection's."""
        if rate is None:
            buckets.pop(limit, None)
            return None
        found = buckets.get(limit)
        if found is None or found.rate != rate:
            found = buckets[limit] = self._exchange.bucket(f"{self._by.prefix}{limit}", name, rate)
        return found

    def _sweep(self) -> None:
        """Drop what holds no information: no connection, and full buckets."""
        if len(self._counted) < SWEEP_AT:
            return
        self._counted = {
            name: state
            for name, state in self._counted.items()
            if state.connections or any(bucket.level() < bucket.burst for bucket in state.buckets.values())
        }


def _bounds(limits: ConnectionLimits) -> bool:
    """Whether a limit or an alarm looks at a name's connections."""
    return limits.connections is not None or limits.connections_alarm is not None
