"""How much and how fast: operations counted and their latencies in bins, by the run's phases and over time.

One pass makes a histogram whose bins are 1 % wide; everything else is read from that, which is small whatever the
ledger's size. A bin stands for its mean, so that a quantile is off by less than 1 % and a bin of one value is exact.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.spark import cut
from brokerdrill.analysis.tables import table
from brokerdrill.analysis.timeline import NEVER, Timeline
from brokerdrill.ledger import PREPARATIONS

KINDS = ("send", "commit", "receive")
PHASES = ("load", "before_fault", "during_fault", "after_heal", "drain", "outside")
QUANTILES = (0.5, 0.95, 0.99)
_BIN = math.log(1.01)


def segments(times: Timeline) -> list[tuple[int, str]]:
    """Return (start, phase) of the stretches of a run, by start: each lasts until the next, the last for ever.

    `drain` is the drain; else `during_fault` a time with a fault in effect; else, in a load, `before_fault` up to the
    first fault and `after_heal` from then on (`load` in a run without a fault); else `outside`.
    """
    faults = [
        (f.at, times.run_end + 1 if f.healed_at is None else f.healed_at)
        for f in times.faults
        if f.name not in PREPARATIONS
    ]
    first = min((at for at, _ in faults), default=None)
    drain = (
        [] if times.drain_begin is None else [(times.drain_begin, times.drain_end or times.run_end)]
    )  # an operation that ends with the drain is part of it
    drains = [(begin, end + 1) for begin, end in drain]
    loads = [(begin, end + 1) for begin, end in times.loads]

    def phase(at: int) -> str:
        def in_any(spans: Iterable[tuple[int, int]]) -> bool:
            return any(begin <= at < end for begin, end in spans)

        if in_any(drains):
            return "drain"
        if in_any(faults):
            return "during_fault"
        if not in_any(loads):
            return "outside"
        return "load" if first is None else "before_fault" if at < first else "after_heal"

    edges = sorted({-NEVER, *(edge for spans in (faults, drains, loads) for span in spans for edge in span)})
    found: list[tuple[int, str]] = []
    for edge in edges:
        name = phase(edge)
        if not found or found[-1][1] != name:
            found.append((edge, name))
    return found


def lengths(times: Timeline) -> dict[str, int]:
    """Return the ns that each phase of a run takes, from 0 to the run's end."""
    found: dict[str, int] = defaultdict(int)
    parts = segments(times)
    ends = [start for start, _ in parts[1:]] + [times.run_end]
    for (start, name), end in zip(parts, ends, strict=True):
        found[name] += max(0, min(end, times.run_end) - max(start, 0))
    return dict(found)


def histogram(made: Frames, times: Mapping[str, Timeline], widths: Mapping[str, int] | None = None) -> DataFrame:
    """One row, or for deliveries one of counts and one of latencies, for each bin of latency: run_id, kind (send,
    commit, receive), phase, start_ns (of the bucket; 0 without `widths`), n (acknowledged sends or deliveries that
    ended there), calls (those with a latency), took (ms, the bin's mean), longest (ms). Computed once, and small.

    A send's latency is that of its call; in a transaction it has none, the commit's is what its client waits for. A
    delivery's is from the start of the message's first attempt that may have taken effect to its first delivery in each
    subscription.
    """
    spark = made.ops.sparkSession
    parts = {key: segments(one) for key, one in times.items()}
    rows = [
        (
            key,
            ",".join(str(start) for start, _ in found),
            ",".join(name for _, name in found),
            (widths or {}).get(key, NEVER),
        )
        for key, found in parts.items()
    ]
    runs = table(spark, rows, "run_id string, edges string, names string, width long").select(
        "run_id",
        F.split("edges", ",").cast("array<bigint>").alias("edges"),
        F.split("names", ",").alias("names"),
        "width",
    )
    at, start, end = F.col("acked_at"), F.col("start"), F.col("end")
    none, one = F.lit(None).cast("long"), F.lit(1)
    sends = _rows(made.acked, "send", at, F.when(F.col("txn").isNull(), end - start), one)
    committed = (F.col("op") == "commit") & (F.col("outcome") == "ok") & end.isNotNull()
    commits = _rows(made.ops.where(committed), "commit", end, end - start, F.lit(0))
    receives = _rows(made.receives, "receive", F.coalesce("end", "start"), none, one)
    first = made.first_deliveries
    # Delivered before the send began, as clocks disagree: no time at all.
    waits = _rows(first, "receive", F.col("at"), F.greatest(F.col("at") - F.col("began"), F.lit(0)), F.lit(0))
    took = F.col("took").cast("double") / F.lit(1e6)

    def binned(rows: DataFrame) -> DataFrame:
        return (
            rows.where(F.col("at") >= 0)
            .join(F.broadcast(runs), "run_id")
            .groupBy(
                "run_id",
                "kind",
                F.element_at("names", F.size(F.filter("edges", lambda edge: edge <= F.col("at")))).alias("phase"),
                (F.floor(F.col("at") / F.col("width")) * F.col("width")).alias("start_ns"),
                F.floor(F.ln(F.greatest(F.col("took"), F.lit(1)).cast("double")) / F.lit(_BIN)).alias("bin"),
            )
            .agg(
                F.sum("counted").alias("n"),
                F.count("took").alias("calls"),
                F.avg(took).alias("took"),
                F.max(took).alias("longest"),
            )
        )

    sources = made.together([sends, commits, receives, waits])
    return reduce(DataFrame.unionByName, [cut(binned(source)) for source in sources])


def _rows(source: DataFrame, kind: str, at: Column, took: Column, counted: Column) -> DataFrame:
    return source.select(
        "run_id", F.lit(kind).alias("kind"), at.alias("at"), took.alias("took"), counted.alias("counted")
    )


def quantiles(shares: Iterable[float]) -> Column:
    """The latencies (array of ms) of a histogram's group at these shares."""
    return F.percentile("took", F.array(*(F.lit(share) for share in shares)), F.col("calls"))


def by_phase(bins: DataFrame) -> DataFrame:
    """One row a phase and kind in which something ended: run_id, phase, kind, count, quantiles (ms at `QUANTILES`,
    null: no latency), longest (ms). `bins` is of `histogram`."""
    counted = F.when(F.col("kind") == "commit", F.col("calls")).otherwise(F.col("n"))
    return bins.groupBy("run_id", "phase", "kind").agg(
        F.sum(counted).alias("count"), quantiles(QUANTILES).alias("quantiles"), F.max("longest").alias("longest")
    )


def phases_json(rows: Iterable[Row], times: Timeline) -> list[dict[str, Any]]:
    """Return one run's `phases` of the verdict's JSON from its rows of `by_phase`: {phase, seconds, and for each kind
    that happened: {count, per_s, p50_ms, p95_ms, p99_ms, max_ms (null: none has a latency)}}."""
    seconds = {name: ns / 1e9 for name, ns in lengths(times).items()}
    kinds: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        if row["count"]:
            shares = row.quantiles or [None] * len(QUANTILES)
            lasted = seconds.get(row.phase, 0.0)
            kinds[row.phase][row.kind] = {
                "count": row["count"],
                "per_s": row["count"] / lasted if lasted else None,
                **{f"p{share * 100:.0f}_ms": ms for share, ms in zip(QUANTILES, shares, strict=True)},
                "max_ms": row.longest,
            }
    return [
        {"phase": name, "seconds": seconds.get(name, 0.0)} | {k: kinds[name][k] for k in KINDS if k in kinds[name]}
        for name in PHASES
        if name in kinds or (name != "outside" and seconds.get(name))
    ]
