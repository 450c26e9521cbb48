"""What a report draws of a run over time: the typed values that the analysis makes and pictures show.

Times are run time in ns, latencies ms. Everything may be missing in what is read: a run without a send, or one that
another tool recorded, has empty parts. A text that is not known is "", and null in the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from brokerdrill.ledger.rows import Json, JsonRow, objects
from brokerdrill.ledger.verdict import Failover, Outage

S = TypeVar("S", bound="_Span")


class _Row(JsonRow):
    """A row whose texts are null in the JSON where they are not known."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {name: None if value == "" else value for name, value in super().to_json().items()}


class _Span(_Row):
    """A row with a time; one that has no end lasts to the run's."""

    @classmethod
    def until(cls: type[S], row: Json, end_ns: int) -> S:
        """Return the span of a JSON object in a run that ends at `end_ns`."""
        return cls.from_json({**row, "end_ns": end_ns} if row.get("end_ns") is None else row)


@dataclass(frozen=True)
class Bucket(JsonRow):
    """What was acknowledged and delivered from `start_ns` on for one bucket. Latencies of a send (in a transaction of
    its commit) and from the send's start to the message's first delivery; None where nothing ended that has one."""

    start_ns: int = 0
    sends: int = 0
    deliveries: int = 0
    send_p50_ms: float | None = None
    send_p99_ms: float | None = None
    send_max_ms: float | None = None
    delivery_p50_ms: float | None = None
    delivery_p99_ms: float | None = None
    delivery_max_ms: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, without a side on which nothing ended."""
        row = super().to_json()
        for side, counted in (("send", "sends"), ("delivery", "deliveries")):
            if not row[counted] and row[f"{side}_max_ms"] is None:
                row = {
                    name: value for name, value in row.items() if name != counted and not name.startswith(f"{side}_")
                }
        return row


@dataclass(frozen=True)
class RoleSpan(_Span):
    """One instance's role from `start_ns` to `end_ns`."""

    instance: str = ""
    store: str = ""
    value: str = ""
    start_ns: int = 0
    end_ns: int = 0
    uncertainty_ns: int = 0


@dataclass(frozen=True)
class FaultSpan(_Row):
    """A fault's time in effect: whom it hit, and whether it was `healed` within the run."""

    name: str = ""
    target: str = ""
    instance: str = ""
    store: str = ""
    start_ns: int = 0
    end_ns: int = 0
    uncertainty_ns: int = 0
    healed: bool = True

    @classmethod
    def until(cls, row: Json, end_ns: int) -> FaultSpan:
        """Return the fault of a JSON object in a run that ends at `end_ns`; one without an end was not healed."""
        end = row.get("end_ns")
        return cls.picked(
            row,
            end_ns=max(int(row.get("start_ns") or 0), end_ns if end is None else int(end)),
            healed=bool(row.get("healed", end is not None)),
        )


@dataclass(frozen=True)
class PhaseSpan(_Span):
    """A phase of the run: load or drain."""

    name: str = ""
    start_ns: int = 0
    end_ns: int = 0


@dataclass(frozen=True)
class FailbackSpan(_Row):
    """From the heal of a fault (its type) on a store's original instance to its being active again (None: never)."""

    instance: str = ""
    store: str = ""
    fault: str = ""
    start_ns: int = 0
    end_ns: int | None = None


@dataclass(frozen=True)
class EndingMark(_Row):
    """The end of one instance's process: `how`, its status or signal, and its last lines; `meant` by the drill."""

    instance: str = ""
    at_ns: int = 0
    how: str = ""
    status: str = ""
    last: str = ""
    meant: bool = False


@dataclass(frozen=True)
class AlertSpan(_Span):
    """A time in which an alert fired, of an instance or a store ("": of no certain one); `cleared` within the run."""

    name: str = ""
    instance: str = ""
    store: str = ""
    start_ns: int = 0
    end_ns: int = 0
    uncertainty_ns: int = 0
    cleared: bool = False


@dataclass(frozen=True)
class ClientSpan(_Span):
    """A time in which one client was `served`, or in which operations of it `failed` or were in doubt."""

    client: str = ""
    value: str = ""
    start_ns: int = 0
    end_ns: int = 0
    failures: int = 0


@dataclass(frozen=True)
class RoutedStore(JsonRow):
    """A store, how many `keys` were first led to it, how many `connects` reached it and with how many of these
    (`moves`) a key came from another one. A store that is not known is ""."""

    store: str = ""
    keys: int = 0
    connects: int = 0
    moves: int = 0


