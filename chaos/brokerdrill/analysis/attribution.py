"""What broke under which fault, at which broker and for which client: counts, not a proof of cause.

A fault is in effect from when it was injected to when it was healed, in a run that never heals it for ever.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.spark import few
from brokerdrill.analysis.timeline import NEVER

# The classes that break a promise.
BROKEN = ("corrupted", "phantom", "unexpected", "duplicated", "dead_lettered", "lost")
UNIT = ("run_id", "address", "message_id", "sub")


def with_fault(made: Frames, rows: DataFrame, start: Column, end: Column, first: Column | None = None) -> DataFrame:
    """Add to `rows` (with run_id) the fault that they fall under: fault (its type), fault_ns (when it was injected) and
    target (the instance or link that it hit); null: none was in effect in the time from `start` to `end` (ns).

    Of several it is the one that began last, or the one that began first where `first` is true.
    """
    each = F.struct(
        F.col("f_at").alias("at"),
        "fault",
        F.coalesce("healed_at", F.lit(NEVER)).alias("until"),
        F.col("f_name").alias("name"),
        F.coalesce("f_instance", "f_target").alias("target"),
    )
    by_run = made.tables.fault.groupBy("run_id").agg(F.collect_list(each).alias("faults"))
    here = F.filter("faults", lambda f: (f["at"] <= end) & (f["until"] >= start))
    chosen = F.array_max(here) if first is None else F.when(first, F.array_min(here)).otherwise(F.array_max(here))
    return (
        rows.join(F.broadcast(by_run), "run_id", "left")
        .withColumn("chosen", chosen)
        .withColumns({"fault": F.col("chosen.name"), "fault_ns": F.col("chosen.at"), "target": F.col("chosen.target")})
        .drop("faults", "chosen")
    )


def broken(made: Frames, count: int) -> DataFrame:
    """One row for each way in which units broke: run_id, class, fault, fault_ns, target (`with_fault`), instance and
    client (who served and who did the unit's last delivery; of what was never delivered, its acknowledged send, else
    the last), n. `count` is how many broken units there are.

    A unit that was delivered falls under the last fault in effect from its first attempt to its last delivery; one that
    never was, under the first fault in effect from its first attempt on.
    """
    units = made.units.where(F.col("class").isin(*BROKEN)).select(*UNIT, "class")
    wanted = few(units, count)
    own = F.coalesce("end", "start")
    sends = made.sends.select(
        "run_id",
        "address",
        "message_id",
        F.lit(0).alias("delivered"),
        "start",
        # Of attempts the acknowledged one, then the last, is whom the message was left with.
        F.struct((F.col("attempt_state") == "ok").alias("sure"), own.alias("at"), "client", "server").alias("last"),
        F.lit(None).cast("string").alias("of"),
    )
    receives = made.receives.select(
        "run_id",
        "address",
        "message_id",
        F.lit(1).alias("delivered"),
        "start",
        F.struct(F.lit(True).alias("sure"), own.alias("at"), "client", "server").alias("last"),
        F.coalesce("subscription", F.lit("")).alias("of"),
    )
    seen = (
        sends.unionByName(receives)
        .join(wanted, ["run_id", "address", "message_id"])
        .where(F.col("of").isNull() | (F.col("of") == F.col("sub")))
        .groupBy(*UNIT, "class")
        .agg(
            F.min("start").alias("began"),
            F.max(F.struct("delivered", "last")).alias("end"),
        )
        .select(
            "run_id",
            "class",
            "began",
            (F.col("end.delivered") == 1).alias("delivered"),
            F.col("end.last.at").alias("over"),
            F.col("end.last.client").alias("client"),
            F.col("end.last.server").alias("instance"),
        )
    )
    until = F.when(F.col("delivered"), F.col("over")).otherwise(F.lit(NEVER))
    return (
        with_fault(made, seen, F.col("began"), until, ~F.col("delivered"))
        .groupBy("run_id", "class", "fault", "fault_ns", "target", "instance", "client")
        .agg(F.count("*").alias("n"))
    )


def redelivered(made: Frames, count: int) -> DataFrame:
    """One row for each way in which messages were delivered again: run_id, flagged (the broker said so), in_doubt (an
    acknowledgement of the unit was), client and instance (of the repeated delivery), fault, fault_ns, target
    (`with_fault`, from the message's first attempt to this delivery), n (deliveries after a unit's first). `count` is
    how many units were delivered more than once."""
    repeated = made.units.where(F.col("count") > 1).select(*UNIT, "in_doubt")
    units = made.messages.select("run_id", "address", "message_id", "began").join(
        few(repeated, count), ["run_id", "address", "message_id"]
    )
    rows = (
        made.receives.withColumn("sub", F.coalesce("subscription", F.lit("")))
        .join(few(units, count), list(UNIT))
        .withColumn("at", F.coalesce("end", "start"))
    )
    order = Window.partitionBy(*UNIT).orderBy("at", "client", "op_id")
    repeats = rows.withColumn("before", F.lag("at").over(order)).where(F.col("before").isNotNull())
    return (
        with_fault(made, repeats, F.coalesce("began", "before"), F.col("at"))
        .groupBy(
            "run_id",
            F.coalesce("redelivered", F.lit(False)).alias("flagged"),
            "in_doubt",
            "client",
            F.col("server").alias("instance"),
            "fault",
            "fault_ns",
            "target",
        )
        .agg(F.count("*").alias("n"))
    )


def sides(made: Frames, outages: DataFrame) -> DataFrame:
    """Who had the successes at both ends of outages: run_id, place (of `outages`), client and instance (the last
    success before), next_client and next_instance (the first after); null: the load's own begin or end is there.

    `outages` (run_id, place, side, address, start_ns, end_ns) are few; they are copied to every task.
    """
    sent = made.acked.select(
        "run_id", "address", F.col("acked_at").alias("at"), F.lit("send").alias("side"), "client", "server"
    )
    got = made.receives.select(
        "run_id", "address", F.coalesce("end", "start").alias("at"), F.lit("receive").alias("side"), "client", "server"
    )
    ends = F.explode(F.create_map(F.lit(True), "start_ns", F.lit(False), "end_ns")).alias("first", "at")
    who = F.struct("client", "server")
    return (
        sent.unionByName(got)
        .join(
            F.broadcast(outages.select("run_id", "place", "side", "address", ends)), ["run_id", "address", "side", "at"]
        )
        .groupBy("run_id", "place")
        .agg(F.min(F.when(F.col("first"), who)).alias("before"), F.min(F.when(~F.col("first"), who)).alias("after"))
        .select(
            "run_id",
            "place",
            F.col("before.client").alias("client"),
            F.col("before.server").alias("instance"),
            F.col("after.client").alias("next_client"),
            F.col("after.server").alias("next_instance"),
        )
    )
