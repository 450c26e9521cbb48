"""The way of a large ledger: the same frames, by fewer and narrower shuffles, and nothing wide is ever stored.

Most operations are told in one row, most transactions are committed, and most messages are sent once, in order, and
processed once. What is proven to be so by cheap passes over numbers goes no further; the rest, however much it is, goes
the whole way of `units`, which alone decides. A pass may take a case for unusual that is not, never the other way
round: hashes serve only where a collision does just that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from brokerdrill.analysis import units as u
from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.problems import problem_rows
from brokerdrill.analysis.spark import cut, few, keep
from brokerdrill.analysis.tables import Tables
from brokerdrill.analysis.timeline import NEVER

# Blocks of 64 operations of a client, of which some have several rows: a hash and a mask each.
MOST_BLOCKS = 2_000_000
MESSAGE = ("run_id", "address", "message_id")


# --- from rows to operations ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scanned:
    """What a first pass over the rows tells: a row a run (`run_id`, ops_end, unplaced, and counts of rows: bad,
    lacking, acks, subscribed), and rows of `problem_rows`."""

    runs: Sequence[Row]
    problems: Sequence[Row]

    def total(self, name: str) -> int:
        return sum(row[name] for row in self.runs)


def scan(raw: DataFrame, clocks: DataFrame) -> Scanned:
    """Look at every row once."""
    offset = F.coalesce("offset", F.lit(0))
    bad = F.col("_problem").isNotNull() if "_problem" in raw.columns else F.lit(False)
    last = F.coalesce("end_ns", "start_ns") + offset
    runs = (
        raw.join(F.broadcast(clocks), ["run_id", "clock"], "left")
        .groupBy("run_id")
        .agg(
            F.max(F.when(~bad, last)).alias("ops_end"),
            F.max(~bad & F.col("start_ns").isNotNull() & F.col("offset").isNull()).alias("unplaced"),
            F.count_if(bad).alias("bad"),
            F.count_if(~bad & u.incomplete()).alias("lacking"),
            F.count_if(F.col("op") == "ack").alias("acks"),
            F.count_if(F.col("subscription").isNotNull()).alias("subscribed"),
        )
        .collect()
    )
    problems = problem_rows(raw).collect() if any(row.bad for row in runs) else []
    return Scanned(runs, problems)


def _block() -> Column:
    return F.xxhash64("run_id", "client", F.shiftright("op_id", 6))


def _bit() -> Column:
    return F.call_function("shiftleft", F.lit(1).cast("long"), (F.col("op_id") % 64 + 64).cast("int") % 64)


def _repeated(raw: DataFrame) -> DataFrame:
    """Which operations have several rows: block (a hash of 64 operations of a client), mask (a bit for each).

    A block's bits say which of its operations have a row, and which an odd number of rows; where no operation has more
    than two, together they say which have two, else all are taken. A collision takes some that have one.
    """
    bits = F.bit_or(_bit())
    return (
        raw.groupBy("run_id", "client", F.shiftright("op_id", 6).alias("part"))
        .agg(F.count("*").alias("n"), bits.alias("any"), F.bit_xor(_bit()).alias("odd"))
        .where(F.col("n") != F.bit_count("any"))
        .select(
            F.xxhash64("run_id", "client", "part").alias("block"),
            F.col("any").bitwiseAND(F.bitwise_not("odd")).alias("even"),
            "any",
            "n",
        )
        .select(
            "block",
            F.when(F.bit_count("any") + F.bit_count("even") == F.col("n"), F.col("even"))
            .otherwise(F.col("any"))
            .alias("mask"),
        )
        .groupBy("block")
        .agg(F.bit_or("mask").alias("mask"))
    )


def operations(raw: DataFrame, clocks: DataFrame, scanned: Scanned) -> tuple[DataFrame, DataFrame]:
    """Return the merged operations (`merge_rows` without the loader's columns) of the rows without a problem, and
    those of them whose rows contradict each other or lack something, as `problem_rows`."""
    loader = [name for name in ("_problem", "_file", "_raw", "_line", "_src", "_text") if name in raw.columns]
    clean = raw.where(F.col("_problem").isNull()) if scanned.total("bad") else raw
    clean = clean.drop(*loader)
    repeated = cut(_repeated(clean))
    blocks = repeated.count()
    if blocks > MOST_BLOCKS:
        merged = cut(u.merge_rows(clean, clocks), StorageLevel.DISK_ONLY)
        return merged.drop("_conflict"), _conflicts(merged)
    alone = clean
    if blocks:
        told = F.broadcast(repeated)
        several = (_block() == F.col("block")) & (_bit().bitwiseAND(F.col("mask")) != 0)
        alone = clean.join(told, several, "left_anti")
        merged = cut(u.merge_rows(clean.join(told, several, "left_semi"), clocks), StorageLevel.DISK_ONLY)
        conflicts = _conflicts(merged)
        ops = u.single_rows(alone, clocks).unionByName(merged.drop("_conflict"))
    else:
        ops = u.single_rows(alone, clocks)
        conflicts = None
    if scanned.total("lacking"):
        lacking = _conflicts(u.merge_rows(alone.where(u.incomplete()), clocks))
        conflicts = lacking if conflicts is None else conflicts.unionByName(lacking)
    return ops, conflicts if conflicts is not None else _conflicts(u.merge_rows(clean.where(F.lit(False)), clocks))


def _conflicts(merged: DataFrame) -> DataFrame:
    nothing = F.lit(None).cast("string")
    return problem_rows(
        merged.where(F.col("_conflict").isNotNull()).withColumns(
            {"_problem": nothing, "_file": nothing, "_raw": nothing, "_line": F.lit(None).cast("long")}
        )
    )


# --- frames ---------------------------------------------------------------------------------------------------------

# What is kept of a send: what the promises ask for that look at every one. All else is read again where it is needed.
_SENT = (
    "run_id", "client", "op_id", "outcome", "start", "end", "address", "message_id", "txn", "attempt_state",
)  # fmt: skip


def large_frames(ops: DataFrame, tables: Tables, scanned: Scanned, *, whole: bool = False) -> Frames:
    """Return the `Frames` of merged operations. `messages` and `units` leave out the plain messages, which
    `Frames.plain` has; `whole`: they have all.

    Operations are not stored: who looks at them reads the few columns that it needs from the ledger itself. Only of the
    sends, whose acknowledgement may be that of their transaction, a narrow copy is kept."""
    ended = cut(u.transactions(ops), StorageLevel.DISK_ONLY)
    odd = cut(ended.where(~F.col("t_ok") | F.col("t_rolled_back")).drop("t_end"))
    judged = ops.join(few(odd, odd.count()), ["run_id", "txn"], "left").select(
        *ops.columns, *(column.alias(name) for name, column in u.transaction_states(unnamed_ok=True).items())
    )
    attempts = judged.where(F.col("op") == "send")
    received = judged.where((F.col("op") == "receive") & (F.col("outcome") == "ok")).join(
        u.dead_letter_addresses(tables), ["run_id", "address"], "left_anti"
    )
    delivered = _deliveries(received, judged, scanned.total("acks"))
    dead = cut(u.evidence(judged, tables))
    topic = cut(u.topics(judged if scanned.total("subscribed") else judged.where(F.lit(False)), tables))
    found = keep(_found(attempts, delivered, dead, topic))
    if whole:
        exact = cut(u.messages(attempts, delivered, dead))
    else:
        suspects = cut(found.where(~F.col("plain")).select(*MESSAGE))
        exact = cut(_messages_of(suspects, suspects.count(), attempts, delivered, dead))
    columns = (*_SENT, "durable", "expires") if whole else _SENT
    sent = attempts.select(*columns, u.server().alias("server"))
    return Frames(
        ops=judged,
        tables=tables,
        messages=exact,
        units=cut(u.units(exact, topic, tables)),
        sends=keep(u.served(_acknowledged(sent, ended), tables)).withColumn("op", F.lit("send")),
        receives=u.served(received, tables),
        plain=None if whole else found.where("plain"),
        disordered=None if whole else _Disorder(found, attempts, delivered, dead, exact),
        large=True,
    )


def _acknowledged(attempts: DataFrame, ended: DataFrame) -> DataFrame:
    """Add `units.acked_at` to sends, of the transactions `ended`."""
    # A send outside a transaction finds nothing; `apart` keeps all of those from going to one task.
    apart = F.when(F.col("txn").isNull(), F.col("op_id")).otherwise(0)
    ends = ended.select("run_id", "txn", "t_end", F.lit(0).cast("long").alias("apart"))
    return (
        attempts.withColumn("apart", apart)
        .join(ends.hint("shuffle_hash"), ["run_id", "txn", "apart"], "left")
        .withColumn("acked_at", u.acked_at())
        .drop("apart", "t_end")
    )


def _deliveries(received: DataFrame, judged: DataFrame, acks: int) -> DataFrame:
    """As `units.deliveries`: acknowledgements, where there are any, are counted by delivery and looked up."""
    rows = received
    by_ack, by_txn = F.lit(None).cast("int"), F.col("txn_state")
    if acks:
        state = (
            F.when(F.col("outcome") == "ok", u.PROCESSED)
            .when(F.col("outcome") == "unknown", u.POSSIBLY)
            .otherwise(u.NEITHER)
        )
        told = (
            judged.where((F.col("op") == "ack") & F.col("delivery").isNotNull())
            .groupBy("run_id", "delivery")
            .agg(F.max(state).alias("by_ack"), F.max("txn_state").alias("ack_txn"))
        )
        rows = rows.join(few(told, acks), ["run_id", "delivery"], "left")
        by_ack, by_txn = F.col("by_ack"), F.greatest("txn_state", "ack_txn")
    return rows.select(
        *MESSAGE,
        F.coalesce("subscription", F.lit(u.NO_SUBSCRIPTION)).alias("sub"),
        u.settled().alias("at"),
        "client",
        "session",
        "op_id",
        F.coalesce("redelivered", F.lit(False)).alias("redelivered"),
        "payload_sha",
        F.coalesce(by_txn, by_ack, F.lit(u.NEITHER)).alias("state"),
    )


def _found(sends: DataFrame, delivered: DataFrame, dead: DataFrame, topic: DataFrame) -> DataFrame:
    """One row a message: run_id, address, message_id, plain (sent once, acknowledged; delivered once, not flagged,
    processed, with the payload that was sent; on a queue; never found dead), and of a plain one began, over, at (when
    it was delivered), by (a hash of producer and key), to (of consumer and session)."""
    sha = F.when(F.col("payload_sha").isNotNull(), F.xxhash64("payload_sha"))
    none = F.lit(None).cast("long")
    zero, one = F.lit(0), F.lit(1)

    def row(source: DataFrame, **columns: Column) -> DataFrame:
        default = {"sent": zero, "got": zero, "odd": one, "sha": none, "began": none, "over": none}
        default |= {"at": none, "by": none, "to": none}
        return source.select(*MESSAGE, *(columns.get(name, value).alias(name) for name, value in default.items()))

    rows = (
        row(
            sends,
            sent=one,
            odd=F.when(F.col("attempt_state") == "ok", 0).otherwise(1),
            sha=sha,
            began=F.col("start"),
            over=F.coalesce("end", F.lit(NEVER)),
            by=F.xxhash64("client", "key"),
        )
        .unionByName(
            row(
                delivered,
                got=one,
                odd=F.when((F.col("state") == u.PROCESSED) & ~F.col("redelivered"), 0).otherwise(1),
                sha=sha,
                at=F.col("at"),
                to=F.xxhash64("client", "session"),
            )
        )
        .unionByName(row(dead))
    )
    # Most messages have one row on each side: summed before the shuffle they would be as many and wider.
    summed = (
        rows.repartition(*MESSAGE)
        .groupBy(*MESSAGE)
        .agg(
            F.sum("sent").alias("sent"),
            F.sum("got").alias("got"),
            F.sum("odd").alias("odd"),
            F.min("sha").alias("sha"),
            F.max("sha").alias("other_sha"),
            *(F.max(name).alias(name) for name in ("began", "over", "at", "by", "to")),
        )
    )
    same = F.coalesce(F.col("sha") == F.col("other_sha"), F.lit(True))
    queue = F.col("on_topic").isNull()
    plain = (F.col("sent") == 1) & (F.col("got") == 1) & (F.col("odd") == 0) & same & queue
    topics = F.broadcast(topic.select("run_id", "address", F.lit(True).alias("on_topic")))
    return summed.join(topics, ["run_id", "address"], "left").select(
        *MESSAGE, plain.alias("plain"), "began", "over", "at", "by", "to"
    )


def _messages_of(wanted: DataFrame, count: int, sends: DataFrame, delivered: DataFrame, dead: DataFrame) -> DataFrame:
    """`units.messages` of the messages `wanted` (run_id, address, message_id), which are `count`."""
    keys = list(MESSAGE)
    chosen = few(wanted, count)
    return u.messages(
        sends.join(chosen, keys, "left_semi"),
        delivered.join(chosen, keys, "left_semi"),
        dead.join(chosen, keys, "left_semi"),
    )


class _Disorder:
    """Which messages the check of order has to look at."""

    def __init__(
        self, found: DataFrame, sends: DataFrame, delivered: DataFrame, dead: DataFrame, exact: DataFrame
    ) -> None:
        self._found = found
        self._parts = (sends, delivered, dead)
        self._exact = exact

    def __call__(self, scopes: Collection[str]) -> tuple[DataFrame | None, DataFrame]:
        """Return the messages (`units.messages`) of all groups in which one is late, or may be, in one of `scopes`
        (None: no group is so), and evidence: run_id, scope of the runs with two messages to compare.

        A group is what `ordered` compares: the first deliveries of one producer and key in one subscription, in scope
        `session` of one consumer's session. A message of which it is not plain counts with each delivery's first.
        """
        plain = self._found.where("plain").select(*MESSAGE, "began", "over", "at", "by", "to", F.lit("").alias("sub"))
        others = (
            self._exact.where(F.col("state").isin("acknowledged", "unknown"))
            .select(*MESSAGE, "began", "over", "producer", "key", F.explode("delivered").alias("d"))
            .select(
                *MESSAGE,
                "began",
                "over",
                F.col("d.first.at").alias("at"),
                F.xxhash64("producer", "key").alias("by"),
                F.xxhash64("d.first.client", "d.first.session").alias("to"),
                F.col("d.sub").alias("sub"),
            )
        )
        rows = plain.unionByName(others)
        found = []
        evidence = []
        for scope in sorted(scopes):
            within = ["by", "to"] if scope == "session" else ["by"]
            grouped = rows.select(
                "run_id", "began", "over", "at", F.xxhash64("run_id", "address", "sub", *within).alias("g")
            )
            before = Window.partitionBy("g").orderBy("at").rowsBetween(Window.unboundedPreceding, -1)
            told = (
                grouped.withColumn("late", F.max("began").over(before) > F.col("over"))
                .groupBy("g")
                .agg(
                    F.min("run_id").alias("run_id"),
                    F.max("late").alias("late"),
                    (F.min("over") < F.max("began")).alias("comparable"),
                )
            )
            told = cut(told)
            evidence.append(told.where("comparable").select("run_id", F.lit(scope).alias("scope")).distinct())
            late = told.where("late").select("g")
            hashed = rows.withColumn("g", F.xxhash64("run_id", "address", "sub", *within))
            found.append(hashed.join(few(late, late.count()), "g", "left_semi").select(*MESSAGE))
        wanted = found[0]
        for other in found[1:]:
            wanted = wanted.unionByName(other)
        wanted = cut(wanted.distinct())
        all_evidence = evidence[0]
        for other in evidence[1:]:
            all_evidence = all_evidence.unionByName(other)
        count = wanted.count()
        return cut(_messages_of(wanted, count, *self._parts)) if count else None, all_evidence
