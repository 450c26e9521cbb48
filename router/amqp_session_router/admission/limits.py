"""Limits: connection rates, connections, data rates, unauthenticated connections of an address, frame size.

Each limit has a value that refuses or delays and one that only warns; with `alarm_only` every limit only warns. Counts
survive a reload. Memory is bounded by live connections, not by the names that clients make up.

Of several workers each counts its own and publishes to the others (`Others`) what a limit looks at. A worker enters
what it is about to admit before it looks at what the others have, so that two never both take the last place; at worst
both are refused.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from amqp_session_router.base.model import CONNECTION_FORCED, NOT_ALLOWED, Refusal
from amqp_session_router.config.schema import LimitsPart, VhostLimits

log = logging.getLogger(__name__)

Clock = Callable[[], float]

LIMITS = (
    "connections of the router",
    "connection_rate_per_address",
    "unauthenticated_per_address",
    "connections",
    "connection_rate",
    "data_rate",
    "connection_data_rate",
)
"""All that `Limiter.refused` may count."""
ALARMS = ("connections_alarm", "connection_rate_alarm", "data_rate_alarm", "connection_data_rate_alarm")
"""What `Limiter.alarms` may count, and with `alarm_only` LIMITS too."""
_WARN_EVERY = 10.0
"""Seconds between two warnings of one limit on one vhost or address."""
_SWEEP_AT = 1024
"""Vhosts without a connection that are kept before those with nothing to remember are dropped."""


class Bucket:
    """A token bucket that may go into debt: `rate` tokens a second, `burst` at most."""

    __slots__ = ("_at", "_clock", "_level", "burst", "rate")

    def __init__(self, rate: float, burst: float, clock: Clock) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock
        self._level, self._at = burst, clock()

    def level(self) -> float:
        """Return the tokens there are now; negative: the debt."""
        now = self._clock()
        self._level = min(self.burst, self._level + (now - self._at) * self.rate)
        self._at = now
        return self._level

    def try_take(self, tokens: float) -> bool:
        """Take `tokens` if there are so many."""
        if self.level() < tokens:
            return False
        self._take(tokens)
        return True

    def owe(self, tokens: float) -> float:
        """Take `tokens` whether there are or not; returns the seconds until the debt is paid (0.0: there is none)."""
        level = self.level() - tokens
        self._take(tokens)
        return max(0.0, -level / self.rate)

    def _take(self, tokens: float) -> None:
        self._level -= tokens


Buckets = dict[str, Bucket]
"""By the limit's name."""

ROUTER, VHOST, WAITING = "router", "vhost", "waiting"
"""What connections are counted of: the router, a vhost, an address and the paused vhost that it waits for."""


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


@dataclass(slots=True)
class _Vhost:
    """What is counted of one vhost."""

    connections: int = 0
    buckets: Buckets = field(default_factory=dict)


