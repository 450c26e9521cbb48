"""single_active: at no time do two instances serve one store."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks

NAME = "single_active"


def _serving(frames: Frames) -> DataFrame:
    """One row for each epoch that ok sends lie in wholly, and one a run for all other ok sends (store null): run_id,
    store, instance, e_start, after (the first end), before (the last start), homeless (a store is not known)."""
    epochs = frames.tables.served.where(F.col("epoch").isNotNull()).withColumnRenamed("epoch", "e_start")
    return (
        _sends(frames)
        .alias("x")
        .join(
            F.broadcast(epochs).alias("e"),
            (F.col("x.run_id") == F.col("e.run_id"))
            & (F.col("x.server") == F.col("e.server"))
            & (F.col("x.store") == F.col("e.e_store"))
            & (F.col("x.start") >= F.col("e.e_start"))
            & (F.col("x.end") <= F.col("e.e_end")),
            "left",
        )
        .groupBy("x.run_id", F.col("e.e_store").alias("store"), F.col("e.server").alias("instance"), "e.e_start")
        .agg(
            F.min("x.end").alias("after"),
            F.max("x.start").alias("before"),
            F.max(F.col("x.store").isNull()).alias("homeless"),
        )
    )


def _sends(frames: Frames) -> DataFrame:
    return frames.sends.where(F.col("outcome") == "ok").withColumn("end", F.coalesce("end", "start"))


def check(frames: Frames) -> DataFrame:
    """Return marks: a send served by one instance wholly between two sends of another's one epoch breaks, and so does
    an overlap of two instances' certain active intervals. An epoch is evidence; a send whose store
    is not known casts doubt."""
    specs = frames.spec(NAME).select("run_id", "spec")
    serving = frames.once("serving", _serving)
    within = serving.where(F.col("store").isNotNull())
    between = (
        _sends(frames)
        .alias("y")
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
    homeless = serving.where("homeless").select("run_id").distinct().join(specs, "run_id")
    return (
        intruders.unionByName(both)
        .unionByName(marks(told, evidence=F.lit(True)))
        .unionByName(marks(homeless, doubt=F.lit(True)))
    )
