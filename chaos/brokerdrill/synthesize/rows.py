"""The operations of a `SynthesisPlan` as a DataFrame: arithmetic on `range`, so that Spark alone makes any number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from brokerdrill.ledger.contract import OP_COLUMNS
from brokerdrill.synthesize.plan import (
    BATCH,
    DEAD_LETTERS,
    LOAD_BEGIN,
    MS,
    STORES,
    VISITS,
    S,
    SynthesisPlan,
    cumulative,
    instance,
)

TYPES = {"string": "string", "long": "bigint", "int": "int", "boolean": "boolean"}
RUN_ID = "synthesized"
ROWS_A_PARTITION = 250_000
# One send in this many also leaves the row that was written before its call.
_INTENTS = 100
# Where in its time a transaction's parts begin (ns after its first send).
_BETWEEN, _COMMIT, _RECEIVE, _DELIVERED = 100_000, 1_100_000, 20 * MS, 22_500_000


def operations(spark: SparkSession, plan: SynthesisPlan) -> DataFrame:
    """Return all rows of the plan's operations, with the contract's columns."""
    sites = spark.createDataFrame([(site.index, site.kind) for site in plan.sites], "i long, anomaly string")
    parts = [
        _sends(spark, plan, sites),
        _intents(spark, plan, sites),
        _receives(spark, plan, sites),
        _extra(plan, sites),
        _connects(spark, plan),
        _visits(spark, plan),
        _looks(spark, plan),
        _inspections(plan, sites),
    ]
    return reduce(DataFrame.unionByName, parts)


def _row(rows: DataFrame, clock: Column, **columns: Column) -> DataFrame:
    """Select the contract's columns; absent ones are null, times are given in run time and written on `clock`."""
    offset = F.col("_offset")
    timed = {"start_ns", "end_ns", "expires_ns"}
    made = []
    for column in OP_COLUMNS:
        value = {"run_id": F.lit(RUN_ID), "clock": clock}.get(column.name, columns.get(column.name, F.lit(None)))
        if column.name in timed and column.name in columns:
            value = value - offset
        made.append(value.cast(TYPES[column.type]).alias(column.name))
    return rows.select(*made)


def _div(number: Column, by: int) -> Column:
    return F.call_function("div", number, F.lit(by))


def _switch(steps: list[tuple[int, int]], k: Column) -> Column:
    """The number that goes with the first of `steps` (from, number) that is not after `k`; before all of them 0."""
    chosen: Column | None = None
    for first, number in steps:
        chosen = F.when(k >= first, number) if chosen is None else chosen.when(k >= first, number)
    return F.lit(0) if chosen is None else chosen.otherwise(0)


def _clocked(rows: DataFrame, plan: SynthesisPlan, client: Column) -> DataFrame:
    """Add `_clock` and `_offset`: odd clients are on the second load host."""
    odd = client % 2 == 1
    first, second = plan.clocks["load1"].offset_ns, plan.clocks["load2"].offset_ns
    return rows.withColumn("_clock", F.when(odd, "load2").otherwise("load1")).withColumn(
        "_offset", F.when(odd, F.lit(second)).otherwise(F.lit(first)).cast("long")
    )


