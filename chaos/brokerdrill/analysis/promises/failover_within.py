"""failover_within: after a fault on the active instance every client is served again within the bound.

Counted from the fault to the end of the client's first acknowledged send (in a transaction: its commit) that began
after the fault plus its uncertainty and was served by an epoch of that store that began after the fault.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks, milliseconds

NAME = "failover_within"


def clients(frames: Frames) -> DataFrame:
    """One row a fault on an active instance and client that sends: `tables.hit`'s columns, client, before (it was
    served on that store before the fault), success (when it was served again, null: never), last_try (its last
    operation), unplaced (an acknowledged send whose store is not known), caused (the fault ended an epoch: it is
    not one that the epoch outlived, serving on and either never ending or being hit again)."""
    rows = frames.sends.select(
        "run_id", "client", "attempt_state", "start", "end", "acked_at", "store", "epoch"
    ).unionByName(
        # Tries that are no sends: a client that cannot even connect or commit is not served either.
        frames.ops.where(F.col("op").isin("connect", "prepare", "commit")).select("run_id", "client", "start", "end"),
        allowMissingColumns=True,
    )
    hit = F.broadcast(frames.tables.hit)
    ok = F.coalesce(F.col("attempt_state") == "ok", F.lit(False))
    here = F.col("store") == F.col("hit_store")
    earlier = ok & (F.col("acked_at") <= F.col("f_at"))
    later = ok & (F.col("start") > F.col("f_at") + F.col("f_u"))
    return (
        rows.join(hit, "run_id")
        .groupBy(*frames.tables.hit.columns, "client")
        .agg(
            F.max(earlier & here).alias("before"),
            F.min(F.when(later & here & (F.col("epoch") > F.col("f_at")), F.col("acked_at"))).alias("success"),
            F.max(F.coalesce("end", "start")).alias("last_try"),
            F.max(later & here & (F.col("epoch") == F.col("hit"))).alias("as_before"),
            F.max(ok & F.col("store").isNull()).alias("unplaced"),
        )
    )


def served_again(frames: Frames) -> DataFrame:
    """One row a fault that ended an epoch, and a client that was served before it (or may have been: `unplaced`):
    `clients`' columns, `before` and `unplaced` never null."""
    rows = clients(frames)
    outlived = (
        rows.groupBy("run_id", "fault")
        .agg(F.max(F.coalesce("as_before", F.lit(False))).alias("served_on"))
        .where(F.col("served_on"))
    )
    survived = F.coalesce("served_on", F.lit(False)) & (F.col("hit_open") | F.col("again"))
    return (
        rows.join(F.broadcast(outlived), ["run_id", "fault"], "left")
        .where(~survived)
        .withColumn("before", F.coalesce("before", F.lit(False)))
        .withColumn("unplaced", F.coalesce("unplaced", F.lit(False)))
        .where(F.col("before") | F.col("unplaced"))
    )


def judged(frames: Frames) -> DataFrame:
    """`served_again` with the promise's spec and bound where the run lists it (else null), gave_up (tried on past the
    bound without success) and took (ns from the fault to the success, or to the last try of one who gave up; null:
    neither)."""
    rows = served_again(frames).join(frames.spec(NAME).select("run_id", "spec", "bound"), "run_id", "left")
    known = F.col("before")
    late = F.coalesce(F.col("last_try") > F.col("f_at") + F.col("bound"), F.lit(False))
    return rows.withColumn("gave_up", known & F.col("success").isNull() & late & ~F.col("unplaced")).withColumn(
        "took",
        F.when(known, F.coalesce("success", F.when(F.col("gave_up"), F.col("last_try"))) - F.col("f_at")),
    )


def check(frames: Frames) -> DataFrame:
    """Return marks: a client served later than the bound breaks, and one that tried on past it without success."""
    rows = frames.once("failovers", judged).where(F.col("spec").isNotNull())
    breaks = F.col("gave_up") | F.coalesce(F.col("took") > F.col("bound"), F.lit(False))
    return marks(
        rows,
        breaks=breaks,
        evidence=F.col("took").isNotNull(),
        doubt=F.col("unplaced"),
        measured=milliseconds(F.col("took")),
        weight=F.coalesce("took", F.lit(0)),
        witness=F.when(
            breaks,
            F.struct(
                "client",
                F.col("f_name").alias("fault"),
                F.col("f_instance").alias("instance"),
                F.col("hit_store").alias("store"),
                F.col("f_at").alias("t_ns"),
                milliseconds(F.col("success") - F.col("f_at")).alias("first_send_ms"),
                milliseconds(F.col("last_try") - F.col("f_at")).alias("last_try_ms"),
            ),
        ),
    )


def split(frames: Frames) -> DataFrame:
    """One row a fault that ended an epoch and client: run_id, fault (its type), instance, store, t_ns, client, and
    from the fault in ms (null: the events do not tell): detection_ms, activation_ms, first_send_ms,
    first_delivery_ms.

    Activation is the next epoch's begin, detection as `timeline.detected` has it; the first delivery is that of any
    consumer that an epoch of that store which began after the fault served.
    """
    rows = frames.once("failovers", judged).where(F.col("took").isNotNull())
    hit = F.broadcast(frames.tables.hit.select("run_id", "fault", "hit_store", "f_at", "f_u"))
    received = (
        frames.receives.select("run_id", "end", "epoch", "store")
        .join(hit, "run_id")
        .where(
            (F.col("store") == F.col("hit_store"))
            & (F.col("epoch") > F.col("f_at"))
            & (F.col("end") > F.col("f_at") + F.col("f_u"))
        )
        .groupBy("run_id", "fault")
        .agg(F.min("end").alias("received_at"))
    )
    return rows.join(F.broadcast(received), ["run_id", "fault"], "left").select(
        "run_id",
        F.col("f_name").alias("fault"),
        F.col("f_instance").alias("instance"),
        F.col("hit_store").alias("store"),
        F.col("f_at").alias("t_ns"),
        "client",
        milliseconds(F.col("detected_at") - F.col("f_at")).alias("detection_ms"),
        milliseconds(F.col("next_at") - F.col("f_at")).alias("activation_ms"),
        milliseconds(F.col("success") - F.col("f_at")).alias("first_send_ms"),
        milliseconds(F.col("received_at") - F.col("f_at")).alias("first_delivery_ms"),
    )
