"""From rows to units: operations, transactions, attempts, deliveries, messages, and the class of each unit.

Words and rules are those of the ledger's specification ("Words", "Classes of a unit"). Every key holds `run_id`, so one
Spark job judges one run or thousands. Times are run time in nanoseconds: the row's own plus its clock's offset.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerdrill.analysis.tables import Tables
from brokerdrill.analysis.timeline import NEVER

# The subscription of a queue's units, and of a delivery on a topic whose row names none.
NO_SUBSCRIPTION = ""

NEITHER, POSSIBLY, PROCESSED = 0, 1, 2

_KEPT = (
    "address",
    "subscription",
    "message_id",
    "attempt",
    "key",
    "txn",
    "delivery",
    "redelivered",
    "durable",
    "payload_sha",
    "broker",
    "instance",
)


def merge_rows(raw: DataFrame, clocks: DataFrame) -> DataFrame:
    """Merge the rows of one operation (same run_id, client, op_id), in any order.

    `raw` has the contract's columns, and from the loader `_problem`, `_file`, `_raw`, `_line` (null on good rows);
    rows with a problem stay apart. Returns one row an operation: run_id, client, op_id, op, outcome, session, start,
    end (run time; end null: the call had not returned), u (its clock's uncertainty), placed (its clock is in
    run.json), expires, the other columns of the contract, and `_conflict` (text, null where the rows agree).

    ok or fail beats unknown, a set end beats null, other columns keep what is not null; where two rows differ in a
    set value the earliest start, the latest end and otherwise the smaller value stand, so that the order of rows does
    not matter.
    """
    loader = [name for name in ("_problem", "_file", "_raw", "_line") if name in raw.columns]
    offset = F.coalesce("offset", F.lit(0))
    timed = raw.join(F.broadcast(clocks), ["run_id", "clock"], "left")
    ok = F.max(F.col("outcome") == "ok")
    fail = F.max(F.col("outcome") == "fail")
    merged = timed.groupBy("run_id", "client", "op_id", *loader).agg(
        F.min("op").alias("op"),
        F.max("op").alias("_other_op"),
        F.max("outcome").alias("_outcome"),
        ok.alias("_ok"),
        fail.alias("_fail"),
        F.max("session").alias("session"),
        F.min(F.col("start_ns") + offset).alias("start"),
        F.max(F.col("end_ns") + offset).alias("end"),
        F.max(F.coalesce("clock_u", F.lit(0))).alias("u"),
        F.min(F.col("offset").isNotNull()).alias("placed"),
        F.max(F.col("expires_ns") + offset).alias("expires"),
        *(F.min(name).alias(name) for name in _KEPT),
    )
    return merged.select(
        "*",
        F.when(F.col("_ok"), "ok")
        .when(F.col("_fail"), "fail")
        .when(F.col("_outcome").isNotNull(), "unknown")
        .alias("outcome"),
        _conflict().alias("_conflict"),
    ).drop("_ok", "_fail", "_other_op", "_outcome")


def _conflict() -> Column:
    """Text of what is wrong with a merged operation; null where nothing is."""
    send = F.col("op") == "send"
    received = (F.col("op") == "receive") & F.coalesce("_ok", F.lit(False))
    return (
        F.when(F.col("_ok") & F.col("_fail"), "outcome is ok in one row and fail in another")
        .when(F.col("op") != F.col("_other_op"), F.concat(F.lit("op is "), "op", F.lit(" and "), "_other_op"))
        .when(F.col("op").isNull(), "op is missing")
        .when(F.col("_outcome").isNull(), "outcome is missing")
        .when(F.col("session").isNull(), "session is missing")
        .when(F.col("start").isNull(), "start_ns is missing")
        .when((send | received) & F.col("address").isNull(), "address is missing")
        .when((send | received) & F.col("message_id").isNull(), "message_id is missing")
        .when((F.col("op") == "ack") & F.col("delivery").isNull(), "delivery is missing")
    )


def single_rows(raw: DataFrame, clocks: DataFrame) -> DataFrame:
    """As `merge_rows` without `_conflict` and the loader's columns, for rows that are each the only one of their
    operation."""
    offset = F.coalesce("offset", F.lit(0))
    return raw.join(F.broadcast(clocks), ["run_id", "clock"], "left").select(
        "run_id",
        "client",
        "op_id",
        "op",
        "session",
        (F.col("start_ns") + offset).alias("start"),
        (F.col("end_ns") + offset).alias("end"),
        F.coalesce("clock_u", F.lit(0)).alias("u"),
        F.col("offset").isNotNull().alias("placed"),
        (F.col("expires_ns") + offset).alias("expires"),
        *_KEPT,
        "outcome",
    )


def incomplete() -> Column:
    """Whether a row lacks what its operation needs; another row of the operation may have it."""
    send = F.col("op") == "send"
    received = (F.col("op") == "receive") & (F.col("outcome") == "ok")
    missing = F.lit(False)
    for name in ("op", "outcome", "session", "start_ns"):
        missing = missing | F.col(name).isNull()
    return F.coalesce(
        missing
        | ((send | received) & (F.col("address").isNull() | F.col("message_id").isNull()))
        | ((F.col("op") == "ack") & F.col("delivery").isNull()),
        F.lit(True),
    )


def transactions(ops: DataFrame) -> DataFrame:
    """One row a transaction of the operations given: run_id, txn, t_invoked (a prepare or commit was), t_commit (a
    commit was), t_ok, t_open (a commit is ok, is unknown), t_rolled_back, t_end (when the first commit that is ok
    ended)."""
    commit = F.col("op") == "commit"
    return (
        ops.where(F.col("txn").isNotNull())
        .groupBy("run_id", "txn")
        .agg(
            F.max(F.col("op").isin("prepare", "commit")).alias("t_invoked"),
            F.max(commit).alias("t_commit"),
            F.max(commit & (F.col("outcome") == "ok")).alias("t_ok"),
            F.max(commit & (F.col("outcome") == "unknown")).alias("t_open"),
            F.max((F.col("op") == "rollback") & (F.col("outcome") == "ok")).alias("t_rolled_back"),
            F.min(F.when(commit & (F.col("outcome") == "ok"), settled())).alias("t_end"),
        )
    )


def settled() -> Column:
    """When an operation ended, as far as is known."""
    return F.coalesce("end", "start")


def transaction_states(unnamed_ok: bool = False) -> dict[str, Column]:
    """Columns of operations joined with `transactions`: `attempt_state` (ok, fail, unknown; the outcome of a send as an
    attempt) and `txn_state` (what the commit decides for a delivery: NEITHER, POSSIBLY, PROCESSED; null outside a
    transaction).

    A transaction that the join did not find was never ended; with `unnamed_ok` it was committed.
    """
    unnamed = F.lit(unnamed_ok)
    invoked, commits, committed = (F.coalesce(name, unnamed) for name in ("t_invoked", "t_commit", "t_ok"))
    opened, rolled_back = (F.coalesce(name, F.lit(False)) for name in ("t_open", "t_rolled_back"))
    all_failed = commits & ~committed & ~opened
    in_txn = F.col("txn").isNotNull()
    outcome = F.col("outcome")
    state = (
        F.when(~in_txn, outcome)
        .when((outcome == "fail") | rolled_back | ~invoked | all_failed, "fail")
        .when((outcome == "ok") & committed, "ok")
        .otherwise("unknown")
    )
    decided = (
        F.when(~in_txn, F.lit(None).cast("int"))
        .when(rolled_back, NEITHER)
        .when(committed, PROCESSED)
        .when(opened, POSSIBLY)
        .otherwise(NEITHER)
    )
    return {"attempt_state": F.when(F.col("op") == "send", state), "txn_state": decided}


def acked_at() -> Column:
    """When an attempt that is ok was acknowledged: its end, in a transaction the end of the first commit that is ok."""
    return F.when(F.col("txn").isNotNull(), F.coalesce("t_end", settled())).otherwise(settled())


def with_transactions(merged: DataFrame) -> DataFrame:
    """Add to each operation what became of its transaction: the columns of `transaction_states`, and `acked_at`."""
    ends = transactions(merged.where(F.col("op").isin("prepare", "commit", "rollback")))
    return merged.join(ends, ["run_id", "txn"], "left").select(
        *merged.columns,
        *(column.alias(name) for name, column in transaction_states().items()),
        acked_at().alias("acked_at"),
    )


def good_ops(staged: DataFrame) -> DataFrame:
    """Return the operations that have no problem, without the loader's columns."""
    extra = [name for name in ("_problem", "_file", "_raw", "_line", "_conflict") if name in staged.columns]
    clean = staged.where(F.col("_problem").isNull()) if "_problem" in staged.columns else staged
    return clean.drop(*extra)