class VhostLease:
    """One connection's share of the limits; see `model.Lease`."""

    __slots__ = ("_authenticated", "_buckets", "_limiter", "_released", "_source", "_vhost")

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._buckets: Buckets | None = None
        """Its own; None until its bytes are counted."""
        self._source: tuple[str, str] | None = None
        """What it is counted as while it is not authenticated: address, and the paused vhost that it waits for."""
        self._vhost: str | None = None
        self._authenticated = False
        self._released = False

    @property
    def metered(self) -> bool:
        """Whether the vhost or its connections have a data rate, by limit or alarm."""
        if self._vhost is None:
            return False
        limits = self._limiter.of(self._vhost)
        return (
            limits.data_rate is not None
            or limits.data_rate_alarm is not None
            or limits.connection_data_rate is not None
            or limits.connection_data_rate_alarm is not None
        )

    def identify(self, source_ip: str) -> Refusal | None:
        """Count the connection as a new and unauthenticated one of its client's address; on a Refusal it is not
        counted as unauthenticated."""
        source = self._limiter.counted_as(source_ip)
        return self._limiter.arriving(source) or self._count_as((source, ""))

    def wait(self, vhost: str) -> Refusal | None:
        """Count it as one that waits for the paused `vhost`, no longer as one of its address; see `identify`."""
        return None if self._source is None else self._count_as((self._source[0], vhost))

    def _count_as(self, source: tuple[str, str]) -> Refusal | None:
        if self._authenticated or self._released or source == self._source:
            return None
        refusal = self._limiter.handshake_begins(source)
        if refusal is None:
            if self._source is not None:
                self._limiter.handshake_done(self._source)
            self._source = source
        return refusal

    def adopt(self, vhost: str) -> None:
        """Count an open connection that another process admitted: no limit refuses it."""
        self._authenticated = True
        self._vhost = vhost
        self._limiter.adopted(vhost)

    def may_open(self, vhost: str, user: str) -> Refusal | None:
        """Return why no connection may come to `vhost` now; nothing is counted but the Refusal."""
        return self._limiter.full(vhost, user)

    def open(self, vhost: str, user: str) -> Refusal | None:
        """Count the connection on `vhost`, whose broker has let it in; on a Refusal it is not counted there."""
        if self._vhost is not None or self._released:
            return None
        refusal = self._limiter.opening(vhost, user)
        if refusal is None:
            self._vhost = vhost
        return refusal

    def authenticated(self) -> None:
        """No longer an unauthenticated connection of its address."""
        if not self._authenticated and not self._released:
            self._authenticated = True
            if self._source is not None:
                self._limiter.handshake_done(self._source)

    def take(self, nbytes: int) -> float:
        """Record `nbytes` from the client; returns the seconds to wait before reading on."""
        if self._vhost is None:
            return 0.0
        if self._buckets is None:
            self._buckets = {}
        return self._limiter.data(self._vhost, self._buckets, nbytes)

    def release(self) -> None:
        """Give everything back. Idempotent."""
        if self._released:
            return
        self.authenticated()
        self._released = True
        self._limiter.left(self._vhost)


