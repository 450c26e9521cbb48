"""The limits of a client's address: how often it connects, and how many of its connections are not open yet."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from amqp_session_router.admission.buckets import Bucket
from amqp_session_router.admission.effective_limits import EffectiveLimits
from amqp_session_router.admission.other_workers import WAITING, Exchange
from amqp_session_router.admission.violations import Violations
from amqp_session_router.base.model import CONNECTION_FORCED, Refusal

_SWEEP_AT = 1024
"""Addresses whose connection rate is kept before those with nothing to remember are dropped."""

Source = tuple[str, str]
"""What an unauthenticated connection is counted of: the address, and the paused vhost that it waits for, or ""."""


class AddressLimits:
    """The connections of each client's address: their rate, and those that are not open yet."""

    def __init__(self, limits: EffectiveLimits, exchange: Exchange, violations: Violations) -> None:
        self._limits = limits
        self._exchange = exchange
        self._violations = violations
        self._unauthenticated: dict[Source, int] = {}
        self._rates: dict[str, Bucket] = {}
        """Of the addresses' new connections; full ones are dropped."""
        self._sweep_at = _SWEEP_AT

    def counted_as(self, address: str) -> str:
        """Return what a client's address is counted as: an IPv6 address as its network."""
        return _network(address, self._limits.router.ipv6_prefix) if ":" in address else address

    def arriving(self, address: str) -> Refusal | None:
        """Take one new connection of a client's address."""
        rate = self._limits.router.connection_rate_per_address
        if rate is None:
            self._rates.clear()
            return None
        bucket = self._rates.get(address)
        if bucket is None or bucket.rate != rate:
            self._sweep()
            bucket = self._exchange.bucket("connection_rate_per_address", address, rate)
            self._rates[address] = bucket
        text = f"more than {rate:g} a second"
        if bucket.try_take(1) or not self._violations.has_effect("connection_rate_per_address", address, text):
            return None
        return Refusal(CONNECTION_FORCED, f"{address} opens more than {rate:g} connections a second; try again later")

    def handshake_begins(self, source: Source) -> Refusal | None:
        """Count one more unauthenticated connection; on a Refusal it was not."""
        most = self._limits.router.unauthenticated_per_address
        address = source[0]
        here = self._unauthenticated.get(source, 0) + 1
        self._unauthenticated[source] = here
        if most is None:
            return None
        name = _name(source)
        self._exchange.publish(WAITING, name, here)
        waiting = here - 1 + self._exchange.count(WAITING, name)
        if waiting < most:
            return None
        if not self._violations.has_effect("unauthenticated_per_address", address, f"{waiting} are not open yet"):
            return None
        self.handshake_done(source)
        return Refusal(CONNECTION_FORCED, f"{address} has {waiting} connections that are not open yet")

    def handshake_done(self, source: Source) -> None:
        """One unauthenticated connection less; see `handshake_begins`."""
        left = self._unauthenticated.get(source, 0) - 1
        if self._exchange.publishes and self._limits.router.unauthenticated_per_address is not None:
            self._exchange.publish(WAITING, _name(source), max(0, left))
        if left > 0:
            self._unauthenticated[source] = left
        else:
            self._unauthenticated.pop(source, None)

    def counts(self) -> dict[tuple[str, str], int]:
        """Return what the other workers have to know, by kind and name."""
        if self._limits.router.unauthenticated_per_address is None:
            return {}
        return {(WAITING, _name(source)): count for source, count in self._unauthenticated.items()}

    def _sweep(self) -> None:
        """Drop the full buckets; the next time once there are twice as many as are left."""
        if len(self._rates) < self._sweep_at:
            return
        self._rates = {name: one for name, one in self._rates.items() if one.level() < one.burst}
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._rates))


@lru_cache(maxsize=1024)
def _network(address: str, prefix: int) -> str:
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, prefix), strict=False))


def _name(source: Source) -> str:
    return "\0".join(source)
