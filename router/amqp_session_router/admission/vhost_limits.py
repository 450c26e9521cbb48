"""The limits of a vhost: its connections, how often they come, and the data that its clients send."""

from __future__ import annotations

from amqp_session_router.admission.buckets import Buckets
from amqp_session_router.admission.connection_counts import BY_VHOST, ConnectionCounts
from amqp_session_router.admission.effective_limits import EffectiveLimits
from amqp_session_router.admission.other_workers import Exchange
from amqp_session_router.admission.violations import Violations
from amqp_session_router.config.schema import VhostLimits


class VhostCounts(ConnectionCounts):
    """Counts the connections of each vhost and the data of its clients, and says where a limit is reached."""

    def __init__(self, limits: EffectiveLimits, exchange: Exchange, violations: Violations) -> None:
        super().__init__(BY_VHOST, limits.of, exchange, violations)
        self._effective = limits

    def data(self, vhost: str, own: Buckets, nbytes: int) -> float:
        """Record `nbytes` from a client of `vhost` whose connection has the buckets `own`; returns the seconds to wait
        before reading on."""
        state = self._counted.get(vhost)
        if state is None:
            return 0.0
        limits = self._effective.of(vhost)
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
