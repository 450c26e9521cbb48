"""sticky: every connect with the same routing key reaches the same store, for as long as that store's broker is
ready."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks
from brokerdrill.analysis.units import served

NAME = "sticky"


def check(frames: Frames) -> DataFrame:
    """Return marks: each connect of a key that reaches another store than the key's previous one breaks, unless the
    old store was not ready at some time since then (give or take the pool's check period) or the cache entry had
    expired."""
    connects = served(
        frames.calls.where((F.col("op") == "connect") & (F.col("outcome") == "ok") & F.col("key").isNotNull()),
        frames.tables,
    )
    order = Window.partitionBy("run_id", "key").orderBy("at", "start", "client", "op_id")
    pairs = (
        connects.withColumn("at", F.coalesce("end", "start"))
        .select(
            "run_id",
            "key",
            "client",
            "at",
            "store",
            F.lag("store").over(order).alias("old"),
            F.lag("at").over(order).alias("old_at"),
        )
        .where(F.col("old_at").isNotNull())
        .join(frames.spec(NAME), "run_id")
    )
    expired = (F.col("cache_timeout") > 0) & (F.col("at") - F.col("old_at") > F.col("cache_timeout"))
    keys = ["run_id", "spec", "key", "client", "at", "store", "old", "old_at"]
    judged = (
        pairs.withColumn("expired", expired)
        .alias("p")
        .join(
            F.broadcast(frames.tables.unready).alias("n"),
            (F.col("p.run_id") == F.col("n.run_id"))
            & (F.col("p.old") == F.col("n.store"))
            & (F.col("p.old") != F.col("p.store"))
            & (F.col("n.n_from") < F.col("n.n_to"))
            & (F.col("n.n_from") <= F.col("p.at") + F.col("p.check_period"))
            & (F.col("n.n_to") > F.col("p.old_at") - F.col("p.check_period")),
            "left",
        )
        .groupBy(*(F.col(f"p.{name}").alias(name) for name in keys), F.col("p.expired").alias("expired"))
        .agg((F.count("n.n_from") > 0).alias("not_ready"))
    )
    known = F.col("store").isNotNull() & F.col("old").isNotNull()
    moved = known & (F.col("store") != F.col("old"))
    excused = F.col("expired") | F.col("not_ready")
    return marks(
        judged,
        breaks=moved & ~excused,
        excused=moved & excused,
        evidence=known,
        doubt=~known,
        weight=-F.col("at"),
        witness=F.when(
            moved & ~excused,
            F.struct(
                "key",
                "client",
                F.col("old").alias("from_store"),
                F.col("store").alias("to_store"),
                F.col("old_at").alias("previous_ns"),
                F.col("at").alias("connected_ns"),
            ),
        ),
    )