class Limiter:
    """The limits of one router; see `model.Limits`."""

    def __init__(self, limits: LimitsPart, clock: Clock = time.monotonic, others: Others | None = None) -> None:
        """Nothing is published to the `others` (None: there is one worker only) before `publish_all`: until then the
        counts of the process before this one hold, while this one takes its connections over."""
        self._clock = clock
        self._others = others
        self._published_to: Others | None = None
        self._config = limits
        self._merged: dict[str, VhostLimits] = {}
        self._vhosts: dict[str, _Vhost] = {}
        self._unauthenticated: dict[tuple[str, str], int] = {}
        self._addresses: dict[str, Bucket] = {}
        """Of client addresses, for their connection rate; full ones are dropped."""
        self._sweep_addresses_at = _SWEEP_AT
        self._warned: dict[tuple[str, str], float] = {}
        self.connections = 0
        self.refused: dict[str, int] = {}
        """How often each limit refused or delayed, by its name."""
        self.alarms: dict[str, int] = {}
        """How often each limit or alarm was passed without effect, by its name."""

    def apply(self, limits: LimitsPart) -> None:
        """Go by new limits from here on; what is counted stays."""
        self._config = limits
        self._merged.clear()
        if self._published_to is not None:
            self.publish_all()

    def publish_all(self) -> None:
        """Publish all counts that the other workers have to know, and from here on each change."""
        self._published_to = self._others
        if self._published_to is None:
            return
        counts: dict[tuple[str, str], int] = {}
        if self._config.connections is not None:
            counts[ROUTER, ""] = self.connections
        if self._config.unauthenticated_per_address is not None:
            counts |= {(WAITING, _of(source)): count for source, count in self._unauthenticated.items()}
        for vhost, state in self._vhosts.items():
            if _bounds(self.of(vhost)):
                counts[VHOST, vhost] = state.connections
        self._published_to.publish_all(counts)

    def of(self, vhost: str) -> VhostLimits:
        """Return the limits of `vhost`: its own, and the defaults where it has none."""
        own = self._config.vhosts.get(vhost)
        if own is None:
            return self._config.default
        merged = self._merged.get(vhost)
        if merged is None:
            merged = self._config.default.model_copy(update=own.model_dump(exclude_none=True))
            self._merged[vhost] = merged
        return merged

    def count(self, vhost: str) -> int:
        """Return the connections that are counted on `vhost`."""
        found = self._vhosts.get(vhost)
        return (0 if found is None else found.connections) + self._others_have(VHOST, vhost)

    @property
    def all_connections(self) -> int:
        """The connections of all workers."""
        return self.connections + self._others_have(ROUTER, "")

    def _others_have(self, kind: str, name: str) -> int:
        return 0 if self._others is None else self._others.count(kind, name)

    # --- what leases and the data path call ---

    def accept(self, source_ip: str | None) -> VhostLease | Refusal:
        """Count a new connection; on a Refusal nothing was counted. None: its client's address is not known yet."""
        most = self._config.connections
        self._count(1)
        refusal: Refusal | None = None
        if (
            most is not None
            and self.all_connections > most
            and self._passed("connections of the router", "", f"all {most} connections are in use")
        ):
            refusal = Refusal(CONNECTION_FORCED, f"the router's limit of {most} connections is reached")
        lease = VhostLease(self)
        if refusal is None and source_ip is not None:
            refusal = lease.identify(source_ip)
        if refusal is not None:
            self._count(-1)
            return refusal
        return lease

    def _count(self, more: int) -> None:
        self.connections += more
        if self._published_to is not None and self._config.connections is not None:
            self._published_to.publish(ROUTER, "", self.connections)

    def adopt(self, vhost: str) -> VhostLease:
        """Count an open connection of `vhost` that another process admitted: no limit refuses it."""
        self._count(1)
        lease = VhostLease(self)
        lease.adopt(vhost)
        return lease

    def counted_as(self, address: str) -> str:
        """Return what a client's address is counted as: an IPv6 address as its network."""
        return _network(address, self._config.ipv6_prefix) if ":" in address else address

    def arriving(self, address: str) -> Refusal | None:
        """Take one new connection of a client's address."""
        rate = self._config.connection_rate_per_address
        if rate is None:
            self._addresses.clear()
            return None
        bucket = self._addresses.get(address)
        if bucket is None or bucket.rate != rate:
            self._sweep_addresses()
            bucket = self._new_bucket("connection_rate_per_address", address, rate)
            self._addresses[address] = bucket
        text = f"more than {rate:g} a second"
        if bucket.try_take(1) or not self._passed("connection_rate_per_address", address, text):
            return None
        return Refusal(CONNECTION_FORCED, f"{address} opens more than {rate:g} connections a second; try again later")

    def handshake_begins(self, source: tuple[str, str]) -> Refusal | None:
        """Count one more unauthenticated connection of (address, paused vhost or ""); on a Refusal it was not."""
        most = self._config.unauthenticated_per_address
        address = source[0]
        here = self._unauthenticated.get(source, 0) + 1
        self._unauthenticated[source] = here
        if most is None:
            return None
        waiting = here - 1
        if self._others is not None:
            self._tell_waiting(source, here)
            waiting += self._others.count(WAITING, _of(source))
        if waiting >= most and self._passed("unauthenticated_per_address", address, f"{waiting} are not open yet"):
            self.handshake_done(source)
            return Refusal(CONNECTION_FORCED, f"{address} has {waiting} connections that are not open yet")
        return None

    def _tell_waiting(self, source: tuple[str, str], count: int) -> None:
        if self._published_to is not None and self._config.unauthenticated_per_address is not None:
            self._published_to.publish(WAITING, _of(source), count)

    def adopted(self, vhost: str) -> None:
        """Count one more connection on `vhost`, whatever the limits say."""
        state = self._vhosts.get(vhost)
        if state is None:
            state = self._vhosts[vhost] = _Vhost()
        self._count_on(vhost, state, 1)

    def _count_on(self, vhost: str, state: _Vhost, more: int) -> None:
        state.connections += more
        if self._published_to is not None and _bounds(self.of(vhost)):
            self._published_to.publish(VHOST, vhost, state.connections)

    def opening(self, vhost: str, user: str) -> Refusal | None:
        """Count one more connection on `vhost`; on a Refusal it was not counted."""
        limits = self.of(vhost)
        state = self._vhosts.get(vhost)
        if state is None:
            self._sweep()
            state = self._vhosts[vhost] = _Vhost()
        self._count_on(vhost, state, 1)
        refusal = self._refusal(vhost, user, limits, state)
        if refusal is not None:
            self._count_on(vhost, state, -1)
        return refusal

    def full(self, vhost: str, user: str) -> Refusal | None:
        """Return why `vhost` takes no more connections now."""
        limits = self.of(vhost)
        if limits.connections is None and limits.connection_rate is None:
            return None
        before = self.count(vhost)
        refusal = self._too_many(vhost, user, limits, before)
        state = self._vhosts.get(vhost)
        if refusal is not None or state is None:
            return refusal
        rate = self._bucket(state.buckets, "connection_rate", limits.connection_rate, vhost)
        return None if rate is None or rate.level() >= 1 else self._too_fast(vhost, user, rate, before)

    def _too_many(self, vhost: str, user: str, limits: VhostLimits, before: int) -> Refusal | None:
        most = limits.connections
        if most is None or before < most or not self._passed("connections", vhost, _told(before, user)):
            return None
        return Refusal(NOT_ALLOWED, f"access to vhost '{vhost}' refused: connection limit ({most}) is reached")

    def _too_fast(self, vhost: str, user: str, rate: Bucket, before: int) -> Refusal | None:
        if not self._passed("connection_rate", vhost, _told(before, user)):
            return None
        text = f"access to vhost '{vhost}' refused: more than {rate.rate:g} new connections a second; try again later"
        return Refusal(CONNECTION_FORCED, text)

    def _refusal(self, vhost: str, user: str, limits: VhostLimits, state: _Vhost) -> Refusal | None:
        """Return why the connection that was counted last on `vhost` may not come in."""
        before = (self.count(vhost) if _bounds(limits) else state.connections) - 1
        if limits.connections_alarm is not None and before >= limits.connections_alarm:
            self._alarm("connections_alarm", vhost, _told(before, user))
        refusal = self._too_many(vhost, user, limits, before)
        if refusal is not None:
            return refusal
        alarm = self._bucket(state.buckets, "connection_rate_alarm", limits.connection_rate_alarm, vhost)
        if alarm is not None and not alarm.try_take(1):
            self._alarm("connection_rate_alarm", vhost, _told(before, user))
        rate = self._bucket(state.buckets, "connection_rate", limits.connection_rate, vhost)
        return None if rate is None or rate.try_take(1) else self._too_fast(vhost, user, rate, before)

    def data(self, vhost: str, own: Buckets, nbytes: int) -> float:
        """Record `nbytes` from a client of `vhost` whose connection has the buckets `own`; returns the seconds to wait
        before reading on."""
        state = self._vhosts.get(vhost)
        if state is None:
            return 0.0
        limits = self.of(vhost)
        return max(
            self._charge(state.buckets, "data_rate", limits, vhost, nbytes),
            self._charge(own, "connection_data_rate", limits, vhost, nbytes),
        )

    def handshake_done(self, source: tuple[str, str]) -> None:
        """One unauthenticated connection less; see `handshake_begins`."""
        left = self._unauthenticated.get(source, 0) - 1
        if self._published_to is not None:
            self._tell_waiting(source, max(0, left))
        if left > 0:
            self._unauthenticated[source] = left
        else:
            self._unauthenticated.pop(source, None)

    def left(self, vhost: str | None) -> None:
        """One connection less; on `vhost` too if it was counted there."""
        self._count(-1)
        if vhost is not None and (state := self._vhosts.get(vhost)) is not None:
            self._count_on(vhost, state, -1)

    def largest_frame(self, vhost: str | None) -> int:
        """Return the most bytes of a client's frame on `vhost` (None: before Open); 0: no limit of ours."""
        return (self._config.default if vhost is None else self.of(vhost)).frame_max or 0

    # --- inside ---

    def _bucket(self, buckets: Buckets, name: str, rate: float | None, vhost: str | None) -> Bucket | None:
        """Return the bucket of the limit `name`, of a vhost's in all workers or (None) of one connection's."""
        if rate is None:
            buckets.pop(name, None)
            return None
        found = buckets.get(name)
        if found is None or found.rate != rate:
            found = buckets[name] = self._new_bucket(name, vhost, rate)
        return found

    def _new_bucket(self, name: str, whose: str | None, rate: float) -> Bucket:
        """Return a full bucket that holds a second's worth: a vhost's or an address's in all workers, None: our own."""
        burst = max(1.0, rate)
        if whose is None or self._others is None:
            return Bucket(rate, burst, self._clock)
        return self._others.bucket(name, whose, rate, burst, self._clock)

    def _charge(self, buckets: Buckets, name: str, limits: VhostLimits, vhost: str, nbytes: int) -> float:
        """Charge `nbytes` to the rate `name` and its alarm; returns the seconds to wait."""
        whose = None if name == "connection_data_rate" else vhost
        alarm = self._bucket(buckets, f"{name}_alarm", getattr(limits, f"{name}_alarm"), whose)
        if alarm is not None and not alarm.try_take(min(nbytes, alarm.burst)):
            self._alarm(f"{name}_alarm", vhost, f"more than {alarm.rate:g} bytes a second")
        rate = self._bucket(buckets, name, getattr(limits, name), whose)
        if rate is None:
            return 0.0
        wait = rate.owe(nbytes)
        if wait > 0 and self._passed(name, vhost, f"more than {rate.rate:g} bytes a second"):
            return wait
        return 0.0

    def _passed(self, limit: str, whose: str, text: str) -> bool:
        """A limit was passed: warn, count, and return whether it is to have an effect."""
        if self._config.alarm_only:
            self._alarm(limit, whose, text)
            return False
        self.refused[limit] = self.refused.get(limit, 0) + 1
        self._warn("limit", limit, whose, text)
        return True

    def _alarm(self, limit: str, whose: str, text: str) -> None:
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

    def _sweep_addresses(self) -> None:
        """Drop the full buckets; the next time once there are twice as many as are left."""
        if len(self._addresses) < self._sweep_addresses_at:
            return
        self._addresses = {name: one for name, one in self._addresses.items() if one.level() < one.burst}
        self._sweep_addresses_at = max(_SWEEP_AT, 2 * len(self._addresses))

    def _sweep(self) -> None:
        """Drop what holds no information: no connection, and full buckets."""
        if len(self._vhosts) < _SWEEP_AT:
            return
        self._vhosts = {
            name: state
            for name, state in self._vhosts.items()
            if state.connections or any(bucket.level() < bucket.burst for bucket in state.buckets.values())
        }


