"""When clients were served and when their operations failed, for the report's timeline: few clients, by the bucket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.spark import cut
from brokerdrill.analysis.tables import table

MOST_CLIENTS = 16
# A client that does little is not taken for one that waits.
SILENCE_NS = 1_000_000_000

_SERVING = ("connect", "send", "receive", "ack", "commit")
# A receive that got nothing and a one-way acknowledgement are no failures.
_FAILING = ("connect", "send", "prepare", "commit", "rollback")


def activity(made: Frames, widths: Mapping[str, int]) -> DataFrame:
    """One row for each bucket (of `widths`, ns) in which one of the `MOST_CLIENTS` clients to look at ended an
    operation: run_id, client, start_ns, served (one was ok), failed (how many were not), clients (the run has).

    Those with most failures come first, then those with the longest time without an end of an operation.
    """
    width = table(made.ops.sparkSession, widths.items(), "run_id string, width long")
    at = F.coalesce("end", "start")
    served = F.col("op").isin(*_SERVING) & (F.col("outcome") == "ok")
    failed = F.col("op").isin(*_FAILING) & (F.col("outcome") != "ok")
    buckets = cut(
        made.ops.where((served | failed) & (at >= 0))
        .join(F.broadcast(width), "run_id")
        .groupBy("run_id", "client", (F.floor(at / F.col("width")) * F.col("width")).alias("start_ns"))
        .agg(F.max(served).alias("served"), F.count_if(failed).alias("failed"))
    )
    order = Window.partitionBy("run_id", "client").orderBy("start_ns")
    worst = Window.partitionBy("run_id").orderBy(F.col("failures").desc(), F.col("gap").desc(), "client")
    chosen = (
        buckets.withColumn("gap", F.col("start_ns") - F.lag("start_ns").over(order))
        .groupBy("run_id", "client")
        .agg(F.sum("failed").alias("failures"), F.max("gap").alias("gap"))
        .withColumn("place", F.row_number().over(worst))
        .withColumn("clients", F.count("*").over(Window.partitionBy("run_id")))
        .where(F.col("place") <= MOST_CLIENTS)
        .select("run_id", "client", "clients")
    )
    return buckets.join(F.broadcast(chosen), ["run_id", "client"])


def client_spans(rows: Iterable[Row], width: int) -> list[dict[str, Any]]:
    """Return one run's rows of `activity` as spans by client and time: {client, value (served or failed), start_ns,
    end_ns, failures}. A time without a served operation counts as served if it is shorter than a second, two buckets
    and four times what is usual for the client."""
    by_client: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.client, row.start_ns)):
        by_client[row.client].append(row)
    spans: list[dict[str, Any]] = []
    for client, own in by_client.items():
        starts = [row.start_ns for row in own if row.served]
        usual = median(b - a for a, b in pairwise(starts)) if len(starts) > 1 else 0
        near = max(SILENCE_NS, 2 * width, 4 * usual)
        last: dict[str, dict[str, Any]] = {}
        for row in own:
            for value, there, reach in (("served", row.served, near), ("failed", row.failed > 0, 0)):
                if not there:
                    continue
                before = last.get(value)
                if before is None or row.start_ns - before["end_ns"] > reach:
                    last[value] = {"client": client, "value": value, "start_ns": row.start_ns, "failures": 0}
                    spans.append(last[value])
                last[value]["end_ns"] = row.start_ns + width
                if value == "failed":
                    last[value]["failures"] += row.failed
    return spans
