"""failback_within: an instance that lost its role to a fault is active again within the bound after the fault is
healed."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks, milliseconds
from brokerdrill.analysis.timeline import NEVER

NAME = "failback_within"


def client_gaps(frames: Frames) -> DataFrame:
    """One row a failback: run_id, failback, gap (ns, the longest span from heal to epoch without an acknowledged
    send)."""
    back = frames.tables.failback
    span = F.broadcast(back.select("run_id", "failback", F.col("store").alias("of_store"), "healed_at", "until"))
    inside = (
        frames.acked.select("run_id", "store", F.col("acked_at").alias("at"))
        .join(span, "run_id")
        .where(
            (F.col("store") == F.col("of_store"))
            & (F.col("at") >= F.col("healed_at"))
            & (F.col("at") <= F.col("until"))
        )
        .select("run_id", "failback", "at")
    )
    borders = back.select("run_id", "failback", F.explode(F.array("healed_at", "until")).alias("at"))
    order = Window.partitionBy("run_id", "failback").orderBy("at")
    return (
        inside.unionByName(borders)
        .withColumn("gap", F.col("at") - F.lag("at").over(order))
        .groupBy("run_id", "failback")
        .agg(F.max("gap").alias("gap"))
    )


def check(frames: Frames) -> DataFrame:
    """Return marks: a failback later than the bound breaks, and one that did not come by the run's end."""
    rows = frames.tables.failback.join(client_gaps(frames), ["run_id", "failback"], "left").join(
        frames.spec(NAME), "run_id"
    )
    took = F.col("until") - F.col("healed_at")
    breaks = F.col("back_at").isNull() | (took > F.col("bound"))
    return marks(
        rows,
        breaks=breaks,
        evidence=F.lit(True),
        measured=F.when(F.col("back_at").isNotNull(), milliseconds(took)),
        # What never came back is worst of all.
        weight=F.when(F.col("back_at").isNull(), F.lit(NEVER)).otherwise(took),
        witness=F.when(
            breaks,
            F.struct(
                F.col("f_name").alias("fault"),
                F.col("f_instance").alias("instance"),
                "store",
                F.col("healed_at").alias("healed_ns"),
                F.col("back_at").alias("active_ns"),
                milliseconds(F.col("gap")).alias("client_gap_ms"),
            ),
        ),
    )