def dead_letter_addresses(tables: Tables) -> DataFrame:
    """Return run_id, address of every dead-letter address."""
    return F.broadcast(tables.dead_letters.select("run_id", F.col("dead_letter").alias("address")).distinct())


def deliveries(ops: DataFrame, tables: Tables) -> DataFrame:
    """One row a delivery (a receive that is ok, not on a dead-letter address): run_id, address, message_id, sub (its
    subscription, '' for none), at (when the receive ended), client, session, op_id, redelivered, payload_sha, and state
    (NEITHER, POSSIBLY or PROCESSED)."""
    receive = F.col("op") == "receive"
    rows = ops.where((receive & (F.col("outcome") == "ok")) | ((F.col("op") == "ack") & F.col("delivery").isNotNull()))
    own = F.struct(
        F.coalesce("end", "start").alias("at"),
        "client",
        "op_id",
        "session",
        "address",
        "message_id",
        F.coalesce("subscription", F.lit(NO_SUBSCRIPTION)).alias("sub"),
        F.coalesce("redelivered", F.lit(False)).alias("redelivered"),
        "payload_sha",
    )
    ack_state = F.when(F.col("outcome") == "ok", PROCESSED).when(F.col("outcome") == "unknown", POSSIBLY)
    name = F.coalesce(F.concat(F.lit("d"), "delivery"), F.concat_ws("/", F.lit("o"), "client", "op_id"))
    grouped = rows.groupBy("run_id", name.alias("name")).agg(
        F.min(F.when(receive, own)).alias("r"),
        F.max("txn_state").alias("by_txn"),
        F.max(F.when(~receive, F.coalesce(ack_state, F.lit(NEITHER)))).alias("by_ack"),
    )
    found = grouped.where(F.col("r").isNotNull()).select(
        "run_id", "r.*", F.coalesce("by_txn", "by_ack", F.lit(NEITHER)).alias("state")
    )
    return found.join(dead_letter_addresses(tables), ["run_id", "address"], "left_anti")


