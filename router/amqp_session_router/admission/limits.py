"""Limits: connection rates, connections, data rates, unauthenticated connections of an address, frame size.

Each limit has a value that refuses or delays and one that only warns; with `alarm_only` every limit only warns. Counts
survive a reload. Memory is bounded by live connections, not by the names that clients make up.

Of several workers each counts its own and publishes to the others (`other_workers`) what a limit looks at. A worker
enters what it is about to admit before it looks at what the others have, so that two never both take the last place; at
worst both are refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType

from amqp_session_router.admission.address_limits import AddressLimits, Source
from amqp_session_router.admission.backend_places import BackendPlaces
from amqp_session_router.admission.buckets import Buckets, Clock
from amqp_session_router.admission.connection_counts import BY_USER, ConnectionCounts
from amqp_session_router.admission.denials import Denials
from amqp_session_router.admission.effective_limits import EffectiveLimits
from amqp_session_router.admission.other_workers import ROUTER, Exchange, Others
from amqp_session_router.admission.vhost_limits import VhostCounts
from amqp_session_router.admission.violations import Violations
from amqp_session_router.base.model import CONNECTION_FORCED, Backend, Listener, Refusal
from amqp_session_router.config.schema import ConnectionLimits, LimitsPart


class VhostLease:
    """One connection's share of the limits; see `model.Lease`."""

    __slots__ = ("_authenticated", "_backend", "_buckets", "_limiter", "_released", "_source", "_user", "_vhost")

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._buckets: Buckets | None = None
        """Its own; None until its bytes are counted."""
        self._source: Source | None = None
        """What it is counted as while it is not authenticated."""
        self._vhost: str | None = None
        self._user = ""
        """Of whom it is counted, with the vhost."""
        self._backend: str | None = None
        """Where it has a place."""
        self._authenticated = False
        self._released = False

    @property
    def metered(self) -> bool:
        """Whether the vhost or its connections have a data rate, by limit or alarm."""
        if self._vhost is None:
            return False
        limits = self._limiter.effective.of(self._vhost)
        return (
            limits.data_rate is not None
            or limits.data_rate_alarm is not None
            or limits.connection_data_rate is not None
            or limits.connection_data_rate_alarm is not None
        )

    def identify(self, source_ip: str) -> Refusal | None:
        """Count the connection as a new and unauthenticated one of its client's address; on a Refusal it is not
        counted as unauthenticated."""
        addresses = self._limiter.addresses
        source = addresses.counted_as(source_ip)
        return addresses.arriving(source) or self._count_as((source, ""))

    def wait(self, vhost: str) -> Refusal | None:
        """Count it as one that waits for the paused `vhost`, no longer as one of its address; see `identify`."""
        return None if self._source is None else self._count_as((self._source[0], vhost))

    def _count_as(self, source: Source) -> Refusal | None:
        if self._authenticated or self._released or source == self._source:
            return None
        refusal = self._limiter.addresses.handshake_begins(source)
        if refusal is None:
            if self._source is not None:
                self._limiter.addresses.handshake_done(self._source)
            self._source = source
        return refusal

    def occupy(self, backend: str) -> bool:
        """Take a place at the backend of this name instead of the one before; returns whether there was one."""
        self.vacate()
        if self._released or not self._limiter.places.take(backend):
            return False
        self._backend = backend
        return True

    def vacate(self) -> None:
        """Give its place at a backend back. Idempotent."""
        if self._backend is not None:
            self._limiter.places.left(self._backend)
            self._backend = None

    def adopt(self, vhost: str, user: str, backend: str) -> None:
        """Count an open connection that another process admitted: no limit refuses it."""
        self._authenticated = True
        self._vhost, self._user = vhost, user
        self._limiter.vhosts.adopted(vhost)
        self._limiter.users.adopted(user)
        self._backend = backend
        self._limiter.places.adopted(backend)

    def may_open(self, vhost: str, user: str) -> Refusal | None:
        """Return why no connection of `user` may come to `vhost` now; nothing is counted but the Refusal."""
        return self._limiter.vhosts.full(vhost, user) or self._limiter.users.full(user, vhost)

    def open(self, vhost: str, user: str) -> Refusal | None:
        """Count the connection on `vhost` and `user`, whose broker has let it in; on a Refusal it is not counted
        there."""
        if self._vhost is not None or self._released:
            return None
        refusal = self._limiter.vhosts.opening(vhost, user)
        if refusal is not None:
            return refusal
        refusal = self._limiter.users.opening(user, vhost)
        if refusal is None:
            self._vhost, self._user = vhost, user
        else:
            self._limiter.vhosts.left(vhost)
        return refusal

    def authenticated(self) -> None:
        """No longer an unauthenticated connection of its address."""
        if not self._authenticated and not self._released:
            self._authenticated = True
            if self._source is not None:
                self._limiter.addresses.handshake_done(self._source)

    def take(self, nbytes: int) -> float:
        """Record `nbytes` from the client; returns the seconds to wait before reading on."""
        if self._vhost is None:
            return 0.0
        if self._buckets is None:
            self._buckets = {}
        return self._limiter.vhosts.data(self._vhost, self._buckets, nbytes)

    def release(self) -> None:
        """Give everything back. Idempotent."""
        if self._released:
            return
        self.authenticated()
        self.vacate()
        self._released = True
        self._limiter.left(self._vhost, self._user)


