"""What the promises that go by class share: units of the breaking classes break, a message that was sent is evidence."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks


def check_classes(
    frames: Frames, name: str, breaking: Sequence[str], doubtful: Sequence[str] = (), only: DataFrame | None = None
) -> DataFrame:
    """Return the marks of the promise `name`, broken by each unit of a class in `breaking`, doubted by those in
    `doubtful`.

    Evidence is any message with an attempt that may have taken effect; where `only` (run_id, address) is given, one on
    such an address.
    """
    specs = frames.spec(name)
    counted = frames.units.where(F.col("class").isin(*breaking, *doubtful)).join(specs, "run_id")
    found = marks(
        counted,
        breaks=F.col("class").isin(*breaking),
        doubt=F.col("class").isin(*doubtful) if doubtful else None,
        weight=F.col("count"),
        witness=F.when(
            F.col("class").isin(*breaking),
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
    sent = frames.messages.where(F.col("state").isin("acknowledged", "unknown"))
    if only is not None:
        sent = sent.join(F.broadcast(only), ["run_id", "address"], "left_semi")
    something = sent.select("run_id").distinct().join(specs, "run_id")
    return found.unionByName(marks(something, evidence=F.lit(True)))