def evidence(ops: DataFrame, tables: Tables) -> DataFrame:
    """One row for each original address that a message found on a dead-letter address may have come from: run_id,
    address (the original), message_id, sub, dead_letter."""
    seen = ops.where(
        F.col("op").isin("browse", "receive") & (F.col("outcome") == "ok") & F.col("message_id").isNotNull()
    ).select(
        "run_id",
        F.col("address").alias("dead_letter"),
        "message_id",
        F.coalesce("subscription", F.lit(NO_SUBSCRIPTION)).alias("sub"),
    )
    return seen.join(F.broadcast(tables.dead_letters), ["run_id", "dead_letter"]).select(
        "run_id", "address", "message_id", "sub", "dead_letter"
    )


def messages(attempts: DataFrame, delivered: DataFrame, found_dead: DataFrame) -> DataFrame:
    """One row a message (run_id, address, message_id) that was attempted, delivered, or perhaps found dead: of the
    sends `attempts`, the `deliveries` and the `evidence` given.

    Columns: attempts, state (acknowledged, unknown, failed; null: never attempted), durable, expires (null: never),
    shas (of its sends), began (first start) and over (last end) of the attempts that may have taken effect, producer,
    key; delivered: array of {sub, count, processed, possibly, flagged, shas, first {at, client, op_id, session,
    redelivered}}; found: array of {sub, dead_letter}.
    """
    live = F.col("attempt_state") != "fail"
    sends = attempts.select(
        "run_id",
        "address",
        "message_id",
        F.struct(
            F.col("attempt_state").alias("state"),
            F.coalesce("durable", F.lit(True)).alias("durable"),
            F.coalesce("expires", F.lit(NEVER)).alias("expires"),
            F.col("payload_sha").alias("sha"),
            F.when(live, F.col("start")).alias("began"),
            F.when(live, F.coalesce("end", F.lit(NEVER))).alias("over"),
            F.when(live, F.col("client")).alias("producer"),
            F.when(live, F.col("key")).alias("key"),
        ).alias("send"),
    )
    per_unit = (
        delivered.groupBy("run_id", "address", "message_id", "sub")
        .agg(
            F.count("*").alias("count"),
            F.count_if(F.col("state") == PROCESSED).alias("processed"),
            F.count_if(F.col("state") == POSSIBLY).alias("possibly"),
            F.max("redelivered").alias("flagged"),
            F.collect_set("payload_sha").alias("shas"),
            F.min(F.struct("at", "client", "op_id", "session", "redelivered")).alias("first"),
        )
        .select(
            "run_id",
            "address",
            "message_id",
            F.struct("sub", "count", "processed", "possibly", "flagged", "shas", "first").alias("delivery"),
        )
    )
    dead = found_dead.select("run_id", "address", "message_id", F.struct("sub", "dead_letter").alias("dead"))
    union = sends.unionByName(per_unit, allowMissingColumns=True).unionByName(dead, allowMissingColumns=True)
    state = (
        F.when(F.max(F.col("send.state") == "ok"), "acknowledged")
        .when(F.max(F.col("send.state") == "unknown"), "unknown")
        .when(F.count("send") > 0, "failed")
    )
    return union.groupBy("run_id", "address", "message_id").agg(
        F.count("send").alias("attempts"),
        state.alias("state"),
        F.max("send.durable").alias("durable"),
        F.nullif(F.max("send.expires"), F.lit(NEVER)).alias("expires"),
        F.collect_set("send.sha").alias("shas"),
        F.min("send.began").alias("began"),
        F.max("send.over").alias("over"),
        F.min("send.producer").alias("producer"),
        F.min("send.key").alias("key"),
        F.collect_list("delivery").alias("delivered"),
        F.collect_set("dead").alias("found"),
    )


