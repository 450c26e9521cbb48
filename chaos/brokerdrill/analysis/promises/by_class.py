"""The promises that go by class, in one pass: units of the breaking classes break, a message that was sent is
evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks
from brokerdrill.analysis.tables import table


@dataclass(frozen=True)
class ClassRule:
    """A promise that goes by class: each unit of a class in `breaking` breaks it, each of one in `doubtful` makes a
    pass unknown.

    Evidence is a message that was sent: with an attempt that may have taken effect, or `failed_too` one whose attempts
    all failed; `mapped`: only one on an address that has a dead-letter address.
    """

    name: str
    breaking: tuple[str, ...]
    doubtful: tuple[str, ...] = ()
    mapped: bool = False
    failed_too: bool = False


def check_classes(frames: Frames, rules: Sequence[ClassRule]) -> DataFrame:
    """Return the marks of all promises in `rules`."""
    spark = frames.ops.sparkSession
    told = [(rule.name, name, name in rule.breaking) for rule in rules for name in (*rule.breaking, *rule.doubtful)]
    by_class = table(spark, told, "name string, class string, broken boolean").join(frames.tables.specs, "name")
    unusual = frames.units.where(F.col("class") != "ok")
    counted = unusual.join(F.broadcast(by_class.select("run_id", "spec", "class", "broken")), ["run_id", "class"])
    found = marks(
        counted,
        breaks=F.col("broken"),
        doubt=~F.col("broken"),
        weight=F.col("count"),
        witness=F.when(
            F.col("broken"),
            F.struct(
                "message_id",
                "address",
                F.nullif("sub", F.lit("")).alias("subscription"),
                "class",
                F.col("count").alias("deliveries"),
                "processed",
            ),
        ),
    )
    mapped = F.broadcast(frames.tables.dead_letters)
    live = F.col("state").isin("acknowledged", "unknown")
    attempted = frames.messages.where(F.col("attempts") > 0).select("run_id", "address", live.alias("live"))
    plain = frames.plain_counts
    if plain is not None:
        attempted = attempted.unionByName(plain.select("run_id", "address", F.lit(True).alias("live")))
    sent = (
        attempted.join(mapped, ["run_id", "address"], "left")
        .groupBy("run_id")
        .agg(
            F.max("live").alias("any_live"),
            F.max(F.col("live") & F.col("dead_letter").isNotNull()).alias("any_mapped"),
        )
    )
    asked = table(
        spark,
        [(rule.name, rule.mapped, rule.failed_too) for rule in rules],
        "name string, mapped boolean, failed_too boolean",
    )
    specs = F.broadcast(asked.join(frames.tables.specs, "name").select("run_id", "spec", "mapped", "failed_too"))
    enough = F.when(F.col("mapped"), F.col("any_mapped")).otherwise(F.col("any_live") | F.col("failed_too"))
    return found.unionByName(marks(sent.join(specs, "run_id"), evidence=enough))
