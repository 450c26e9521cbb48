"""available: while load runs, no address goes longer than the bound without an acknowledged send (or a delivery)."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks, milliseconds
from brokerdrill.analysis.units import dead_letter_addresses

NAME = "available"


def gaps(frames: Frames) -> DataFrame:
    """One row a span between successive acknowledged sends (deliveries) of an address within a load phase: run_id,
    spec, bound, side, address, gap_from, gap_to, real (it ends with an acknowledged send or a delivery, not with the
    phase). Addresses are those with such an operation that began in the phase.

    The phase's begin and end bound the first and the last span, so that an outage that never ended counts too.
    """
    sent = frames.sends.select("run_id", "address", "start", F.lit("send").alias("side"))
    received = (
        frames.ops.where((F.col("op") == "receive") & F.col("address").isNotNull())
        .select("run_id", "address", "start", F.lit("receive").alias("side"))
        .join(dead_letter_addresses(frames.tables), ["run_id", "address"], "left_anti")
    )
    specs = frames.spec(NAME).select("run_id", "spec", "bound", "side")
    used = (
        sent.unionByName(received)
        .join(F.broadcast(frames.tables.load), "run_id")
        .where((F.col("start") >= F.col("load_begin")) & (F.col("start") <= F.col("load_end")))
        .drop("start")
        .distinct()
        .join(specs, ["run_id", "side"])
    )
    times = frames.acked.select(
        "run_id", "address", F.col("acked_at").alias("at"), F.lit("send").alias("side")
    ).unionByName(
        frames.receives.select(
            "run_id", "address", F.coalesce("end", "start").alias("at"), F.lit("receive").alias("side")
        )
    )
    keys = ["run_id", "spec", "bound", "side", "address", "load_begin", "load_end"]
    inside = (
        times.join(F.broadcast(frames.tables.load), "run_id")
        .where((F.col("at") >= F.col("load_begin")) & (F.col("at") <= F.col("load_end")))
        .join(specs, ["run_id", "side"])
        .select(*keys, "at", F.lit(1).alias("rank"))
    )
    begins = used.select(*keys, F.col("load_begin").alias("at"), F.lit(0).alias("rank"))
    ends = used.select(*keys, F.col("load_end").alias("at"), F.lit(2).alias("rank"))
    order = Window.partitionBy("run_id", "spec", "address", "load_begin", "load_end").orderBy("at", "rank")
    # An address whose operations all began before the phase has no begin or end here, and no span.
    whole = Window.partitionBy("run_id", "spec", "address", "load_begin", "load_end")
    return (
        inside.unionByName(begins)
        .unionByName(ends)
        .withColumn("gap_from", F.lag("at").over(order))
        .withColumn("used", F.min("rank").over(whole) == 0)
        .where(F.col("used") & F.col("gap_from").isNotNull())
        .select(
            "run_id",
            "spec",
            "bound",
            "side",
            "address",
            "gap_from",
            F.col("at").alias("gap_to"),
            (F.col("rank") == 1).alias("real"),
        )
    )


def outages(frames: Frames) -> DataFrame:
    """The spans of `gaps` longer than their bound, each with the fault it falls under (null: none): the last one that
    began before the span ended and was not healed before the span began. Adds f_name, f_instance, f_target."""
    spans = frames.once("gaps", gaps)
    long = spans.where(F.col("gap_to") - F.col("gap_from") > F.col("bound"))
    over = (
        (F.col("g.run_id") == F.col("f.run_id"))
        & (F.col("f.f_at") <= F.col("g.gap_to"))
        & (F.col("f.healed_at").isNull() | (F.col("f.healed_at") >= F.col("g.gap_from")))
    )
    return (
        long.alias("g")
        .join(F.broadcast(frames.tables.fault).alias("f"), over, "left")
        .groupBy(*(F.col(f"g.{name}").alias(name) for name in spans.columns))
        .agg(F.max(F.struct("f.fault", "f.f_name", "f.f_instance", "f.f_target")).alias("fault"))
        .select(*spans.columns, "fault.f_name", "fault.f_instance", "fault.f_target")
    )


def check(frames: Frames) -> DataFrame:
    """Return marks: each span longer than the bound breaks; an acknowledged send (delivery) under load is evidence."""
    spans = frames.once("gaps", gaps)
    length = F.col("gap_to") - F.col("gap_from")
    # One mark a stretch of spans would be one a message: only the longest of each address goes on, and the breaks.
    summary = marks(
        spans.groupBy("run_id", "spec", "address").agg(F.max(length).alias("longest"), F.max("real").alias("real")),
        evidence=F.col("real"),
        measured=milliseconds(F.col("longest")),
    )
    broken = marks(
        outages(frames),
        breaks=F.lit(True),
        weight=length,
        witness=F.struct(
            "address",
            "side",
            F.col("gap_from").alias("start_ns"),
            F.col("gap_to").alias("end_ns"),
            milliseconds(length).alias("span_ms"),
            F.col("f_name").alias("fault"),
            F.coalesce("f_instance", "f_target").alias("target"),
        ),
    )
    return summary.unionByName(broken)
