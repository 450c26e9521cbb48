"""failover_within: after a fault on the active instance every client is served again within the bound.

Counted from the fault to the end of the client's first acknowledged send (in a transaction: its commit) that began
after the fault plus its uncertainty and was served by an epoch of that store that began after the fault.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames, marks, milliseconds
from brokerdrill.analysis.timeline import NEVER

NAME = "failover_within"


def clients(frames: Frames) -> DataFrame:
    """One row a fault on an active instance and client: `tables.hit`'s columns, client, sends (it sent at all), joined
    (its first connect, null: none), before (it was served on that store before the fault), success (when it was served
    again, null: never), nameless (its first acknowledged send after the fault whose store is not known), last_try (its
    last operation that needs a broker; a call of after the fault that never returned lasts to the run's end), as_before
    (the epoch that was hit served it after the fault)."""
    tried = frames.calls.select("run_id", "client", "op", "start", "end")
    rows = frames.sends.select(
        "run_id", "client", "op", "attempt_state", "start", "end", "acked_at", "store", "epoch"
    ).unionByName(tried, allowMissingColumns=True)
    ok = F.coalesce(F.col("attempt_state") == "ok", F.lit(False))
    here = F.coalesce(F.col("store") == F.col("hit_store"), F.lit(False))
    later = ok & (F.col("start") > F.col("f_at") + F.col("f_u"))
    hanging = F.when(F.col("start") > F.col("f_at"), F.col("run_end")).otherwise(F.col("start"))
    hit = frames.tables.hit.join(frames.tables.phase.select("run_id", "run_end"), "run_id")
    return (
        rows.join(F.broadcast(hit), "run_id")
        .groupBy("run_id", "fault", "client")
        .agg(
            F.max(F.col("op") == "send").alias("sends"),
            F.min(F.when(F.col("op") == "connect", F.col("start"))).alias("joined"),
            F.max(ok & here & (F.col("acked_at") <= F.col("f_at"))).alias("before"),
            F.min(F.when(later & here & (F.col("epoch") > F.col("f_at")), F.col("acked_at"))).alias("success"),
            F.min(F.when(later & F.col("store").isNull(), F.col("acked_at"))).alias("nameless"),
            F.max(F.coalesce(F.col("end"), hanging)).alias("last_try"),
            F.max(later & here & F.coalesce(F.col("epoch") == F.col("hit"), F.lit(False))).alias("as_before"),
        )
        .where(F.col("sends"))
        .join(F.broadcast(frames.tables.hit), ["run_id", "fault"])
    )


def judged(frames: Frames) -> DataFrame:
    """`clients` of faults that an epoch did not outlive, with the promise's spec and bound where the run lists it
    (else null), blind (it is not known who served it first), gave_up (served before, it tried on past the bound
    without success) and took (ns from the fault to the success; null: blind, or none).

    An epoch outlived a fault if it served on after it and was hit again before the next began, or never ended and had
    no next: no failover is due. Nor is it from a client that came only after the fault.
    """
    outlived = F.max(F.col("as_before") & (F.col("again") | (F.col("hit_open") & F.col("next_at").isNull())))
    late = F.coalesce(F.col("last_try") > F.col("f_at") + F.col("bound"), F.lit(False))
    return (
        clients(frames)
        .withColumn("outlived", outlived.over(Window.partitionBy("run_id", "fault")))
        .where(~F.col("outlived"))
        .drop("outlived")
        .where(F.col("before") | F.col("joined").isNull() | (F.col("joined") <= F.col("f_at")))
        .join(frames.spec(NAME).select("run_id", "spec", "bound"), "run_id", "left")
        .withColumn(
            "blind", F.col("nameless").isNotNull() & F.coalesce(F.col("nameless") < F.col("success"), F.lit(True))
        )
        .withColumn("gave_up", F.col("before") & F.col("success").isNull() & late & ~F.col("blind"))
        .withColumn("took", F.when(~F.col("blind"), F.col("success") - F.col("f_at")))
    )


def check(frames: Frames) -> DataFrame:
    """Return marks: a client served later than the bound breaks, and one that tried on past it without success."""
    rows = frames.once("failovers", judged).where(F.col("spec").isNotNull())
    breaks = F.col("gave_up") | F.coalesce(F.col("took") > F.col("bound"), F.lit(False))
    return marks(
        rows,
        breaks=breaks,
        evidence=F.col("took").isNotNull(),
        doubt=F.col("blind"),
        measured=milliseconds(F.col("took")),
        # Who was never served again is worst of all.
        weight=F.coalesce(F.col("took"), F.lit(NEVER)),
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
    """One row a fault that ended an epoch and client that was served again: run_id, fault (its type), instance,
    store, t_ns, client, and from the fault in ms (null: the events do not tell): detection_ms, activation_ms,
    first_send_ms, first_delivery_ms.

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
