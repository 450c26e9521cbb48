"""ordered: messages of one producer, address and key are first delivered in the order in which they were sent.

m1 precedes m2 if m1's last attempt that may have taken effect ended before m2's first such attempt began. A message
is late when one that it precedes was delivered before it; so a running maximum decides, and no pairs are made.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks

NAME = "ordered"


def _session_ends(frames: Frames) -> DataFrame:
    """When each consumer session of a subscription was seen to end: its close's end, else the start of the client's
    next connect, but not before its own last delivery; sessions that were not seen to end are left out."""
    ops, ended = frames.ops, F.coalesce("end", "start")
    own = Window.partitionBy("run_id", "client").orderBy("session").rowsBetween(1, Window.unboundedFollowing)
    sessions = (
        ops.groupBy("run_id", "client", "session")
        .agg(
            F.min(F.when((F.col("op") == "close") & (F.col("outcome") != "fail"), ended)).alias("closed"),
            F.min(F.when(F.col("op") == "connect", F.col("start"))).alias("connected"),
            F.max(F.when((F.col("op") == "receive") & (F.col("outcome") == "ok"), ended)).alias("last"),
        )
        .withColumn("seen", F.coalesce("closed", F.min("connected").over(own)))
        .where(F.col("seen").isNotNull())
        .select("run_id", "client", "session", F.greatest("seen", "last").alias("ended_at"))
    )
    consuming = (
        ops.where(F.col("op").isin("subscribe", "receive", "ack") & F.col("address").isNotNull())
        .select("run_id", "client", "session", "address", F.coalesce("subscription", F.lit("")).alias("sub"))
        .distinct()
    )
    return consuming.join(sessions, ["run_id", "client", "session"]).select("run_id", "address", "sub", "ended_at")


def check(frames: Frames) -> DataFrame:
    """Return marks: each late message breaks, unless it is flagged redelivered or another session of its subscription
    ended after a message that it precedes was delivered and before it was; two messages, one preceding the other,
    are evidence.

    Scope `session` compares within one consumer session, `key` across the sessions of a subscription.
    """
    first = (
        frames.messages.where(F.col("state").isin("acknowledged", "unknown"))
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
    # `ends` counts the sessions of the subscription that ended before a delivery: where it differs, one ended between.
    by_time = Window.partitionBy("run_id", "address", "sub").orderBy("at").rangeBetween(Window.unboundedPreceding, -1)
    timed = first.unionByName(
        _session_ends(frames).select(
            "run_id", "address", "sub", F.col("ended_at").alias("at"), F.lit(1).alias("ended")
        ),
        allowMissingColumns=True,
    ).withColumn("ends", F.coalesce(F.sum("ended").over(by_time), F.lit(0)))
    rows = (
        timed.where(F.col("message_id").isNotNull())
        .join(frames.spec(NAME).select("run_id", "spec", "scope"), "run_id")
        .withColumn("within", F.when(F.col("scope") == "session", F.struct("consumer", "session")))
    )
    group = Window.partitionBy("run_id", "spec", "address", "sub", "producer", "key", "within")
    before = group.orderBy("at").rangeBetween(Window.unboundedPreceding, -1)
    before_end = group.orderBy("ends").rangeBetween(Window.unboundedPreceding, -1)
    late = F.coalesce(F.max("began").over(before) > F.col("over"), F.lit(False))
    judged = rows.select(
        "*",
        late.alias("late"),
        F.coalesce(F.max("began").over(before_end) > F.col("over"), F.lit(False)).alias("session_ended"),
        (F.min("over").over(group) < F.max("began").over(group)).alias("comparable"),
        (F.max("began").over(before) - F.col("over")).alias("behind"),
    )
    excused = F.col("redelivered") | F.col("session_ended")
    return marks(
        judged,
        breaks=F.col("late") & ~excused,
        excused=F.col("late") & excused,
        evidence=F.col("comparable"),
        weight=F.when(F.col("late"), F.col("behind")).otherwise(0),
        witness=F.when(
            F.col("late") & ~excused,
            F.struct(
                "message_id",
                "address",
                F.nullif("sub", F.lit("")).alias("subscription"),
                "producer",
                "key",
                "consumer",
                "session",
                F.col("at").alias("delivered_ns"),
                F.col("behind").alias("behind_ns"),
            ),
        ),
    )
