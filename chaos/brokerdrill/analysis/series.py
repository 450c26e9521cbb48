"""What the report draws, aggregated by Spark: counts and latencies over time, roles, faults, phases, outages,
failovers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from brokerdrill.analysis.activity import client_spans
from brokerdrill.analysis.measures import quantiles
from brokerdrill.analysis.timeline import Timeline

SECOND_NS = 1_000_000_000
MOST_BUCKETS = 600
_SHOWN = {"p50": 0.5, "p99": 0.99}
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)


def bucket_ns(run_end: int) -> int:
    """Return the width of a bucket (ns): the first round number of seconds by which a run needs at most 600."""
    seconds = next((s for s in _STEPS if run_end <= s * SECOND_NS * MOST_BUCKETS), None)
    return int((seconds or -(-run_end // (SECOND_NS * MOST_BUCKETS))) * SECOND_NS)


def widths(times: Mapping[str, Timeline]) -> dict[str, int]:
    """Return the width of each run's buckets (ns)."""
    return {key: bucket_ns(one.run_end) for key, one in times.items()}


def series_of(
    bins: DataFrame,
    active: DataFrame,
    times: Mapping[str, Timeline],
    results: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Return each run's series, JSON-able, by its key; times are run time in ns, latencies ms. `bins` is of
    `measures.histogram` and `active` of `activity.activity` with these runs' `widths`.

    bucket_ns; buckets: {start_ns, sends (acknowledged), deliveries, send_p50_ms, send_p99_ms, send_max_ms (of a send,
    in a transaction of its commit), delivery_p50_ms, ... (from the start of the send to the message's first delivery)},
    empty ones left out; roles: {instance, store, value, start_ns, end_ns, uncertainty_ns}; faults:
    {name, target, instance, store, start_ns, end_ns, uncertainty_ns, healed}; phases: {name, start_ns, end_ns};
    failbacks: {instance, store, fault, start_ns, end_ns}; clients (`activity.client_spans`) and client_count, how many
    the run has; outages and failover as in the verdict; end_ns.
    """
    buckets: dict[str, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for row in _buckets(bins).collect():
        bucket = buckets[row.run_id][row.start_ns]
        bucket["sends" if row.side == "send" else "deliveries"] = row.n
        for name, value in zip(_SHOWN, row.quantiles or [None] * len(_SHOWN), strict=True):
            bucket[f"{row.side}_{name}_ms"] = value
        bucket[f"{row.side}_max_ms"] = row.longest
    width = widths(times)
    clients: dict[str, list[Row]] = defaultdict(list)
    for row in active.collect():
        clients[row.run_id].append(row)
    return {
        key: {
            "bucket_ns": width[key],
            "buckets": [{"start_ns": start, **buckets[key][start]} for start in sorted(buckets[key])],
            **_spans(times[key]),
            "clients": client_spans(clients[key], width[key]),
            "client_count": max((row.clients for row in clients[key]), default=0),
            "outages": list(results[key]["outages"]),
            "failover": list(results[key]["failover"]),
            "end_ns": times[key].run_end,
        }
        for key in results
    }


def _buckets(bins: DataFrame) -> DataFrame:
    """run_id, side, start_ns, n, quantiles (ms, p50 and p99), longest (ms): one row for each bucket and side in which
    something ended. A commit's latency is a send's: its client waits for that."""
    return bins.groupBy(
        "run_id", "start_ns", F.when(F.col("kind") == "receive", "delivery").otherwise("send").alias("side")
    ).agg(
        F.sum("n").alias("n"),
        quantiles(_SHOWN.values()).alias("quantiles"),
        F.max("longest").alias("longest"),
    )


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
    }
