"""single_active: at no time do two instances serve one store."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks

NAME = "single_active"


def check(frames: Frames) -> DataFrame:
    """Return marks: a send served by one instance wholly between two sends of another's one epoch breaks, and so does
    an overlap of two instances' certain active intervals. An epoch is evidence; a send whose store
    is not known casts doubt."""
    specs = frames.spec(NAME).select("run_id", "spec")
    sends = frames.sends.where(F.col("outcome") == "ok").withColumn("end", F.coalesce("end", "start"))
    within = (
        sends.alias("x")
        .join(
            F.broadcast(frames.tables.served.withColumnRenamed("epoch", "e_start")).alias("e"),
            (F.col("x.run_id") == F.col("e.run_id"))
            & (F.col("x.server") == F.col("e.server"))
            & (F.col("x.store") == F.col("e.e_store"))
            & (F.col("x.start") >= F.col("e.e_start"))
            & (F.col("x.end") <= F.col("e.e_end")),
        )
        .groupBy("e.run_id", F.col("e.e_store").alias("store"), F.col("e.server").alias("instance"), "e.e_start")
        .agg(F.min("x.end").alias("after"), F.max("x.start").alias("before"))
    )
    between = (
        sends.alias("y")
        .join(
            F.broadcast(within).alias("w"),
            (F.col("y.run_id") == F.col("w.run_id"))
            & (F.col("y.store") == F.col("w.store"))
            & (F.col("y.server") != F.col("w.instance"))
            & (F.col("y.start") > F.col("w.after"))
            & (F.col("y.end") < F.col("w.before")),
        )
        .groupBy(
            "y.run_id", "y.client", "y.op_id", "y.message_id", "y.address", "y.store", "y.server", "y.start", "y.end"
        )
        .agg(F.min("w.instance").alias("other"))
        .join(specs, "run_id")
    )
    intruders = marks(
        between,
        breaks=F.lit(True),
        weight=-F.col("start"),
        witness=F.struct(
            "message_id",
            "address",
            "client",
            "store",
            F.col("server").alias("instance"),
            F.col("other").alias("other_instance"),
            F.col("start").alias("start_ns"),
            F.col("end").alias("end_ns"),
        ),
    )
    both = marks(
        frames.tables.overlaps.join(specs, "run_id"),
        breaks=F.lit(True),
        weight=F.col("end_ns") - F.col("start_ns"),
        witness=F.struct("store", "instance", "other_instance", "start_ns", "end_ns"),
    )
    told = frames.tables.served.where(F.col("epoch").isNotNull()).select("run_id").distinct().join(specs, "run_id")
    homeless = sends.where(F.col("store").isNull()).select("run_id").distinct().join(specs, "run_id")
    return (
        intruders.unionByName(both)
        .unionByName(marks(told, evidence=F.lit(True)))
        .unionByName(marks(homeless, doubt=F.lit(True)))
    )
