"""What the report draws, aggregated by Spark: counts and latencies over time, roles, faults, phases, outages,
failovers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerdrill.analysis.tables import Tables, table
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.analysis.units import dead_letter_addresses
from brokerdrill.ledger import RunInfo

SECOND_NS = 1_000_000_000
MOST_BUCKETS = 600
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)


def bucket_ns(run_end: int) -> int:
    """Return the width of a bucket (ns): the first round number of seconds by which a run needs at most 600."""
    seconds = next((s for s in _STEPS if run_end <= s * SECOND_NS * MOST_BUCKETS), None)
    return int((seconds or -(-run_end // (SECOND_NS * MOST_BUCKETS))) * SECOND_NS)


def series_of(
    ops: DataFrame,
    small: Tables,
    runs: Mapping[str, RunInfo],
    times: Mapping[str, Timeline],
    results: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Return each run's series, JSON-able, by its key; times are run time in ns, latencies ms.

    bucket_ns; buckets: {start_ns, sends (acknowledged), deliveries, send_p50_ms, send_p99_ms, send_max_ms (of a send,
    in a transaction of its commit), delivery_p50_ms, ... (from the end of the acknowledged attempt's send to the end
    of the receive)}, empty ones left out; roles: {instance, store, value, start_ns, end_ns, uncertainty_ns}; faults:
    {name, target, instance, store, start_ns, end_ns, uncertainty_ns, healed}; phases: {name, start_ns, end_ns};
    failbacks: {instance, store, fault, start_ns, end_ns}; outages and failover as in the verdict; end_ns.
    """
    spark = ops.sparkSession
    widths = {key: bucket_ns(times[key].run_end) for key in runs}
    width = table(spark, widths.items(), "run_id string, width long")
    buckets: dict[str, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for row in _buckets(ops, small, width).collect():
        bucket = buckets[row.run_id][row.start_ns]
        side = "send" if row.side == "send" else "delivery"
        bucket["sends" if row.side == "send" else "deliveries"] = row.n
        for name in ("p50", "p99", "max"):
            bucket[f"{side}_{name}_ms"] = row[name]
    return {
        key: {
            "bucket_ns": widths[key],
            "buckets": [{"start_ns": start, **buckets[key][start]} for start in sorted(buckets[key])],
            **_spans(times[key]),
            "outages": list(results[key]["outages"]),
            "failover": list(results[key]["failover"]),
            "end_ns": times[key].run_end,
        }
        for key in runs
    }


def _buckets(ops: DataFrame, small: Tables, width: DataFrame) -> DataFrame:
    """run_id, side, start_ns, n, p50, p99, max (ms): one row for each bucket and side in which something ended."""
    acked = ops.where((F.col("op") == "send") & (F.col("attempt_state") == "ok"))
    commits = (
        ops.where((F.col("op") == "commit") & (F.col("outcome") == "ok") & F.col("end").isNotNull())
        .select(
            "run_id", F.col("end").alias("at"), (F.col("end") - F.col("start")).alias("took"), F.lit(0).alias("counted")
        )
        .withColumn("side", F.lit("send"))
    )
    sends = acked.select(
        "run_id",
        F.col("acked_at").alias("at"),
        # The client of a transaction waits for its commit: that is the latency that it sees.
        F.when(F.col("txn").isNull(), F.col("end") - F.col("start")).alias("took"),
        F.lit(1).alias("counted"),
    ).withColumn("side", F.lit("send"))
    received = ops.where((F.col("op") == "receive") & (F.col("outcome") == "ok") & F.col("end").isNotNull()).join(
        dead_letter_addresses(small), ["run_id", "address"], "left_anti"
    )
    sent = acked.groupBy("run_id", "address", "message_id").agg(F.min("end").alias("sent_at"))
    deliveries = (
        received.join(sent, ["run_id", "address", "message_id"], "left")
        .select(
            "run_id",
            F.col("end").alias("at"),
            # Delivered before the send's reply came back (or as clocks disagree): no time at all.
            F.greatest(F.col("end") - F.col("sent_at"), F.when(F.col("sent_at").isNotNull(), F.lit(0))).alias("took"),
            F.lit(1).alias("counted"),
        )
        .withColumn("side", F.lit("delivery"))
    )
    took = F.col("took").cast("double") / F.lit(1e6)
    return (
        sends.unionByName(commits)
        .unionByName(deliveries)
        .where(F.col("at") >= 0)
        .join(F.broadcast(width), "run_id")
        .groupBy("run_id", "side", (F.floor(F.col("at") / F.col("width")) * F.col("width")).alias("start_ns"))
        .agg(
            F.sum("counted").alias("n"),
            F.percentile_approx(took, 0.5, 1000).alias("p50"),
            F.percentile_approx(took, 0.99, 1000).alias("p99"),
            F.max(took).alias("max"),
        )
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
