"""The aggregates behind the pictures, as the analysis hands them over, in one typed shape.

    {"end_ns": run's end, "bucket_ns": length of a bucket,
     "buckets": [{"start_ns", "sends", "deliveries", "send_p50_ms", "send_p99_ms", "send_max_ms",
                  "delivery_p50_ms", "delivery_p99_ms", "delivery_max_ms"}],
     "roles": [{"instance", "store", "value", "start_ns", "end_ns", "uncertainty_ns"}],
     "faults": [{"name", "target", "instance", "start_ns", "end_ns", "healed"}],
     "phases": [{"name", "start_ns", "end_ns"}],
     "failbacks": [{"instance", "store", "fault", "start_ns", "end_ns" (null: not active again)}],
     "endings": [{"instance", "at_ns", "how", "status", "last", "meant"}],
     "alerts": [{"name", "instance", "store", "start_ns", "end_ns", "cleared"}],
     "clients": [{"client", "value" (served, failed), "start_ns", "end_ns", "failures"}], "client_count": of the run,
     "routes": {"keys", "connects", "moves", "moved": {"excused", "unexcused"},
                "stores": [{"store", "keys", "connects", "moves"}], "spread": {"chi_square", "p", "most"},
                "spans": [{"key", "store", "start_ns", "end_ns", "connects"}]}}

Everything here is optional: a run without a send, or one that another tool recorded, has empty parts, and a picture
without data is left out. Buckets in which nothing happened may be left out too. Times are run time in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brokerdrill.ledger.verdict import Failover, Outage, RunVerdict

NUMBERS = (
    "sends",
    "deliveries",
    "send_p50_ms",
    "send_p99_ms",
    "send_max_ms",
    "delivery_p50_ms",
    "delivery_p99_ms",
    "delivery_max_ms",
)


@dataclass(frozen=True)
class Bucket:
    """What was acknowledged and delivered from `start_ns` on for one bucket; latencies null where nothing ended."""

    start_ns: int
    sends: int = 0
    deliveries: int = 0
    send_p50_ms: float | None = None
    send_p99_ms: float | None = None
    send_max_ms: float | None = None
    delivery_p50_ms: float | None = None
    delivery_p99_ms: float | None = None
    delivery_max_ms: float | None = None


@dataclass(frozen=True)
class RoleSpan:
    """One instance's role from `start_ns` to `end_ns`."""

    instance: str
    store: str
    value: str
    start_ns: int
    end_ns: int
    uncertainty_ns: int = 0


@dataclass(frozen=True)
class Band:
    """One fault's time in effect; several changes of one step (say two of three hosts) share their `mark`."""

    mark: str
    name: str
    target: str
    instance: str
    start_ns: int
    end_ns: int
    healed: bool = True


@dataclass(frozen=True)
class Phase:
    """A phase of the run: load or drain."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Ending:
    """The end of one instance's process: `how`, its status or signal, and its last lines; `meant` by the drill."""

    instance: str
    at_ns: int
    how: str
    status: str = ""
    last: str = ""
    meant: bool = False


@dataclass(frozen=True)
class AlertSpan:
    """A time in which an alert fired, of an instance or a store ("": of no certain one); `cleared` within the run."""

    name: str
    instance: str
    store: str
    start_ns: int
    end_ns: int
    cleared: bool = True


@dataclass(frozen=True)
class ClientSpan:
    """A time in which one client was `served`, or in which operations of it `failed` or were in doubt."""

    client: str
    value: str
    start_ns: int
    end_ns: int
    failures: int = 0


@dataclass(frozen=True)
class Stay:
    """A time in which all connects of a routing key, `connects` of them, reached one store."""

    key: str
    store: str
    start_ns: int
    end_ns: int
    connects: int


@dataclass(frozen=True)
class RoutedStore:
    """A store, how many `keys` were first led to it, how many `connects` reached it and with how many of these
    (`moves`) a key came from another one."""

    store: str
    keys: int
    connects: int
    moves: int


@dataclass(frozen=True)
class Routes:
    """Whom routing keys were led to: totals, by store, and when (of some keys); of the keys that moved at all,
    `excused` have excused moves only; `chi_square` and `p` of the keys' first stores against an even choice, `most` the
    fullest store's part over an even one."""

    keys: int
    connects: int
    moves: int
    stores: tuple[RoutedStore, ...]
    stays: tuple[Stay, ...]
    chi_square: float | None = None
    p: float | None = None
    most: float | None = None
    excused: int = 0
    unexcused: int = 0


@dataclass(frozen=True)
class Series:
    """All that the pictures show."""

    bucket_ns: int = 1_000_000_000
    buckets: tuple[Bucket, ...] = ()
    roles: tuple[RoleSpan, ...] = ()
    bands: tuple[Band, ...] = ()
    phases: tuple[Phase, ...] = ()
    clients: tuple[ClientSpan, ...] = ()
    client_count: int = 0
    routes: Routes | None = None
    outages: tuple[Outage, ...] = ()
    failover: tuple[Failover, ...] = ()
    failbacks: tuple[Mapping[str, Any], ...] = ()
    endings: tuple[Ending, ...] = ()
    alerts: tuple[AlertSpan, ...] = ()
    end_ns: int = 0


# Changes of one fault take effect on several hosts within this time of each other.
SAME_FAULT_NS = 2_000_000_000
# More is not filled: the analysis makes at most 600.
MAX_BUCKETS = 10_000


def _int(value: Any, default: int = 0) -> int:
    return default if value is None else int(value)


