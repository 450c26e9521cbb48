"""The whole story of a witness: every attempt, delivery, acknowledgement and end of transaction of its message, and the
role changes and faults around them, in the order of time.

Only where something is broken, and only for the few witnesses: their operations are looked up by joins with small
tables that are copied to every task, so that nothing is sorted. Events are few and already at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.tables import table
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.ledger import RunInfo

# Events this long before and after a witness's operations belong to its story.
AROUND_NS = 1_000_000_000
# More of a kind is counted, not told.
MOST_OPS = 60
MOST_EVENTS = 40

_TOLD = (
    "run_id", "client", "op_id", "session", "op", "outcome", "start", "end", "address", "subscription", "message_id",
    "attempt", "txn", "delivery", "redelivered", "broker", "instance",
)  # fmt: skip
_ENDS = ("prepare", "commit", "rollback")


class Wanted(NamedTuple):
    """What a witness's story is looked up by: its `messages` (address, id), or what `client` did, or the connects with
    `key`, each from `start` to `end` (run time, ns), which also bound the events."""

    messages: frozenset[tuple[str, str]]
    client: str | None
    key: str | None
    start: int | None
    end: int | None


def wanted(witness: Mapping[str, Any]) -> Wanted:
    """Return what to look up for a witness of any promise: by its fields alone."""
    messages = frozenset(
        (str(witness[f"{prefix}address"]), str(witness[f"{prefix}message_id"]))
        for prefix in ("", "seen_")
        if witness.get(f"{prefix}message_id") is not None and witness.get(f"{prefix}address") is not None
    )
    times = [int(value) for name, value in witness.items() if name.endswith("_ns") and name != "behind_ns" and value]
    for name in ("first_send_ms", "last_try_ms"):
        if witness.get(name) is not None and witness.get("t_ns") is not None:
            times.append(int(witness["t_ns"]) + round(float(witness[name]) * 1e6))
    client = None if messages or witness.get("key") is not None else witness.get("client")
    return Wanted(
        messages,
        client,
        None if messages else witness.get("key"),
        min(times, default=None),
        max(times, default=None),
    )


def tell(
    results: Mapping[str, dict[str, Any]],
    made: Frames,
    runs: Mapping[str, RunInfo],
    times: Mapping[str, Timeline],
    raw: DataFrame,
) -> None:
    """Give every witness of `results` (the verdict's JSON by run) its `story`: a list of steps by time.

    A step of kind `op` has t_ns, end_ns (null: the call had not returned), client, op, outcome and where known session,
    address, subscription, message_id, attempt, txn, delivery, redelivered, instance, error; one of kind `fault`, `heal`
    or `role` has t_ns, name or value, target, instance, store. Nulls are left out. `raw` has the ledger's own rows,
    which alone have the errors.
    """
    asked = {
        key: [wanted(w) for promise in result["promises"] for w in promise["witnesses"]]
        for key, result in results.items()
    }
    if not any(asked.values()):
        return
    steps = _operations(asked, made, raw)
    for key, result in results.items():
        for promise in result["promises"]:
            for witness in promise["witnesses"]:
                witness["story"] = _story(wanted(witness), steps[key], runs[key].dead_letters, times[key])


def _operations(
    asked: Mapping[str, Sequence[Wanted]], made: Frames, raw: DataFrame
) -> dict[str, dict[tuple[str, int], dict[str, Any]]]:
    """All operations of the stories, by run and (client, op_id)."""
    found: dict[str, dict[tuple[str, int], dict[str, Any]]] = defaultdict(dict)

    def take(rows: Iterable[Row]) -> None:
        for row in rows:
            found[row.run_id].setdefault((row.client, row.op_id), row.asDict())

    ops = made.ops.select(*_TOLD, "key")
    lookups = [look for look in (_by_message(ops, asked), _by_client(ops, asked), _by_key(ops, asked)) if look]
    if lookups:
        take(reduce(DataFrame.unionByName, lookups).drop("key").collect())
    # From receives to their acknowledgements, and from those to the ends of their transactions.
    deliveries: set[tuple[str, str]] = set()
    txns: set[tuple[str, str]] = set()
    while True:
        rows = [
            row
            for of_run in found.values()
            for row in of_run.values()
            if row["message_id"] is not None or row["op"] == "ack"
        ]
        new_deliveries = {
            (r["run_id"], r["delivery"]) for r in rows if r["delivery"] and r["op"] == "receive"
        } - deliveries
        new_txns = {(r["run_id"], r["txn"]) for r in rows if r["txn"]} - txns
        if not new_deliveries and not new_txns:
            break
        deliveries |= new_deliveries
        txns |= new_txns
        take(_following(ops, new_deliveries, new_txns).drop("key").collect())
    _add_errors(found, raw)
    return found


def _by_message(ops: DataFrame, asked: Mapping[str, Sequence[Wanted]]) -> DataFrame | None:
    messages = {(key, message_id) for key, wants in asked.items() for want in wants for _, message_id in want.messages}
    if not messages:
        return None
    of = table(ops.sparkSession, sorted(messages), "run_id string, message_id string")
    return ops.join(F.broadcast(of), ["run_id", "message_id"], "left_semi")


def _by_client(ops: DataFrame, asked: Mapping[str, Sequence[Wanted]]) -> DataFrame | None:
    """What went wrong for a client in its time, its connects and closes; and its last success before and its first
    after."""
    spans = {
        (key, want.client, want.start or 0, want.end or want.start or 0)
        for key, wants in asked.items()
        for want in wants
        if want.client
    }
    if not spans:
        return None
    of = table(ops.sparkSession, sorted(spans), "run_id string, client string, w_from long, w_to long")
    near = ops.join(F.broadcast(of), ["run_id", "client"])
    at = F.coalesce("end", "start")
    telling = F.col("op").isin("connect", "close") | (F.col("outcome") != "ok")
    within = telling & (F.col("start") <= F.col("w_to")) & (at >= F.col("w_from"))
    works = F.col("op").isin("send", "commit") & (F.col("outcome") == "ok")
    rows = near.withColumn(
        "part",
        F.when(within, 1).when(works & (at < F.col("w_from")), 0).when(works & (F.col("start") > F.col("w_from")), 2),
    ).where(F.col("part").isNotNull())
    place = Window.partitionBy("run_id", "client", "w_from", "w_to", "part").orderBy(
        F.when(F.col("part") == 0, -F.col("start")).otherwise(F.col("start")), "op_id"
    )
    most = F.when(F.col("part") == 1, MOST_OPS).otherwise(1)
    return rows.withColumn("place", F.row_number().over(place)).where(F.col("place") <= most).select(*ops.columns)


def _by_key(ops: DataFrame, asked: Mapping[str, Sequence[Wanted]]) -> DataFrame | None:
    spans = {
        (key, want.key, want.start or 0, want.end or want.start or 0)
        for key, wants in asked.items()
        for want in wants
        if want.key is not None
    }
    if not spans:
        return None
    of = table(ops.sparkSession, sorted(spans), "run_id string, key string, w_from long, w_to long")
    at = F.coalesce("end", "start")
    return (
        ops.where(F.col("op") == "connect")
        .join(F.broadcast(of), ["run_id", "key"])
        .where((at >= F.col("w_from")) & (at <= F.col("w_to")))
        .select(*ops.columns)
        .distinct()
    )


def _following(ops: DataFrame, deliveries: Iterable[tuple[str, str]], txns: Iterable[tuple[str, str]]) -> DataFrame:
    spark = ops.sparkSession
    of_delivery = table(spark, sorted(deliveries), "run_id string, delivery string")
    of_txn = table(spark, sorted(txns), "run_id string, txn string")
    acks = ops.where(F.col("op") == "ack").join(F.broadcast(of_delivery), ["run_id", "delivery"], "left_semi")
    ends = ops.where(F.col("op").isin(*_ENDS)).join(F.broadcast(of_txn), ["run_id", "txn"], "left_semi")
    return acks.unionByName(ends)


def _add_errors(found: Mapping[str, dict[tuple[str, int], dict[str, Any]]], raw: DataFrame) -> None:
    """Add the `error` of operations that are not ok."""
    failed = sorted((key, *who) for key, rows in found.items() for who, row in rows.items() if row["outcome"] != "ok")
    if not failed:
        return
    of = table(raw.sparkSession, failed, "run_id string, client string, op_id long")
    rows = (
        raw.where(F.col("error").isNotNull())
        .select("run_id", "client", "op_id", "error")
        .join(F.broadcast(of), ["run_id", "client", "op_id"], "left_semi")
        .groupBy("run_id", "client", "op_id")
        .agg(F.max("error").alias("error"))
    )
    for row in rows.collect():
        found[row.run_id][row.client, row.op_id]["error"] = row.error


def _belongs(want: Wanted, row: Mapping[str, Any], dead: Mapping[str, str]) -> bool:
    """Whether a row that was looked up is of this witness itself; what follows from it comes by delivery and txn."""
    if want.messages:
        return any(
            row["message_id"] == message_id and row["address"] in (None, address, dead.get(address))
            for address, message_id in want.messages
        )
    at = row["start"] if row["end"] is None else row["end"]
    near = (want.start or 0) - AROUND_NS <= at and row["start"] <= (want.end or want.start or 0) + AROUND_NS
    if want.client:
        return bool(row["client"] == want.client)
    return bool(want.key is not None and row["op"] == "connect" and near)


def _story(
    want: Wanted,
    rows: Mapping[tuple[str, int], Mapping[str, Any]],
    dead: Mapping[str, str],
    times: Timeline,
) -> list[dict[str, Any]]:
    own = {who: row for who, row in rows.items() if _belongs(want, row, dead)}
    if want.messages:
        deliveries = {row["delivery"] for row in own.values() if row["delivery"]}
        own |= {who: row for who, row in rows.items() if row["op"] == "ack" and row["delivery"] in deliveries}
        txns = {row["txn"] for row in own.values() if row["txn"]}
        own |= {who: row for who, row in rows.items() if row["op"] in _ENDS and row["txn"] in txns}
    chosen = sorted(own.values(), key=lambda row: (row["start"], row["client"], row["op_id"]))[:MOST_OPS]
    starts = [row["start"] for row in chosen]
    ends = [row["start"] if row["end"] is None else row["end"] for row in chosen]
    if want.start is not None:
        starts.append(want.start)
        ends.append(want.end or want.start)
    steps = [_op_step(row) for row in chosen]
    if starts:
        steps += events_around(times, min(starts) - AROUND_NS, max(ends) + AROUND_NS)
    return sorted(steps, key=lambda step: (step["t_ns"], step["kind"] == "op"))


def _op_step(row: Mapping[str, Any]) -> dict[str, Any]:
    step = {"t_ns": row["start"], "kind": "op", "op": row["op"], "client": row["client"], "outcome": row["outcome"]}
    step |= {"end_ns": row["end"], "instance": row["instance"] or row["broker"], "error": row.get("error")}
    for name in ("session", "address", "subscription", "message_id", "attempt", "txn", "delivery", "redelivered"):
        step[name] = row[name]
    return {name: value for name, value in step.items() if value is not None}


def events_around(times: Timeline, start: int, end: int) -> list[dict[str, Any]]:
    """Return the role changes, faults and heals from `start` to `end` (ns), and what was already so at `start`: each
    instance's role and the faults in effect."""
    steps: list[dict[str, Any]] = []
    standing: dict[str, dict[str, Any]] = {}
    for role in times.roles:
        step = {"t_ns": role.at, "kind": "role", "instance": role.instance, "value": role.value, "store": role.store}
        if role.at < start:
            standing[role.instance or ""] = step
        elif role.at <= end:
            steps.append(step)
    for fault in times.faults:
        what = {"name": fault.name, "target": fault.target, "instance": fault.instance}
        healed = times.run_end if fault.healed_at is None else fault.healed_at
        if fault.at <= end and healed >= start:
            steps.append({"t_ns": fault.at, "kind": "fault", **what})
        if fault.healed_at is not None and start <= fault.healed_at <= end:
            steps.append({"t_ns": fault.healed_at, "kind": "heal", **what})
    chosen = [*standing.values(), *sorted(steps, key=lambda step: step["t_ns"])[:MOST_EVENTS]]
    return [{name: value for name, value in step.items() if value is not None} for step in chosen]