def topics(ops: DataFrame, tables: Tables) -> DataFrame:
    """One row a topic (an address where any row has a subscription): run_id, address, subs: array of {sub, since (end
    of the first subscribe that is ok and holds until the drain, null: none), gone (an unsubscribe ended before the
    drain)}.

    A subscribe with durable = false holds only until its client's next close. Where no drain was recorded, every time
    is before it.
    """
    named = ops.where(F.col("subscription").isNotNull() & F.col("address").isNotNull()).join(
        dead_letter_addresses(tables), ["run_id", "address"], "left_anti"
    )
    before_drain = F.coalesce("end", "start") < F.coalesce("drain_begin", F.lit(NEVER))
    drain = F.broadcast(tables.phase.select("run_id", "drain_begin"))
    closed = (
        ops.where((F.col("op") == "close") & (F.col("outcome") != "fail"))
        .join(drain, "run_id", "left")
        .where(before_drain)
        .groupBy("run_id", "client")
        .agg(F.max("start").alias("closed_at"))
    )
    holds = ~((F.col("durable") == F.lit(False)) & F.coalesce(F.col("closed_at") > F.col("start"), F.lit(False)))
    subscribed = (F.col("op") == "subscribe") & (F.col("outcome") == "ok") & F.coalesce(holds, F.lit(True))
    return (
        named.join(drain, "run_id", "left")
        .join(closed, ["run_id", "client"], "left")
        .groupBy("run_id", "address", F.col("subscription").alias("sub"))
        .agg(
            F.min(F.when(subscribed, F.coalesce("end", "start"))).alias("since"),
            F.max((F.col("op") == "unsubscribe") & (F.col("outcome") != "fail") & before_drain).alias("gone"),
        )
        .groupBy("run_id", "address")
        .agg(F.collect_list(F.struct("sub", "since", "gone")).alias("subs"))
    )