@lru_cache(maxsize=1024)
def _network(address: str, prefix: int) -> str:
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, prefix), strict=False))


def _bounds(limits: VhostLimits) -> bool:
    """Whether a limit or an alarm looks at a vhost's connections."""
    return limits.connections is not None or limits.connections_alarm is not None


def _told(connections: int, user: str) -> str:
    return f"{connections} connections, user {user!r}"


def _of(source: tuple[str, str]) -> str:
    return "\0".join(source)


def describe(limits: Limiter, config: LimitsPart, vhost: str | None) -> list[dict[str, object]]:
    """Return the limits as rows `of`, `limit`, `value`, `now` for a table; None: the defaults and the router's own."""
    rows: list[dict[str, object]] = []
    shown = config.default if vhost is None else limits.of(vhost)
    for name, value in shown.model_dump(exclude_none=True).items():
        now = limits.count(vhost) if vhost is not None and name.startswith("connections") else None
        rows.append({"of": "default" if vhost is None else vhost, "limit": name, "value": value, "now": now})
    if vhost is None:
        if config.connections is not None:
            rows.append(
                {"of": "router", "limit": "connections", "value": config.connections, "now": limits.all_connections}
            )
        if config.unauthenticated_per_address is not None:
            rows.append(
                {
                    "of": "address",
                    "limit": "unauthenticated_per_address",
                    "value": config.unauthenticated_per_address,
                    "now": None,
                }
            )
        if config.connection_rate_per_address is not None:
            rows.append(
                {
                    "of": "address",
                    "limit": "connection_rate_per_address",
                    "value": config.connection_rate_per_address,
                    "now": None,
                }
            )
        rows.append({"of": "router", "limit": "alarm_only", "value": config.alarm_only, "now": None})
    return rows
