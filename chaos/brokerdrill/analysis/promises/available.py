"""available: while load runs, no address goes longer than the bound without an acknowledged send (or a delivery)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks, milliseconds
from brokerdrill.analysis.units import dead_letter_addresses, settled

NAME = "available"


def gaps(frames: Frames) -> DataFrame:
    """The spans between successive acknowledged sends (deliveries) of each address within a load phase, in one pass and
    few rows: one for all spans of an address that its bound allows, and one for each longer one.

    run_id, spec, bound, side, address, load_begin, load_end, longest (ns), real (a span ended with an acknowledged send
    or a delivery, not with the phase), and where it is longer than the bound the span gap_from to gap_to, and the span
    tail_from to the phase's end. Addresses are those with such an operation that began in the phase. The phase's begin
    and end bound the first and the last span, so that an outage that never ended counts too.
    """
    sent = frames.sends.select(
        "run_id",
        "address",
        "start",
        F.when(F.col("attempt_state") == "ok", F.col("acked_at")).alias("at"),
        F.lit("send").alias("side"),
    )
    received = (
        frames.ops.where((F.col("op") == "receive") & F.col("address").isNotNull())
        .select(
            "run_id",
            "address",
            "start",
            F.when(F.col("outcome") == "ok", settled()).alias("at"),
            F.lit("receive").alias("side"),
        )
        .join(dead_letter_addresses(frames.tables), ["run_id", "address"], "left_anti")
    )
    phase = ["run_id", "spec", "address", "load_begin", "load_end"]
    # A row without a time is there for its address alone, and comes first.
    order = Window.partitionBy(*phase).orderBy(F.col("at").asc_nulls_first())
    last = F.lead(F.lit(True)).over(order).isNull()
    began = F.coalesce("at", "load_begin")
    rows = (
        sent.unionByName(received)
        .join(F.broadcast(frames.tables.load), "run_id")
        .withColumn("used", _within("start"))
        .withColumn("at", F.when(_within("at"), F.col("at")))
        .where(F.col("used") | F.col("at").isNotNull())
        .join(frames.spec(NAME).select("run_id", "spec", "bound", "side"), ["run_id", "side"])
        .select(*phase, "bound", "side", "used", "at")
        .withColumn("before", F.coalesce(F.lag("at").over(order), "load_begin"))
        .withColumn("tail", F.when(last, F.col("load_end") - began))
    )
    length = F.col("at") - F.col("before")
    long = length > F.col("bound")
    return (
        rows.groupBy(
            *phase,
            "bound",
            "side",
            F.when(long, F.col("before")).alias("gap_from"),
            F.when(long, F.col("at")).alias("gap_to"),
            F.when(F.col("tail") > F.col("bound"), began).alias("tail_from"),
        )
        .agg(
            F.max(F.greatest(length, F.col("tail"))).alias("longest"),
            F.max(F.col("at").isNotNull()).alias("real"),
            F.max("used").alias("used"),
        )
        .withColumn("used", F.max("used").over(Window.partitionBy(*phase)))
        .where("used")
        .drop("used")
    )


def _within(time: str) -> Column:
    return (F.col(time) >= F.col("load_begin")) & (F.col(time) <= F.col("load_end"))


def outages(frames: Frames) -> DataFrame:
    """The spans longer than their bound: run_id, spec, bound, side, address, gap_from, gap_to, each with the fault it
    falls under (f_name, f_instance, f_target; null: none): the last one that began before the span ended and was not
    healed before the span began."""
    keys = ["run_id", "spec", "bound", "side", "address"]
    span = F.struct("gap_from", "gap_to")
    tail = F.struct(F.col("tail_from").alias("gap_from"), F.col("load_end").alias("gap_to"))
    long = (
        frames.once("gaps", gaps)
        .select(*keys, F.explode(F.array(span, tail)).alias("span"))
        .select(*keys, "span.*")
        .where(F.col("gap_from").isNotNull())
    )
    over = (
        (F.col("g.run_id") == F.col("f.run_id"))
        & (F.col("f.f_at") <= F.col("g.gap_to"))
        & (F.col("f.healed_at").isNull() | (F.col("f.healed_at") >= F.col("g.gap_from")))
    )
    return (
        long.alias("g")
        .join(F.broadcast(frames.tables.fault).alias("f"), over, "left")
        .groupBy(*(F.col(f"g.{name}").alias(name) for name in long.columns))
        .agg(F.max(F.struct("f.fault", "f.f_name", "f.f_instance", "f.f_target")).alias("fault"))
        .select(*long.columns, "fault.f_name", "fault.f_instance", "fault.f_target")
    )


def check(frames: Frames) -> DataFrame:
    """Return marks: each span longer than the bound breaks; an acknowledged send (delivery) under load is evidence."""
    length = F.col("gap_to") - F.col("gap_from")
    summary = marks(frames.once("gaps", gaps), evidence=F.col("real"), measured=milliseconds(F.col("longest")))
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