def units(found: DataFrame, topic: DataFrame, tables: Tables) -> DataFrame:
    """The class of each unit: run_id, address, message_id, sub, class, count and processed (of its deliveries), flagged
    (the broker flagged a delivery), in_doubt (an acknowledgement was in doubt).

    `found` is of `messages`, `topic` of `topics`.
    """
    # On a queue every delivery is of the one unit; on a topic the expected subscriptions come first, then the others.
    rows = found.join(F.broadcast(topic), ["run_id", "address"], "left")
    is_topic = F.col("subs").isNotNull()
    live = F.col("state").isin("acknowledged", "unknown")
    expected = F.when(
        is_topic,
        F.transform(F.filter("subs", lambda s: (s["since"] < F.col("began")) & ~s["gone"]), lambda s: s["sub"]),
    ).otherwise(F.array(F.lit(NO_SUBSCRIPTION)))
    # A live message may reach other subscriptions too: such a unit counts only once it is processed.
    others = F.transform(
        F.filter("delivered", lambda d: ~F.coalesce(live, F.lit(False)) | (d["processed"] > 0)), lambda d: d["sub"]
    )
    # Only a message that is known here can have come from here to a dead-letter address; `_orphans` has the others.
    rows = rows.where((F.col("attempts") > 0) | (F.size("delivered") > 0)).withColumn(
        "unit_subs", F.array_distinct(F.when(is_topic, F.concat(expected, others)).otherwise(expected))
    )
    nowhere = (F.size("unit_subs") == 0) & (F.size("found") > 0) & ~F.coalesce(live, F.lit(False))
    exploded = rows.withColumn(
        "sub", F.explode(F.when(nowhere, F.array(F.lit(NO_SUBSCRIPTION))).otherwise(F.col("unit_subs")))
    )
    here = F.try_element_at(F.filter("delivered", lambda d: d["sub"] == F.col("sub")), F.lit(1))
    dead = F.exists(
        "found",
        lambda f: nowhere | ~is_topic | (f["sub"] == NO_SUBSCRIPTION) | (f["sub"] == F.col("sub")),
    )
    single = exploded.select(
        "run_id",
        "address",
        "message_id",
        "sub",
        "state",
        "durable",
        "expires",
        "shas",
        here.alias("d"),
        dead.alias("dead"),
    )
    lost = _orphans(found)
    classified = (
        single.unionByName(lost)
        .join(F.broadcast(tables.drained), ["run_id", "address"], "left")
        .join(F.broadcast(tables.phase.select("run_id", "drain_end", "run_end")), "run_id", "left")
    )
    zero = F.lit(0)
    return classified.select(
        "run_id",
        "address",
        "message_id",
        "sub",
        _class().alias("class"),
        F.coalesce("d.count", zero).alias("count"),
        F.coalesce("d.processed", zero).alias("processed"),
        F.coalesce("d.flagged", F.lit(False)).alias("flagged"),
        (F.coalesce("d.possibly", zero) > 0).alias("in_doubt"),
    )