class Limiter:
    """The limits of one router; see `model.Limits`. It counts the router's connections; its parts those of addresses,
    vhosts and users."""

    def __init__(self, limits: LimitsPart, clock: Clock = time.monotonic, others: Others | None = None) -> None:
        """Nothing is published to the `others` (None: there is one worker only) before `publish_all`: see
        `Exchange`."""
        self.effective = EffectiveLimits(limits)
        self._exchange = Exchange(others, clock)
        self.violations = Violations(self.effective, clock)
        self.addresses = AddressLimits(self.effective, self._exchange, self.violations)
        self.vhosts = VhostCounts(self.effective, self._exchange, self.violations)
        self.users = ConnectionCounts(BY_USER, self.effective.of_user, self._exchange, self.violations)
        self.places = BackendPlaces(self._exchange, self.violations)
        self.connections = 0
        self.denials = Denials(clock)

    def denies(self, listener: Listener, source_ip: str) -> bool:
        """See `model.Limits`."""
        if not listener.gate.keeps_out(source_ip):
            return False
        self.denials.denied(listener.name, source_ip)
        return True

    def apply(self, limits: LimitsPart, backends: Mapping[str, Backend] = MappingProxyType({})) -> None:
        """Go by new limits from here on, and by the most of these backends; what is counted stays."""
        self.effective.apply(limits)
        self.places.apply(backends)
        if self._exchange.publishes:
            self.publish_all()

    def publish_all(self) -> None:
        """Publish all counts that the other workers have to know, and from here on each change."""
        router = {} if self.effective.router.connections is None else {(ROUTER, ""): self.connections}
        counts = router | self.addresses.counts() | self.vhosts.counts() | self.users.counts() | self.places.counts()
        self._exchange.publish_all(counts)

    @property
    def all_connections(self) -> int:
        """The connections of all workers."""
        return self.connections + self._exchange.count(ROUTER, "")

    def accept(self, source_ip: str | None) -> VhostLease | Refusal:
        """Count a new connection; on a Refusal nothing was counted. None: its client's address is not known yet."""
        most = self.effective.router.connections
        self._count(1)
        refusal: Refusal | None = None
        if (
            most is not None
            and self.all_connections > most
            and self.violations.has_effect("connections of the router", "", f"all {most} connections are in use")
        ):
            refusal = Refusal(CONNECTION_FORCED, f"the router's limit of {most} connections is reached")
        lease = VhostLease(self)
        if refusal is None and source_ip is not None:
            refusal = lease.identify(source_ip)
        if refusal is not None:
            self._count(-1)
            return refusal
        return lease

    def adopt(self, vhost: str, user: str, backend: str) -> VhostLease:
        """Count an open connection of `user` to `vhost` at `backend`, which another process admitted: no limit refuses
        it."""
        self._count(1)
        lease = VhostLease(self)
        lease.adopt(vhost, user, backend)
        return lease

    def left(self, vhost: str | None, user: str) -> None:
        """One connection less; of `vhost` and `user` too if it was counted there."""
        self._count(-1)
        if vhost is not None:
            self.vhosts.left(vhost)
            self.users.left(user)

    def _count(self, more: int) -> None:
        self.connections += more
        if self.effective.router.connections is not None:
            self._exchange.publish(ROUTER, "", self.connections)

    def largest_frame(self, vhost: str | None) -> int:
        """Return the most bytes of a client's frame on `vhost` (None: before Open); 0: no limit of ours."""
        return (self.effective.router.default if vhost is None else self.effective.of(vhost)).frame_max or 0


def describe(limits: Limiter, config: LimitsPart, vhost: str | None) -> list[dict[str, object]]:
    """Return the limits as rows `of`, `limit`, `value`, `now` for a table; None: the defaults and the router's own."""
    if vhost is not None:
        rows = _rows(vhost, limits.effective.of(vhost), limits.vhosts.count(vhost))
    else:
        rows = _rows("default", config.default, None) + _rows("default of users", config.users.default, None)
        own = (
            ("router", "connections", config.connections, limits.all_connections),
            ("address", "unauthenticated_per_address", config.unauthenticated_per_address, None),
            ("address", "connection_rate_per_address", config.connection_rate_per_address, None),
            ("router", "alarm_only", config.alarm_only, None),
        )
        rows += [
            {"of": of, "limit": name, "value": value, "now": now} for of, name, value, now in own if value is not None
        ]
    return rows


def describe_user(limits: Limiter, user: str) -> list[dict[str, object]]:
    """Return the limits of `user` as `describe` does those of a vhost."""
    return _rows(user, limits.effective.of_user(user), limits.users.count(user))


def _rows(of: str, shown: ConnectionLimits, count: int | None) -> list[dict[str, object]]:
    """Return a row for each limit that is set; `count`: the connections there are now."""
    return [
        {"of": of, "limit": name, "value": value, "now": count if name.startswith("connections") else None}
        for name, value in shown.model_dump(exclude_none=True).items()
    ]