@dataclass(frozen=True)
class Stay(JsonRow):
    """A time in which all connects of a routing key, `connects` of them, reached one store."""

    key: str = ""
    store: str = ""
    start_ns: int = 0
    end_ns: int = 0
    connects: int = 0


@dataclass(frozen=True)
class Spread(JsonRow):
    """How evenly keys were led: `chi_square` and `p` of their first stores against an even choice, `most` the fullest
    store's part over an even one."""

    chi_square: float | None = None
    p: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Routes(JsonRow):
    """Whom routing keys were led to: totals, by store, and when (of some keys). Of the keys that moved at all,
    `excused` have excused moves only; `spread` None: there is one store."""

    keys: int = 0
    connects: int = 0
    moves: int = 0
    excused: int = 0
    unexcused: int = 0
    stores: tuple[RoutedStore, ...] = ()
    spread: Spread | None = None
    stays: tuple[Stay, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        row = super().to_json()
        moved = {name: row.pop(name) for name in ("excused", "unexcused")}
        return row | {"moved": moved, "spans": row.pop("stays")}

    @classmethod
    def from_json(cls, row: Json) -> Routes:
        """Return the routes of a JSON object."""
        moved = row.get("moved") or {}
        spread = row.get("spread")
        return cls.picked(
            row,
            excused=moved.get("excused") or 0,
            unexcused=moved.get("unexcused") or 0,
            stores=tuple(map(RoutedStore.from_json, objects(row.get("stores")))),
            spread=Spread.from_json(spread) if spread else None,
            stays=tuple(map(Stay.from_json, objects(row.get("spans")))),
        )


@dataclass(frozen=True)
class Series(JsonRow):
    """All that the pictures show: buckets by time, without those in which nothing ended; the clients to look at, of
    `client_count`; `routes` None: nobody was led. Outages and failovers are the verdict's."""

    bucket_ns: int = 1_000_000_000
    buckets: tuple[Bucket, ...] = ()
    roles: tuple[RoleSpan, ...] = ()
    faults: tuple[FaultSpan, ...] = ()
    phases: tuple[PhaseSpan, ...] = ()
    failbacks: tuple[FailbackSpan, ...] = ()
    endings: tuple[EndingMark, ...] = ()
    alerts: tuple[AlertSpan, ...] = ()
    clients: tuple[ClientSpan, ...] = ()
    client_count: int = 0
    routes: Routes | None = None
    outages: tuple[Outage, ...] = ()
    failover: tuple[Failover, ...] = ()
    end_ns: int = 0

    @classmethod
    def from_json(cls, row: Json) -> Series:
        """Return the series of a JSON object."""
        buckets = tuple(map(Bucket.from_json, objects(row.get("buckets"))))
        bucket_ns = max(1, int(row.get("bucket_ns") or cls.bucket_ns))
        end = _end_of_run(row, [bucket.start_ns + bucket_ns for bucket in buckets])
        return cls(
            bucket_ns=bucket_ns,
            buckets=buckets,
            roles=tuple(RoleSpan.until(one, end) for one in objects(row.get("roles"))),
            faults=tuple(FaultSpan.until(one, end) for one in objects(row.get("faults"))),
            phases=tuple(PhaseSpan.until(one, end) for one in objects(row.get("phases"))),
            failbacks=tuple(map(FailbackSpan.from_json, objects(row.get("failbacks")))),
            endings=tuple(map(EndingMark.from_json, objects(row.get("endings")))),
            alerts=tuple(AlertSpan.until(one, end) for one in objects(row.get("alerts"))),
            clients=tuple(ClientSpan.until(one, end) for one in objects(row.get("clients"))),
            client_count=int(row.get("client_count") or 0),
            routes=Routes.from_json(row["routes"]) if row.get("routes") else None,
            outages=tuple(map(Outage.from_json, objects(row.get("outages")))),
            failover=tuple(map(Failover.from_json, objects(row.get("failover")))),
            end_ns=end,
        )


def _end_of_run(row: Mapping[str, Any], ends: Sequence[int]) -> int:
    """When a run ended: as its series says, else with the last thing in it."""
    if row.get("end_ns") is not None:
        return int(row["end_ns"])
    spans = (one for name in ("roles", "faults", "phases") for one in objects(row.get(name)))
    return max([*ends, *(int(one.get("end_ns") or 0) for one in spans), 0])
