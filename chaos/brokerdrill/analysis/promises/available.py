"""available: while load runs, no address goes longer than the bound without an acknowledged send (or a delivery)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks, milliseconds
from brokerdrill.analysis.spark import cut, few
from brokerdrill.analysis.units import dead_letter_addresses, settled

NAME = "available"

_PHASE = ("run_id", "spec", "address", "load_begin", "load_end")
# Of a large ledger successes are first gathered in so many stretches of a load phase.
STRETCHES = 20_000


def gaps(frames: Frames) -> DataFrame:
    """The spans between successive acknowledged sends (deliveries) of each address within a load phase, in few rows:
    one for all spans of an address that its bound allows, and one for each longer one.

    run_id, spec, bound, side, address, load_begin, load_end, longest (ns), real (a span ended with an acknowledged send
    or a delivery, not with the phase), and where it is longer than the bound the span gap_from to gap_to, and the span
    tail_from to the phase's end. Addresses are those with such an operation that began in the phase. The phase's begin
    and end bound the first and the last span, so that an outage that never ended counts too.

    Of a large ledger the ends are gathered in stretches no longer than the bound, so that no long span lies within one;
    only a stretch that may hide the longest of its address's spans is looked into.
    """
    rows = _ends(frames)
    if not frames.large:
        return _spans(_gathered(rows, F.lit(1)))
    even = F.floor((F.col("load_end") - F.col("load_begin")) / F.lit(STRETCHES))
    width = F.greatest(F.lit(1), F.least(even, "bound"))
    stretches = cut(_gathered(rows, width))
    spans = cut(_spans(stretches))
    longest = spans.groupBy(*_PHASE).agg(F.max("longest").alias("longest"))
    hiding = cut(
        stretches.join(F.broadcast(longest), list(_PHASE))
        .where(F.col("last") - F.col("first") > F.col("longest"))
        .select(*_PHASE, "stretch")
    )
    count = hiding.count()
    if not count:
        return spans
    here = [*_PHASE, "stretch"]
    inner = (
        rows.withColumn("stretch", _stretch(width))
        .join(few(hiding, count), here)
        .withColumn("longest", F.col("at") - F.lag("at").over(Window.partitionBy(*here).orderBy("at")))
        .groupBy(*_PHASE, "bound", "side")
        .agg(F.max("longest").alias("longest"), F.lit(True).alias("real"))
    )
    return spans.unionByName(inner, allowMissingColumns=True)


def _stretch(width: Column) -> Column:
    """Where the stretch of the load phase begins that holds `at`, of stretches `width` ns long."""
    return F.col("at") - (F.col("at") - F.col("load_begin")) % width


def _gathered(rows: DataFrame, width: Column) -> DataFrame:
    """The rows of `_ends` by stretch (null: those without a time, there for their address alone): first, last (ends in
    it) and used."""
    return rows.groupBy(*_PHASE, "bound", "side", _stretch(width).alias("stretch")).agg(
        F.min("at").alias("first"), F.max("at").alias("last"), F.max("used").alias("used")
    )


def _spans(stretches: DataFrame) -> DataFrame:
    """As `gaps`, of all spans that lie between stretches."""
    order = Window.partitionBy(*_PHASE).orderBy(F.col("first").asc_nulls_first())
    following = F.lead(F.lit(True)).over(order)
    began = F.coalesce("last", "load_begin")
    rows = stretches.withColumn("before", F.coalesce(F.lag("last").over(order), "load_begin")).withColumn(
        "tail", F.when(following.isNull(), F.col("load_end") - began)
    )
    length = F.col("first") - F.col("before")
    long = length > F.col("bound")
    return (
        rows.groupBy(
            *_PHASE,
            "bound",
            "side",
            F.when(long, F.col("before")).alias("gap_from"),
            F.when(long, F.col("first")).alias("gap_to"),
            F.when(F.col("tail") > F.col("bound"), began).alias("tail_from"),
        )
        .agg(
            F.max(F.greatest(length, F.col("tail"))).alias("longest"),
            F.max(F.col("first").isNotNull()).alias("real"),
            F.max("used").alias("used"),
        )
        .withColumn("used", F.max("used").over(Window.partitionBy(*_PHASE)))
        .where("used")
        .drop("used")
    )


def _ends(frames: Frames) -> DataFrame:
    """One row for each send and delivery that began in a load phase, and each acknowledged or made in one: run_id,
    spec, bound, side, address, load_begin, load_end, used (it began there), at (when it was acknowledged or made,
    null: not in the phase)."""
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
    return (
        sent.unionByName(received)
        .join(F.broadcast(frames.tables.load), "run_id")
        .withColumn("used", _within("start"))
        .withColumn("at", F.when(_within("at"), F.col("at")))
        .where(F.col("used") | F.col("at").isNotNull())
        .join(frames.spec(NAME).select("run_id", "spec", "bound", "side"), ["run_id", "side"])
        .select(*_PHASE, "bound", "side", "used", "at")
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
