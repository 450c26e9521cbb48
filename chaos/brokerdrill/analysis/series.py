"""What the report draws, from the stages' partial results: counts and latencies over time, roles, faults, phases,
outages, failovers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import duckdb

from brokerdrill.analysis.activity import client_spans, clients
from brokerdrill.analysis.measures import bucket_ns, quantiles
from brokerdrill.analysis.routes import routes
from brokerdrill.analysis.timeline import Timeline

_SHOWN = {"p50": 0.5, "p99": 0.99}


def series_of(
    base: duckdb.DuckDBPyConnection, times: Mapping[int, Timeline], results: Mapping[int, Mapping[str, Any]]
) -> dict[int, dict[str, Any]]:
    """Return each run's series, JSON-able, by its number; times are run time in ns, latencies ms. `base` has the
    partial results and the table `bins` (`judge.database`).

    bucket_ns; buckets: {start_ns, sends (acknowledged), deliveries, send_p50_ms, send_p99_ms, send_max_ms (of a send,
    in a transaction of its commit), delivery_p50_ms, ... (from the start of the send to the message's first delivery)},
    empty ones left out; roles: {instance, store, value, start_ns, end_ns, uncertainty_ns}; faults:
    {name, target, instance, store, start_ns, end_ns, uncertainty_ns, healed}; phases: {name, start_ns, end_ns};
    failbacks: {instance, store, fault, start_ns, end_ns}; endings (of processes): {instance, at_ns, how, status, last,
    meant}; alerts (while they fired): {name, instance, store, start_ns, end_ns, uncertainty_ns, cleared}; clients
    (`activity.client_spans`) and client_count, how many the run has; routes (`routes.routes`), null where nobody was
    led; outages and failover as in the verdict; end_ns.
    """
    width = {run: bucket_ns(one.run_end) for run, one in times.items()}
    buckets = _buckets(base)
    active = clients(base, width)
    led = routes(base, {run: one.pooled for run, one in times.items()})
    return {
        run: {
            "bucket_ns": width[run],
            "buckets": [{"start_ns": start, **buckets[run][start]} for start in sorted(buckets[run])],
            **_spans(times[run]),
            "clients": client_spans(active[run].rows, width[run]),
            "client_count": active[run].count,
            "routes": led.get(run),
            "outages": list(results[run]["outages"]),
            "failover": list(results[run]["failover"]),
            "end_ns": times[run].run_end,
        }
        for run in results
    }


def _buckets(base: duckdb.DuckDBPyConnection) -> dict[int, dict[int, dict[str, Any]]]:
    """What ended in each bucket, by run and the bucket's start. A commit's latency is a send's: its client waits for
    that."""
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


def _spans(times: Timeline) -> dict[str, list[dict[str, Any]]]:
    """The parts that events alone tell."""
    roles: list[dict[str, Any]] = []
    running: dict[str, dict[str, Any]] = {}
    for change in times.roles:
        span = {
            "instance": change.instance,
            "store": change.store,
            "value": change.value,
            "start_ns": change.at,
            "end_ns": times.run_end,
            "uncertainty_ns": change.u,
        }
        before = running.get(change.instance or "")
        if before is not None:
            before["end_ns"] = change.at
        running[change.instance or ""] = span
        roles.append(span)
    drain = (
        []
        if times.drain_begin is None
        else [{"name": "drain", "start_ns": times.drain_begin, "end_ns": times.drain_end or times.run_end}]
    )
    return {
        "roles": roles,
        "faults": [
            {
                "name": fault.name,
                "target": fault.target,
                "instance": fault.instance,
                "store": fault.store,
                "start_ns": fault.at,
                "end_ns": times.run_end if fault.healed_at is None else fault.healed_at,
                "uncertainty_ns": fault.u,
                "healed": fault.healed_at is not None,
            }
            for fault in times.faults
        ],
        "phases": [{"name": "load", "start_ns": start, "end_ns": end} for start, end in times.loads] + drain,
        "failbacks": [
            {
                "instance": back.instance,
                "store": back.store,
                "fault": back.name,
                "start_ns": back.healed_at,
                "end_ns": back.back_at,
            }
            for back in times.failbacks
        ],
        "endings": [
            {
                "instance": one.instance,
                "at_ns": one.at,
                "how": one.how,
                "status": one.status,
                "last": one.last,
                "meant": one.meant,
            }
            for one in times.endings
        ],
        "alerts": [
            {
                "name": one.name,
                "instance": one.instance,
                "store": one.store,
                "start_ns": one.at,
                "end_ns": times.run_end if one.cleared_at is None else one.cleared_at,
                "uncertainty_ns": one.at_u,
                "cleared": one.cleared_at is not None,
            }
            for one in times.alerts
        ],
    }