def _turns(spark: SparkSession, plan: SynthesisPlan, count: int, within: Column, k: Column) -> DataFrame:
    """`count` rows with k (the transaction), j (place in it), n (its producer's turn), p (its producer), i (the
    message), a (address), s (store), session, at (when the transaction begins), server."""
    partitions = max(1, count // ROWS_A_PARTITION)
    rows = spark.range(0, count, 1, partitions).select(k.alias("k"), within.cast("int").alias("j"))
    p = (F.col("k") % plan.producers).cast("int")
    placed = rows.select(
        "*",
        p.alias("p"),
        _div(F.col("k"), plan.producers).alias("n"),
        (F.col("k") * BATCH + F.col("j")).alias("i"),
        (p % plan.addresses).alias("a"),
        (p % plan.addresses % STORES).alias("s"),
    )
    session: Column = F.lit(0)
    for store in range(STORES):
        session = F.when(F.col("s") == store, _switch(cumulative(plan.breaks, store), F.col("k"))).otherwise(session)
    at = F.lit(LOAD_BEGIN) + F.col("k") * plan.step + _switch(cumulative(plan.breaks), F.col("k"))
    timed = placed.select("*", session.cast("int").alias("session"), at.cast("long").alias("at"))
    return timed.withColumn("server", _server(F.col("s"), F.col("session")))


def _server(store: Column, session: Column) -> Column:
    """The instance that serves a store in a session: with each change the other one."""
    name: Column = F.lit(None).cast("string")
    for number in range(STORES):
        of = F.when(session % 2 == 0, instance(number, 0)).otherwise(instance(number, 1))
        name = F.when(store == number, of).otherwise(name)
    return name


def _other_server(server: Column) -> Column:
    return F.concat(F.substring(server, 1, 7), F.when(F.substring(server, 8, 1) == "a", "b").otherwise("a"))


def _address(a: Column) -> Column:
    return F.concat(F.lit("synth.q"), a)


def _message_id() -> Column:
    return F.concat(F.lit("producer-"), "p", F.lit("-"), F.col("n") * BATCH + F.col("j"))


def _sha(i: Column) -> Column:
    return F.lower(F.hex(F.xxhash64(i)))


def _op_id() -> Column:
    return F.col("n") * (BATCH + 1) + F.col("j") + 1 + F.col("session")


def _is(*kinds: str) -> Column:
    return F.coalesce(F.col("anomaly").isin(*kinds), F.lit(False))


def _send_columns(plan: SynthesisPlan) -> Mapping[str, Column]:
    commit = F.col("j") == BATCH
    send = ~commit
    start = F.col("at") + F.when(commit, F.lit(_COMMIT)).otherwise(F.col("j") * _BETWEEN)
    took = F.when(commit, 1_500_000 + F.col("k") % 1000 * 1000).otherwise(60_000 + F.col("i") % 100 * 300)
    return {
        "client": F.concat(F.lit("producer-"), "p"),
        "op_id": _op_id(),
        "session": F.col("session"),
        "op": F.when(commit, "commit").otherwise("send"),
        "outcome": F.when(_is("phantom", "rejected"), "fail")
        .when(_is("recovered", "unresolved"), "unknown")
        .otherwise("ok"),
        "start_ns": start,
        "end_ns": F.when(~_is("recovered", "unresolved"), start + took),
        "address": F.when(send, _address(F.col("a"))),
        "message_id": F.when(send, _message_id()),
        "attempt": F.when(send, 0),
        "producer_seq": F.when(send, F.col("n") * BATCH + F.col("j")),
        "txn": F.concat(F.lit("producer-"), "p", F.lit("/t"), "n"),
        "durable": F.when(send, ~_is("lost_nonpersistent")),
        "expires_ns": F.when(_is("expired"), start + MS),
        "payload_sha": F.when(send, _sha(F.col("i"))),
        "broker": F.when(_is("intruder"), _other_server(F.col("server"))).otherwise(F.col("server")),
        "instance": F.when(_is("intruder"), _other_server(F.col("server"))).otherwise(F.col("server")),
        "protocol": F.lit("core"),
    }


def _sends(spark: SparkSession, plan: SynthesisPlan, sites: DataFrame) -> DataFrame:
    """Each producer's transactions: BATCH sends and their commit."""
    size = BATCH + 1
    turns = _turns(spark, plan, plan.transactions * size, F.col("id") % size, _div(F.col("id"), size))
    # A commit has the number of its transaction's last message plus one: no site.
    known = F.broadcast(sites.withColumn("j", (F.col("i") % BATCH).cast("int")))
    rows = turns.join(known, ["i", "j"], "left")
    columns = _send_columns(plan)
    # In the place of a send that is to be missing stands a call that did nothing: operations have no holes.
    kept = {"client", "op_id", "session", "start_ns", "end_ns", "broker", "instance", "protocol"}
    nothing = {"op": F.lit("rollback"), "outcome": F.lit("fail")}
    columns = {
        name: value if name in kept else F.when(_is("unexpected"), nothing.get(name)).otherwise(value)
        for name, value in columns.items()
    }
    return _row(_clocked(rows, plan, F.col("p")), F.col("_clock"), **columns)


def _intents(spark: SparkSession, plan: SynthesisPlan, sites: DataFrame) -> DataFrame:
    """The rows that were written before some of the sends were called."""
    of = F.col("id") * _INTENTS
    turns = _turns(spark, plan, -(-plan.messages // _INTENTS), of % BATCH, _div(of, BATCH))
    known = F.broadcast(sites.withColumn("j", (F.col("i") % BATCH).cast("int")))
    rows = turns.join(known, ["i", "j"], "left").where(~_is("unexpected"))
    first = {
        name: value
        for name, value in _send_columns(plan).items()
        if name not in ("end_ns", "outcome", "broker", "instance")
    }
    return _row(_clocked(rows, plan, F.col("p")), F.col("_clock"), **first, outcome=F.lit("unknown"))


def _receives(spark: SparkSession, plan: SynthesisPlan, sites: DataFrame) -> DataFrame:
    """Each consumer's transactions: the messages of one producer's, and their commit. Consumers of an address take
    turns."""
    size = BATCH + 1
    turns = _turns(spark, plan, plan.transactions * size, F.col("id") % size, _div(F.col("id"), size))
    known = F.broadcast(sites.withColumn("j", (F.col("i") % BATCH).cast("int")))
    never = _is("lost", "dead_lettered", "expired", "lost_nonpersistent", "unseen", "unresolved", "rejected")
    rows = turns.join(known, ["i", "j"], "left").withColumn(
        "c", ((F.col("p") + F.col("n") * plan.addresses) % plan.producers).cast("int")
    )
    commit = F.col("j") == BATCH
    # What never comes leaves a call that got nothing: a client's operations have no holes.
    receive = ~commit & ~never
    # A message out of order is delivered after the one that was sent next.
    late = F.when(_is("out_of_order"), F.lit(_BETWEEN * 3 // 2)).otherwise(F.lit(0))
    start = F.col("at") + F.when(commit, F.lit(_DELIVERED)).otherwise(_RECEIVE + F.col("j") * _BETWEEN + late)
    took = F.when(commit, 1_500_000 + F.col("k") % 1000 * 1000).otherwise(F.lit(80_000))
    columns = {
        "client": F.concat(F.lit("consumer-"), "c"),
        "op_id": _op_id(),
        "session": F.col("session"),
        "op": F.when(commit, "commit").otherwise("receive"),
        "outcome": F.when(never, "fail").otherwise("ok"),
        "start_ns": start,
        "end_ns": start + took,
        "address": F.when(~commit, _address(F.col("a"))),
        "message_id": F.when(receive, _message_id()),
        "attempt": F.when(receive, 0),
        "producer_seq": F.when(receive, F.col("n") * BATCH + F.col("j")),
        "txn": F.concat(F.lit("consumer-"), "c", F.lit("/t"), "n"),
        "delivery": F.when(receive, F.concat(F.lit("consumer-"), "c", F.lit("/d"), F.col("n") * BATCH + F.col("j"))),
        "redelivered": F.when(receive, _is("redelivered")),
        "payload_sha": F.when(receive, F.when(_is("corrupted"), "0").otherwise(_sha(F.col("i")))),
        "broker": F.col("server"),
        "instance": F.col("server"),
        "protocol": F.lit("core"),
    }
    return _row(_clocked(rows, plan, F.col("c")), F.col("_clock"), **columns)


def _extra(plan: SynthesisPlan, sites: DataFrame) -> DataFrame:
    """The second delivery of a duplicated message (acknowledged), the first of a redelivered one (never
    acknowledged), each to the standby consumer of its address."""
    k = _div(F.col("i"), BATCH)
    rows = sites.where(_is("duplicated", "redelivered"))
    p = (k % plan.producers).cast("int")
    at = F.lit(LOAD_BEGIN) + k * plan.step + _switch(cumulative(plan.breaks), k)
    session: Column = F.lit(0)
    for store in range(STORES):
        mine = p % plan.addresses % STORES == store
        session = F.when(mine, _switch(cumulative(plan.breaks, store), k)).otherwise(session)
    placed = rows.select(
        "i",
        "anomaly",
        p.alias("p"),
        _div(k, plan.producers).alias("n"),
        (F.col("i") % BATCH).cast("int").alias("j"),
        (p % plan.addresses).alias("a"),
        at.cast("long").alias("at"),
        _server(p % plan.addresses % STORES, session).alias("server"),
        F.explode(F.array(F.lit(0), F.lit(1))).alias("part"),
    ).where(~(_is("redelivered") & (F.col("part") == 1)))
    ack = F.col("part") == 1
    begin = F.when(_is("duplicated"), F.lit(30 * MS)).otherwise(F.lit(_RECEIVE - 5 * MS))
    start = F.col("at") + begin + F.when(ack, F.lit(MS)).otherwise(F.lit(0))
    columns = {
        "client": F.concat(F.lit("standby-"), "a"),
        "op_id": F.row_number().over(Window.partitionBy("a").orderBy("i", "part")) - 1,
        "session": F.lit(0),
        "op": F.when(ack, "ack").otherwise("receive"),
        "outcome": F.lit("ok"),
        "start_ns": start,
        "end_ns": start + 100_000,
        "address": _address(F.col("a")),
        "message_id": _message_id(),
        "delivery": F.concat(F.lit("standby-"), "a", F.lit("/d"), "i"),
        "redelivered": F.when(~ack, _is("duplicated")),
        "payload_sha": F.when(~ack, _sha(F.col("i"))),
        "broker": F.col("server"),
        "instance": F.col("server"),
        "protocol": F.lit("core"),
    }
    return _row(_clocked(placed, plan, F.lit(0)), F.col("_clock"), **columns)


def _connects(spark: SparkSession, plan: SynthesisPlan) -> DataFrame:
    """Each client's connect: at the begin, and where its store's instance changed."""
    moments = [
        (
            store,
            number,
            first,
            LOAD_BEGIN + first * plan.step + _paused(plan, first) - (100 * MS if number == 0 else MS),
        )
        for store in range(STORES)
        for number, first in enumerate([0, *(b.at for b in plan.breaks if b.store == store)])
    ]
    when = spark.createDataFrame([*moments], "s int, session int, first long, ready long")
    clients = spark.range(plan.producers).select(
        F.col("id").cast("int").alias("p"),
        (F.col("id") % plan.addresses % STORES).cast("int").alias("s"),
        F.explode(F.array(F.lit("producer-"), F.lit("consumer-"))).alias("kind"),
    )
    rows = clients.join(F.broadcast(when), "s").withColumn("server", _server(F.col("s"), F.col("session")))
    columns = {
        "client": F.concat("kind", "p"),
        "op_id": _div(F.col("first"), plan.producers) * (BATCH + 1) + F.col("session"),
        "session": F.col("session"),
        "op": F.lit("connect"),
        "outcome": F.lit("ok"),
        "start_ns": F.col("ready"),
        "end_ns": F.col("ready") + 500_000,
        "broker": F.col("server"),
        "instance": F.col("server"),
        "protocol": F.lit("core"),
    }
    return _row(_clocked(rows, plan, F.col("p")), F.col("_clock"), **columns)


def _paused(plan: SynthesisPlan, first: int) -> int:
    return sum(one.pause for one in plan.breaks if one.at <= first)


def _visits(spark: SparkSession, plan: SynthesisPlan) -> DataFrame:
    """Connects with a routing key, before the first fault: each key's last one goes astray where a move is asked
    for."""
    moved = plan.anomalies.get("sticky_move", 0)
    rows = spark.range(plan.users * VISITS).select(
        _div(F.col("id"), VISITS).cast("int").alias("u"), (F.col("id") % VISITS).cast("int").alias("visit")
    )
    astray = (F.col("u") < moved) & (F.col("visit") == VISITS - 1)
    rows = rows.withColumn("server", _server((F.col("u") + astray.cast("int")) % STORES, F.lit(0)))
    start = F.lit(LOAD_BEGIN) + F.col("visit").cast("long") * (7 * S) + F.col("u") * 1000
    columns = {
        "client": F.concat(F.lit("session-"), "u"),
        "op_id": F.col("visit"),
        "session": F.col("visit"),
        "op": F.lit("connect"),
        "outcome": F.lit("ok"),
        "start_ns": start,
        "end_ns": start + 400_000,
        "key": F.concat(F.lit("user-"), "u"),
        "broker": F.col("server"),
        "instance": F.col("server"),
        "protocol": F.lit("amqp091"),
    }
    return _row(_clocked(rows, plan, F.col("u")), F.col("_clock"), **columns)


def _looks(spark: SparkSession, plan: SynthesisPlan) -> DataFrame:
    """The looks at the dead-letter address in the drain: at the instance that serves each store by then."""
    last = [(store, sum(one.store == store for one in plan.breaks)) for store in range(STORES)]
    rows = spark.createDataFrame(last, "s int, session int").withColumn("server", _server(F.col("s"), F.col("session")))
    start = F.lit(plan.load_end + S + S // 4) + F.col("s")
    columns = {
        "client": F.lit("inspector"),
        "op_id": F.col("s"),
        "session": F.lit(0),
        "op": F.lit("browse"),
        "outcome": F.lit("ok"),
        "start_ns": start,
        "end_ns": start + 2 * S,
        "address": F.lit(DEAD_LETTERS),
        "broker": F.col("server"),
        "instance": F.col("server"),
        "protocol": F.lit("core"),
    }
    return _row(_clocked(rows, plan, F.lit(0)), F.col("_clock"), **columns)


def _inspections(plan: SynthesisPlan, sites: DataFrame) -> DataFrame:
    """What is found on the dead-letter address in the drain."""
    k = _div(F.col("i"), BATCH)
    rows = sites.where(_is("dead_lettered")).select(
        "i",
        (k % plan.producers).cast("int").alias("p"),
        _div(k, plan.producers).alias("n"),
        (F.col("i") % BATCH).cast("int").alias("j"),
    )
    start = F.lit(plan.load_end + S + S // 2) + F.col("i") % 1000
    columns = {
        "client": F.lit("inspector"),
        "op_id": F.row_number().over(Window.partitionBy().orderBy("i")) - 1 + STORES,
        "session": F.lit(0),
        "op": F.lit("browse"),
        "outcome": F.lit("ok"),
        "start_ns": start,
        "end_ns": start + 1000,
        "address": F.lit(DEAD_LETTERS),
        "message_id": _message_id(),
        "protocol": F.lit("core"),
    }
    return _row(_clocked(rows, plan, F.lit(0)), F.col("_clock"), **columns)
