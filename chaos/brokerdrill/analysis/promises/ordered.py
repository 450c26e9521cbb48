"""ordered: messages of one producer, address and key are first delivered in the order in which they were sent.

m1 precedes m2 if m1's last attempt that may have taken effect ended before m2's first such attempt began. A message
is late when one that it precedes was delivered before it; so a running maximum decides, and no pairs are made.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks
from brokerdrill.analysis.timeline import NEVER

NAME = "ordered"


def _session_ends(frames: Frames) -> DataFrame:
    """When each consumer session of a subscription was seen to end: run_id, address, sub, e_at (its close's end, else
    the start of the client's next connect), e_client, e_session, e_before (when the session before it ended, null:
    none). Sessions that were not seen to end are left out."""
    consuming = F.col("op").isin("subscribe", "receive", "ack") & F.col("address").isNotNull()
    closed = F.when((F.col("op") == "close") & (F.col("outcome") != "fail"), F.coalesce("end", "start"))
    sessions = Window.partitionBy("run_id", "client").orderBy("session")
    ended = F.coalesce(
        F.min("closed").over(sessions.rangeBetween(Window.currentRow, Window.currentRow)),
        F.min("connected").over(sessions.rangeBetween(1, Window.unboundedFollowing)),
    )
    order = Window.partitionBy("run_id", "address", "sub").orderBy("e_at", "client", "session")
    return (
        frames.ops.groupBy(
            "run_id",
            "client",
            "session",
            F.when(consuming, F.col("address")).alias("address"),
            F.when(consuming, F.coalesce("subscription", F.lit(""))).alias("sub"),
        )
        .agg(F.min(closed).alias("closed"), F.min(F.when(F.col("op") == "connect", F.col("start"))).alias("connected"))
        .withColumn("e_at", ended)
        .where(F.col("address").isNotNull() & F.col("e_at").isNotNull())
        .select(
            "run_id",
            "address",
            "sub",
            "e_at",
            F.col("client").alias("e_client"),
            F.col("session").alias("e_session"),
            F.lag("e_at").over(order).alias("e_before"),
        )
    )


def _first_deliveries(frames: Frames, found: DataFrame) -> DataFrame:
    """The first delivery of each unit of the messages `found` that was sent, with the last end of another session of
    its subscription before it (other_end, null: none)."""
    first = (
        found.where(F.col("state").isin("acknowledged", "unknown"))
        .select(
            "run_id", "address", "message_id", "began", "over", "producer", "key", F.explode("delivered").alias("d")
        )
        .select(
            "run_id",
            "address",
            "message_id",
            "began",
            "over",
            "producer",
            "key",
            "d.sub",
            F.col("d.first.at").alias("at"),
            F.col("d.first.redelivered").alias("redelivered"),
            F.col("d.first.client").alias("consumer"),
            F.col("d.first.session").alias("session"),
        )
    )
    ends = _session_ends(frames).withColumn("at", F.col("e_at"))
    earlier = Window.partitionBy("run_id", "address", "sub").orderBy("at").rangeBetween(Window.unboundedPreceding, -1)
    ended = F.when(F.col("e_at").isNotNull(), F.struct("e_at", "e_client", "e_session", "e_before"))
    own = (F.col("e.e_client") == F.col("consumer")) & (F.col("e.e_session") == F.col("session"))
    return (
        first.unionByName(ends, allowMissingColumns=True)
        .withColumn("e", F.max(ended).over(earlier))
        .where(F.col("message_id").isNotNull())
        .withColumn("other_end", F.when(own, F.col("e.e_before")).otherwise(F.col("e.e_at")))
        .drop("e", "e_at", "e_client", "e_session", "e_before")
    )


def check(frames: Frames) -> DataFrame:
    """Return marks: each late message breaks, unless it is flagged redelivered or another session of its subscription
    ended after a message that it precedes was delivered and before it was; two messages, one preceding the other, are
    evidence.

    Scope `session` compares within one consumer session, `key` across the sessions of a subscription.
    """
    if frames.disordered is None:
        return _check(frames, frames.messages)
    specs = frames.spec(NAME).select("run_id", "spec", "scope")
    found, evidence = frames.disordered({row.scope for row in specs.collect()})
    told = marks(evidence.join(specs, ["run_id", "scope"]), evidence=F.lit(True))
    return told if found is None else _check(frames, found).unionByName(told)


def _check(frames: Frames, found: DataFrame) -> DataFrame:
    """The marks of the messages `found`."""
    rows = (
        _first_deliveries(frames, found)
        .join(frames.spec(NAME).select("run_id", "spec", "scope"), "run_id")
        .withColumn("within", F.when(F.col("scope") == "session", F.struct("consumer", "session")))
    )
    group = Window.partitionBy("run_id", "spec", "address", "sub", "producer", "key", "within")
    before = group.orderBy("at").rangeBetween(Window.unboundedPreceding, -1)
    compared = (
        rows.withColumn("newest", F.max("began").over(before))
        .withColumn("comparable", F.min("over").over(group) < F.max("began").over(group))
        .withColumn("late", F.coalesce(F.col("newest") > F.col("over"), F.lit(False)))
    )
    # A late message asks again, at the time when the other session ended: was one that it precedes delivered before?
    asked = compared.withColumn(
        "asks", F.explode(F.when(F.col("late"), F.array(F.lit(False), F.lit(True))).otherwise(F.array(F.lit(False))))
    )
    then = F.when(F.col("asks"), F.coalesce("other_end", F.lit(-NEVER))).otherwise(F.col("at"))
    until_then = group.orderBy("then").rangeBetween(Window.unboundedPreceding, -1)
    judged = asked.withColumn("then", then).withColumn(
        "newest_then", F.max(F.when(~F.col("asks"), F.col("began"))).over(until_then)
    )
    excused = F.col("redelivered") | F.coalesce(F.col("newest_then") > F.col("over"), F.lit(False))
    breaks = F.col("asks") & ~excused
    return marks(
        judged,
        breaks=breaks,
        excused=F.col("asks") & excused,
        evidence=F.col("comparable"),
        weight=F.when(breaks, F.col("newest") - F.col("over")).otherwise(0),
        witness=F.when(
            breaks,
            F.struct(
                "message_id",
                "address",
                F.nullif("sub", F.lit("")).alias("subscription"),
                "producer",
                "key",
                "consumer",
                "session",
                F.col("at").alias("delivered_ns"),
                (F.col("newest") - F.col("over")).alias("behind_ns"),
            ),
        ),
    )
