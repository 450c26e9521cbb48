"""The limits of a vhost: its connections, how often they come, and the data that its clients send."""

from __future__ import annotations

from dataclasses import dataclass, field

from amqp_session_router.admission.buckets import Bucket, Buckets
from amqp_session_router.admission.effective_limits import EffectiveLimits
from amqp_session_router.admission.other_workers import VHOST, Exchange
from amqp_session_router.admission.violations import Violations
from amqp_session_router.base.model import CONNECTION_FORCED, NOT_ALLOWED, Refusal
from amqp_session_router.config.schema import VhostLimits

_SWEEP_AT = 1024
"""Vhosts without a connection that are kept before those with nothing to remember are dropped."""


@dataclass(slots=True)
class _Vhost:
    """What is counted of one vhost."""

    connections: int = 0
    buckets: Buckets = field(default_factory=dict)


class VhostCounts:
    """Counts the connections of each vhost and the data of its clients, and says where a limit is reached."""

    def __init__(self, limits: EffectiveLimits, exchange: Exchange, violations: Violations) -> None:
        self._limits = limits
        self._exchange = exchange
        self._violations = violations
        self._vhosts: dict[str, _Vhost] = {}

    def count(self, vhost: str) -> int:
        """Return the connections that are counted on `vhost` in all workers."""
        found = self._vhosts.get(vhost)
        return (0 if found is None else found.connections) + self._exchange.count(VHOST, vhost)

    def counts(self) -> dict[tuple[str, str], int]:
        """Return what the other workers have to know, by kind and name."""
        return {
            (VHOST, vhost): state.connections
            for vhost, state in self._vhosts.items()
            if _bounds(self._limits.of(vhost))
        }

    # --- connections ---

    def adopted(self, vhost: str) -> None:
        """Count one more connection on `vhost`, whatever the limits say."""
        state = self._vhosts.get(vhost)
        if state is None:
            state = self._vhosts[vhost] = _Vhost()
        self._count_on(vhost, state, 1)

    def opening(self, vhost: str, user: str) -> Refusal | None:
        """Count one more connection on `vhost`; on a Refusal it was not counted."""
        limits = self._limits.of(vhost)
        state = self._vhosts.get(vhost)
        if state is None:
            self._sweep()
            state = self._vhosts[vhost] = _Vhost()
        self._count_on(vhost, state, 1)
        refusal = self._refusal(vhost, user, limits, state)
        if refusal is not None:
            self._count_on(vhost, state, -1)
        return refusal

    def left(self, vhost: str) -> None:
        """One connection of `vhost` less."""
        if (state := self._vhosts.get(vhost)) is not None:
            self._count_on(vhost, state, -1)

    def full(self, vhost: str, user: str) -> Refusal | None:
        """Return why `vhost` takes no more connections now."""
        limits = self._limits.of(vhost)
        if limits.connections is None and limits.connection_rate is None:
            return None
        before = self.count(vhost)
        refusal = self._too_many(vhost, user, limits, before)
        state = self._vhosts.get(vhost)
        if refusal is not None or state is None:
            return refusal
        rate = self._bucket(state.buckets, "connection_rate", limits.connection_rate, vhost)
        return None if rate is None or rate.level() >= 1 else self._too_fast(vhost, user, rate, before)

    def _count_on(self, vhost: str, state: _Vhost, more: int) -> None:
        state.connections += more
        if self._exchange.publishes and _bounds(self._limits.of(vhost)):
            self._exchange.publish(VHOST, vhost, state.connections)

    def _refusal(self, vhost: str, user: str, limits: VhostLimits, state: _Vhost) -> Refusal | None:
        """Return why the connection that was counted last on `vhost` may not come in."""
        before = (self.count(vhost) if _bounds(limits) else state.connections) - 1
        if limits.connections_alarm is not None and before >= limits.connections_alarm:
            self._violations.alarm("connections_alarm", vhost, _told(before, user))
        refusal = self._too_many(vhost, user, limits, before)
        if refusal is not None:
            return refusal
        alarm = self._bucket(state.buckets, "connection_rate_alarm", limits.connection_rate_alarm, vhost)
        if alarm is not None and not alarm.try_take(1):
            self._violations.alarm("connection_rate_alarm", vhost, _told(before, user))
        rate = self._bucket(state.buckets, "connection_rate", limits.connection_rate, vhost)
        return None if rate is None or rate.try_take(1) else self._too_fast(vhost, user, rate, before)

    def _too_many(self, vhost: str, user: str, limits: VhostLimits, before: int) -> Refusal | None:
        most = limits.connections
        if most is None or before < most:
            return None
        if not self._violations.has_effect("connections", vhost, _told(before, user)):
            return None
        return Refusal(NOT_ALLOWED, f"access to vhost '{vhost}' refused: connection limit ({most}) is reached")

    def _too_fast(self, vhost: str, user: str, rate: Bucket, before: int) -> Refusal | None:
        if not self._violations.has_effect("connection_rate", vhost, _told(before, user)):
            return None
        text = f"access to vhost '{vhost}' refused: more than {rate.rate:g} new connections a second; try again later"
        return Refusal(CONNECTION_FORCED, text)

    # --- data ---

    def data(self, vhost: str, own: Buckets, nbytes: int) -> float:
        """Record `nbytes` from a client of `vhost` whose connection has the buckets `own`; returns the seconds to wait
        before reading on."""
        state = self._vhosts.get(vhost)
        if state is None:
            return 0.0
        limits = self._limits.of(vhost)
        return max(
            self._charge(state.buckets, "data_rate", limits, vhost, nbytes),
            self._charge(own, "connection_data_rate", limits, vhost, nbytes),
        )

    def _charge(self, buckets: Buckets, name: str, limits: VhostLimits, vhost: str, nbytes: int) -> float:
        """Charge `nbytes` to the rate `name` and its alarm; returns the seconds to wait."""
        whose = None if name == "connection_data_rate" else vhost
        alarm = self._bucket(buckets, f"{name}_alarm", getattr(limits, f"{name}_alarm"), whose)
        if alarm is not None and not alarm.try_take(min(nbytes, alarm.burst)):
            self._violations.alarm(f"{name}_alarm", vhost, f"more than {alarm.rate:g} bytes a second")
        rate = self._bucket(buckets, name, getattr(limits, name), whose)
        if rate is None:
            return 0.0
        wait = rate.owe(nbytes)
        if wait > 0 and self._violations.has_effect(name, vhost, f"more than {rate.rate:g} bytes a second"):
            return wait
        return 0.0

    # --- both ---

    def _bucket(self, buckets: Buckets, name: str, rate: float | None, vhost: str | None) -> Bucket | None:
        """Return the bucket of the limit `name`, of a vhost's in all workers or (None) of one connection's."""
        if rate is None:
            buckets.pop(name, None)
            return None
        found = buckets.get(name)
        if found is None or found.rate != rate:
            found = buckets[name] = self._exchange.bucket(name, vhost, rate)
        return found

    def _sweep(self) -> None:
        """Drop what holds no information: no connection, and full buckets."""
        if len(self._vhosts) < _SWEEP_AT:
            return
        self._vhosts = {
            name: state
            for name, state in self._vhosts.items()
            if state.connections or any(bucket.level() < bucket.burst for bucket in state.buckets.values())
        }


def _bounds(limits: VhostLimits) -> bool:
    """Whether a limit or an alarm looks at a vhost's connections."""
    return limits.connections is not None or limits.connections_alarm is not None


def _told(connections: int, user: str) -> str:
    return f"{connections} connections, user {user!r}"
