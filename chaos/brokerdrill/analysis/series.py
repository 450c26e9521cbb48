"""What the report draws, from the stages' partial results and the timeline: counts and latencies over time, roles,
faults, phases, clients, routes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import duckdb

from brokerdrill.analysis.activity import client_spans, clients
from brokerdrill.analysis.measures import bucket_ns, quantiles
from brokerdrill.analysis.routes import routes
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.ledger.series import (
    AlertSpan,
    Bucket,
    EndingMark,
    FailbackSpan,
    FaultSpan,
    PhaseSpan,
    RoleSpan,
    Series,
)
from brokerdrill.ledger.verdict import RunVerdict

_SHOWN = {"p50": 0.5, "p99": 0.99}


def series_of(
    base: duckdb.DuckDBPyConnection, times: Mapping[int, Timeline], results: Mapping[int, RunVerdict]
) -> dict[int, Series]:
    """Return each run's series, by its number. `base` has the partial results and the table `bins`
    (`judge.database`)."""
    width = {run: bucket_ns(one.run_end) for run, one in times.items()}
    buckets = _buckets(base)
    active = clients(base, width)
    led = routes(base, {run: one.pooled for run, one in times.items()})
    return {
        run: Series(
            bucket_ns=width[run],
            buckets=tuple(Bucket(start, **buckets[run][start]) for start in sorted(buckets[run])),
            roles=role_spans(times[run]),
            faults=_faults(times[run]),
            phases=_phases(times[run]),
            failbacks=_failbacks(times[run]),
            endings=_endings(times[run]),
            alerts=_alerts(times[run]),
            clients=client_spans(active[run].rows, width[run]),
            client_count=active[run].count,
            routes=led.get(run),
            outages=result.outages,
            failover=result.failover,
            end_ns=times[run].run_end,
        )
        for run, result in results.items()
    }


def _buckets(base: duckdb.DuckDBPyConnection) -> dict[int, dict[int, dict[str, Any]]]:
    """The numbers of each bucket in which something ended, by run and the bucket's start. A commit's latency is a
    send's: its client waits for that."""
    keys = "run, start_ns, side"
    quantiles(base, keys, _SHOWN.values()).create("bucket_quantiles")
    found: dict[int, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for run, start, side, n, latencies, longest in base.execute(
        f"SELECT b.run, b.start_ns, b.side, sum(b.n)::BIGINT, any_value(q.q), max(b.longest) "
        f"FROM bins b LEFT JOIN bucket_quantiles q USING ({keys}) GROUP BY b.run, b.start_ns, b.side"
    ).fetchall():
        bucket = found[run][start]
        bucket["sends" if side == "send" else "deliveries"] = n
        for name, value in zip(_SHOWN, latencies or [None] * len(_SHOWN), strict=True):
            bucket[f"{side}_{name}_ms"] = value
        bucket[f"{side}_max_ms"] = longest
    return found


def role_spans(times: Timeline) -> tuple[RoleSpan, ...]:
    """Return each instance's roles, by begin: each lasts to the instance's next one, the last to the run's end."""
    spans: list[RoleSpan] = []
    running: dict[str, int] = {}
    for change in times.roles:
        instance = change.instance or ""
        if instance in running:
            spans[running[instance]] = replace(spans[running[instance]], end_ns=change.at)
        running[instance] = len(spans)
        spans.append(
            RoleSpan(
                instance, change.store or "", change.value or "", change.at, times.run_end, uncertainty_ns=change.u
            )
        )
    return tuple(spans)


def _faults(times: Timeline) -> tuple[FaultSpan, ...]:
    return tuple(
        FaultSpan(
            name=fault.name or "",
            target=fault.target or "",
            instance=fault.instance or "",
            store=fault.store or "",
            start_ns=fault.at,
            end_ns=times.run_end if fault.healed_at is None else fault.healed_at,
            uncertainty_ns=fault.u,
            healed=fault.healed_at is not None,
        )
        for fault in times.faults
    )


def _phases(times: Timeline) -> tuple[PhaseSpan, ...]:
    loads = [PhaseSpan("load", start, end) for start, end in times.loads]
    if times.drain_begin is None:
        return tuple(loads)
    return (*loads, PhaseSpan("drain", times.drain_begin, times.drain_end or times.run_end))


def _failbacks(times: Timeline) -> tuple[FailbackSpan, ...]:
    return tuple(
        FailbackSpan(back.instance, back.store, back.name or "", back.healed_at, back.back_at)
        for back in times.failbacks
    )


def _endings(times: Timeline) -> tuple[EndingMark, ...]:
    return tuple(
        EndingMark(one.instance, one.at, one.how or "", one.status or "", one.last or "", one.meant)
        for one in times.endings
    )


def _alerts(times: Timeline) -> tuple[AlertSpan, ...]:
    return tuple(
        AlertSpan(
            name=one.name,
            instance=one.instance or "",
            store=one.store or "",
            start_ns=one.at,
            end_ns=times.run_end if one.cleared_at is None else one.cleared_at,
            uncertainty_ns=one.at_u,
            cleared=one.cleared_at is not None,
        )
        for one in times.alerts
    )