def _orphans(found: DataFrame) -> DataFrame:
    """Units of messages on a shared dead-letter address that no address mapped to it ever knew; they keep that
    address."""
    known = (F.col("attempts") > 0) | (F.size("delivered") > 0)
    suspects = (
        found.select("run_id", "message_id", known.alias("known"), F.explode("found").alias("f"))
        .groupBy("run_id", F.col("f.dead_letter").alias("address"), "message_id")
        .agg(F.max("known").alias("known"))
        .where(~F.col("known"))
    )
    types = {field.name: field.dataType for field in found.schema.fields}
    nothing = {name: F.lit(None).cast(types[name]) for name in ("state", "durable", "expires")}
    return suspects.select(
        "run_id",
        "address",
        "message_id",
        F.lit(NO_SUBSCRIPTION).alias("sub"),
        *(column.alias(name) for name, column in nothing.items()),
        F.lit(None).cast(types["shas"]).alias("shas"),
        F.lit(None).cast(types["delivered"].elementType).alias("d"),
        F.lit(True).alias("dead"),
    )


def _class() -> Column:
    """The class of a unit: the first of the specification's table that applies."""
    count, processed, possibly = (F.coalesce(f"d.{name}", F.lit(0)) for name in ("count", "processed", "possibly"))
    delivered = count > 0
    dead = F.coalesce("dead", F.lit(False))
    unhandled = (processed == 0) & (possibly == 0)
    acknowledged, unknown = (F.coalesce(F.col("state") == s, F.lit(False)) for s in ("acknowledged", "unknown"))
    failed, never = F.coalesce(F.col("state") == "failed", F.lit(False)), F.col("state").isNull()
    wrong = (
        (F.size(F.coalesce("shas", F.array().cast("array<string>"))) > 0)
        & delivered
        & (F.size(F.array_except("d.shas", "shas")) > 0)
    )
    drained = F.coalesce("drained", F.lit(False))
    # Without a recorded end of the drain, a drained address was so by the run's end; an undrained one expires nothing.
    drain_end = F.coalesce("drain_end", F.when(drained, F.col("run_end")))
    gone = (acknowledged | (unknown & delivered)) & unhandled
    return (
        F.when(wrong, "corrupted")
        .when(failed & (delivered | dead), "phantom")
        .when(never, "unexpected")
        .when(processed > 1, "duplicated")
        .when((acknowledged | unknown) & unhandled & dead, "dead_lettered")
        .when(acknowledged & unhandled & (F.col("expires") < drain_end), "expired")
        .when(gone & drained & ~F.col("durable"), "lost_nonpersistent")
        .when(gone & drained, "lost")
        .when(gone, "unseen")
        .when((count > 1) & (processed <= 1), "redelivered")
        .when(unknown & delivered, "recovered")
        .when(unknown, "unresolved")
        .when(failed, "rejected")
        .otherwise("ok")
    )


def server() -> Column:
    """Who served an operation: the instance, where it is not known the broker's host."""
    return F.coalesce("instance", "broker")


def served(rows: DataFrame, tables: Tables) -> DataFrame:
    """Add to operations who served them: `server` (where they have it not yet), `store` and `epoch` (the start of the
    epoch of that instance in which the operation ended, give or take the epoch's uncertainty; null: none).

    The store is the instance's only one, else its epoch's; null where neither is known.
    """
    within = F.col("o.start") <= F.col("s.span_to")
    return (
        (rows if "server" in rows.columns else rows.withColumn("server", server()))
        .withColumn("_at", F.coalesce("end", "start"))
        .alias("o")
        .join(
            F.broadcast(tables.served).alias("s"),
            (F.col("o.run_id") == F.col("s.run_id"))
            & (F.col("o.server") == F.col("s.server"))
            & (F.col("o._at") >= F.col("s.span_from"))
            & (F.col("o._at") < F.col("s.span_next")),
            "left",
        )
        .select(
            "o.*",
            F.when(within, F.col("s.epoch")).alias("epoch"),
            F.coalesce("s.home", F.when(within, F.col("s.e_store"))).alias("store"),
        )
        .drop("_at")
    )


def ops_ends(staged: DataFrame) -> DataFrame:
    """One row a run: run_id, ops_end (the last time of its operations), unplaced (an operation's clock is not in
    run.json)."""
    return (
        staged.where(F.col("start").isNotNull())
        .groupBy("run_id")
        .agg(F.max(F.coalesce("end", "start")).alias("ops_end"), F.max(~F.col("placed")).alias("unplaced"))
    )
