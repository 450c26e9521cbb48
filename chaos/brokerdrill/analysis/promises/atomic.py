"""atomic: of a transaction that may have been committed all messages are seen, or none.

A message is seen where it was delivered or found on its dead-letter address. It is missing where it was not although
it had to be: its address was drained, it is durable and had not expired. That a message was seen speaks for its
transaction only if no other attempt of it may have taken effect; that it is missing speaks against each.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks
from brokerdrill.analysis.timeline import NEVER

NAME = "atomic"

_MESSAGE = ["run_id", "address", "message_id"]


def _attempted(frames: Frames) -> DataFrame:
    """One row a message with an attempt in a transaction that may have taken effect: run_id, address, message_id, tries
    (array of {txn, client}, each attempt that may have taken effect; txn null: outside one), durable, expires."""
    live = F.col("attempt_state") != "fail"
    alone = F.when(F.col("txn").isNull(), F.struct("client", "op_id"))
    return (
        frames.sends.groupBy(*_MESSAGE)
        .agg(
            F.collect_set(F.when(live, F.struct("txn", F.col("client"), alone.alias("alone")))).alias("tries"),
            F.max(F.coalesce("durable", F.lit(True))).alias("durable"),
            F.max(F.coalesce("expires", F.lit(NEVER))).alias("expires"),
        )
        .where(F.exists("tries", lambda attempt: attempt["txn"].isNotNull()))
    )


def check(frames: Frames) -> DataFrame:
    """Return marks: each transaction with a message that was seen and one that is missing breaks; two messages that
    were seen or are missing are evidence; one that was seen and one that may still be on an undrained address casts
    doubt."""
    seen = (F.col("count") > 0) | (F.col("class") == "dead_lettered")
    drained = F.coalesce("drained", F.lit(False))
    drain_end = F.coalesce("drain_end", F.when(drained, F.col("run_end")))
    due = F.col("durable") & ~F.coalesce(F.col("expires") < drain_end, F.lit(False))
    unresolved = F.col("class") == "unresolved"
    units = (
        frames.units.join(_attempted(frames), _MESSAGE)
        .join(F.broadcast(frames.tables.drained), ["run_id", "address"], "left")
        .join(F.broadcast(frames.tables.phase.select("run_id", "drain_end", "run_end")), "run_id", "left")
        .select(
            "run_id",
            F.struct("message_id", "address", F.nullif("sub", F.lit("")).alias("subscription")).alias("unit"),
            seen.alias("seen"),
            (~seen & ((F.col("class") == "lost") | (unresolved & drained & due))).alias("missing"),
            (~seen & due & ((F.col("class") == "unseen") | (unresolved & ~drained))).alias("open"),
            (F.size("tries") == 1).alias("sure"),
            F.explode("tries").alias("attempt"),
        )
        .where(F.col("attempt.txn").isNotNull())
    )
    sure = F.col("seen") & F.col("sure")
    whole = units.groupBy("run_id", F.col("attempt.txn").alias("txn")).agg(
        F.min("attempt.client").alias("client"),
        F.count_if("seen").alias("seen"),
        F.count_if("missing").alias("missing"),
        F.max(sure).alias("sure"),
        F.max("open").alias("open"),
        F.min(F.when(F.col("missing"), F.col("unit"))).alias("lacking"),
        F.min(F.when(sure, F.col("unit"))).alias("having"),
    )
    rows = whole.join(frames.spec(NAME).select("run_id", "spec"), "run_id")
    breaks = F.col("sure") & (F.col("missing") > 0)
    return marks(
        rows,
        breaks=breaks,
        evidence=F.col("seen") + F.col("missing") > 1,
        doubt=F.col("sure") & F.col("open"),
        weight=F.col("missing"),
        witness=F.when(
            breaks,
            F.struct(
                "txn",
                "client",
                "seen",
                "missing",
                "lacking.message_id",
                "lacking.address",
                "lacking.subscription",
                F.col("having.message_id").alias("seen_message_id"),
                F.col("having.address").alias("seen_address"),
            ),
        ),
    )