def _end_of_run(series: Mapping[str, Any], starts: Iterable[int]) -> int:
    if series.get("end_ns") is not None:
        return int(series["end_ns"])
    ends = [_int(item.get("end_ns")) for key in ("roles", "faults", "phases") for item in series.get(key) or ()]
    return max([*ends, *starts, 0])


def mark_faults(faults: Sequence[Mapping[str, Any]], end_ns: int) -> tuple[Band, ...]:
    """Return the faults in order of time, numbered F1, F2, …; one fault on several targets at once has one number."""
    bands: list[Band] = []
    number = 0
    for fault in sorted(faults, key=lambda item: _int(item.get("start_ns"))):
        start = _int(fault.get("start_ns"))
        name = str(fault.get("name") or "fault")
        if not (bands and bands[-1].name == name and start - bands[-1].start_ns < SAME_FAULT_NS):
            number += 1
        end = fault.get("end_ns")
        bands.append(
            Band(
                mark=f"F{number}",
                name=name,
                target=str(fault.get("target") or fault.get("instance") or ""),
                instance=str(fault.get("instance") or ""),
                start_ns=start,
                end_ns=max(start, _int(end, end_ns)),
                healed=bool(fault.get("healed", end is not None)),
            )
        )
    return tuple(bands)


def _without_gaps(buckets: Sequence[Bucket], bucket_ns: int, end_ns: int) -> tuple[Bucket, ...]:
    """Return `buckets` in order, with an empty one wherever nothing happened, so that an outage is seen as such."""
    if not buckets:
        return ()
    known = {bucket.start_ns // bucket_ns: bucket for bucket in buckets}
    last = max(max(known), (end_ns - 1) // bucket_ns)
    if last - min(known) >= MAX_BUCKETS:
        return tuple(known[index] for index in sorted(known))
    offset = min(bucket.start_ns for bucket in buckets) % bucket_ns
    first = min(0, min(known))
    return tuple(known.get(index) or Bucket(index * bucket_ns + offset) for index in range(first, last + 1))


def _routes(found: Mapping[str, Any] | None) -> Routes | None:
    if not found:
        return None
    spread = found.get("spread") or {}
    return Routes(
        keys=_int(found.get("keys")),
        connects=_int(found.get("connects")),
        moves=_int(found.get("moves")),
        stores=tuple(
            RoutedStore(
                store=str(row.get("store") or ""),
                keys=_int(row.get("keys")),
                connects=_int(row.get("connects")),
                moves=_int(row.get("moves")),
            )
            for row in found.get("stores") or ()
        ),
        stays=tuple(
            Stay(
                key=str(row.get("key") or ""),
                store=str(row.get("store") or ""),
                start_ns=_int(row.get("start_ns")),
                end_ns=_int(row.get("end_ns")),
                connects=_int(row.get("connects")),
            )
            for row in found.get("spans") or ()
        ),
        chi_square=spread.get("chi_square"),
        p=spread.get("p"),
        most=spread.get("most"),
        **{kind: _int((found.get("moved") or {}).get(kind)) for kind in ("excused", "unexcused")},
    )


def from_json(series: Mapping[str, Any], result: RunVerdict) -> Series:
    """Return the `Series` of the analysis' dictionary, with the outages and failovers of the verdict."""
    buckets = tuple(
        Bucket(
            start_ns=_int(row.get("start_ns")),
            **{name: row[name] for name in NUMBERS if row.get(name) is not None},
        )
        for row in series.get("buckets") or ()
    )
    bucket_ns = max(1, _int(series.get("bucket_ns"), 1_000_000_000))
    end_ns = _end_of_run(series, (bucket.start_ns + bucket_ns for bucket in buckets))
    return Series(
        bucket_ns=bucket_ns,
        buckets=_without_gaps(buckets, bucket_ns, end_ns),
        roles=tuple(
            RoleSpan(
                instance=str(row.get("instance") or ""),
                store=str(row.get("store") or ""),
                value=str(row.get("value") or ""),
                start_ns=_int(row.get("start_ns")),
                end_ns=_int(row.get("end_ns"), end_ns),
                uncertainty_ns=_int(row.get("uncertainty_ns")),
            )
            for row in series.get("roles") or ()
        ),
        bands=mark_faults(series.get("faults") or (), end_ns),
        phases=tuple(
            Phase(str(row.get("name") or ""), _int(row.get("start_ns")), _int(row.get("end_ns"), end_ns))
            for row in series.get("phases") or ()
        ),
        clients=tuple(
            ClientSpan(
                str(row.get("client") or ""),
                str(row.get("value") or ""),
                _int(row.get("start_ns")),
                _int(row.get("end_ns"), end_ns),
                _int(row.get("failures")),
            )
            for row in series.get("clients") or ()
        ),
        client_count=_int(series.get("client_count")),
        routes=_routes(series.get("routes")),
        outages=result.outages,
        failover=result.failover,
        failbacks=tuple(series.get("failbacks") or ()),
        endings=tuple(
            Ending(
                str(row.get("instance") or ""),
                _int(row.get("at_ns")),
                str(row.get("how") or "ended"),
                str(row.get("status") or ""),
                str(row.get("last") or ""),
                bool(row.get("meant")),
            )
            for row in series.get("endings") or ()
        ),
        alerts=tuple(
            AlertSpan(
                str(row.get("name") or "alert"),
                str(row.get("instance") or ""),
                str(row.get("store") or ""),
                _int(row.get("start_ns")),
                _int(row.get("end_ns"), end_ns),
                bool(row.get("cleared")),
            )
            for row in series.get("alerts") or ()
        ),
        end_ns=end_ns,
    )
