"""The whole story of a witness: every attempt, delivery, acknowledgement and end of transaction of its message, and the
role changes and faults around them, in the order of time.

Only where something is broken, and only for the few witnesses: their operations are looked up in the ledger by message,
client or key, and from there by delivery and transaction. Events are few and already at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from brokerdrill.analysis.clients import OFFSET, PLACED_BY
from brokerdrill.analysis.columns import table
from brokerdrill.analysis.placing import Placed
from brokerdrill.analysis.tables import Runs, Times
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.ledger.verdict import RunVerdict
from brokerdrill.ledger.witness import FAULT, HEAL, OP, ROLE, Step, Witness

# Events this long before and after a witness's operations belong to its story.
AROUND_NS = 1_000_000_000
# More of a kind is counted, not shown.
MOST_OPS = 60
MOST_EVENTS = 40

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
    """Return what to look up for a witness of any promise, by its fields."""
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


# Rows of the ledger (the contract's columns and `run`) that one of these small tables asks for.
LookUp = Callable[[Mapping[str, pa.Table]], Iterable[dict[str, Any]]]
Operations = dict[tuple[str, int], dict[str, Any]]

# What is looked up, table by table; `span` are what a client did, `key` its connects, from w_from to w_to (run time).
WANTED = {
    "message": "run int, message_id string",
    "span": "run int, client string, w_from long, w_to long",
    "key": "run int, key string, w_from long, w_to long",
    "delivery": "run int, delivery string",
    "txn": "run int, txn string",
    "operation": "run int, client string, op_id long",
    "clock": "run int, clock string, c_from long, c_to long, since long, off long, slope double",
}

# The rows of the table `block` that are asked for: of messages, deliveries, transactions and operations all; of a
# client what went wrong in its time, its connects and closes, and its last success before and its first after. An
# intent is `unknown` until its other row, mostly in the same block, says `ok`. A client's time may be hours, and a
# story shows only its begin. Which operations are asked for is decided by few columns: a row has many, and a client
# millions of rows. All rows of such an operation are shown.
ASKED = f"""
WITH timed AS (
    SELECT r.run, r.client, r.op_id, r.op, r.outcome, r.txn, r.message_id, r.delivery, r.key, r.end_ns,
           r.start_ns + coalesce({OFFSET}, 0) AS start, coalesce(r.end_ns, r.start_ns) + coalesce({OFFSET}, 0) AS moment
    FROM block r LEFT JOIN clock c ON {PLACED_BY}),
near AS (
    SELECT t.run, t.client, t.op_id, t.op, t.outcome, t.txn, t.start, t.moment, s.w_from, s.w_to
    FROM timed t JOIN span s ON t.run = s.run AND t.client = s.client),
done AS (SELECT DISTINCT run, client, op_id FROM near WHERE outcome = 'ok'),
-- Only one of an operation's rows may know its transaction.
within AS (SELECT DISTINCT run, client, op_id FROM near WHERE txn IS NOT NULL),
works AS (
    FROM near WHERE outcome = 'ok' AND (op = 'commit' OR (op = 'send' AND NOT EXISTS (
        FROM within w WHERE w.run = near.run AND w.client = near.client AND w.op_id = near.op_id)))),
asked AS (
    SELECT run, client, op_id FROM timed t
    WHERE EXISTS (FROM message w WHERE w.run = t.run AND w.message_id = t.message_id)
       OR EXISTS (FROM delivery w WHERE w.run = t.run AND w.delivery = t.delivery AND t.op = 'ack')
       OR EXISTS (FROM txn w WHERE w.run = t.run AND w.txn = t.txn AND t.op IN ('prepare', 'commit', 'rollback'))
       OR EXISTS (FROM operation w WHERE w.run = t.run AND w.client = t.client AND w.op_id = t.op_id)
    UNION ALL
    SELECT t.run, t.client, t.op_id FROM timed t
    JOIN key w ON t.run = w.run AND t.key = w.key AND t.op = 'connect' AND t.start <= w.w_to
        -- Only one of an operation's rows may know the key, and that may be the one without its end
        AND (t.end_ns IS NULL OR t.moment >= w.w_from)
    UNION ALL
    SELECT run, client, op_id FROM near
    WHERE (op IN ('connect', 'close') OR (outcome <> 'ok' AND NOT EXISTS (
            FROM done d WHERE d.run = near.run AND d.client = near.client AND d.op_id = near.op_id)))
        AND start <= w_to AND moment >= w_from
    QUALIFY row_number() OVER (PARTITION BY run, client, w_from, w_to ORDER BY start, op_id) <= {2 * MOST_OPS}
    UNION ALL
    SELECT run, client, arg_max(op_id, (start, -op_id)) FROM works WHERE moment < w_from
    GROUP BY run, client, w_from, w_to
    UNION ALL
    SELECT run, client, arg_min(op_id, (start, op_id)) FROM works WHERE start > w_from
    GROUP BY run, client, w_from, w_to)
FROM block b SEMI JOIN asked a ON b.run = a.run AND b.client = a.client AND b.op_id = a.op_id
"""


def narrowed(tables: Mapping[str, pa.Table]) -> dict[str, pa.Array]:
    """Return, by column, the values of which every row that `tables` (`WANTED`) ask for has one (`reading.having`)."""
    columns = {"message": "message_id", "span": "client", "operation": "op_id"}
    return {
        columns.get(name, name): rows.column(columns.get(name, name)).combine_chunks()
        for name, rows in tables.items()
        if name != "clock" and len(rows)
    }


def with_stories(
    results: Mapping[int, RunVerdict], runs: Runs, times: Times, look_up: LookUp, *, follows: bool = False
) -> dict[int, RunVerdict]:
    """Return each run's verdict with a story for every witness, its steps by time. `follows`: `look_up` gives what
    `followed` would ask it for."""
    asked = {
        run: [wanted(witness.fields) for promise in result.promises for witness in promise.witnesses]
        for run, result in results.items()
    }
    if not any(asked.values()):
        return dict(results)
    steps = _operations(asked, times, look_up, follows=follows)

    def with_story(run: int, witness: Witness) -> Witness:
        return replace(witness, story=_story(wanted(witness.fields), steps[run], runs[run].dead_letters, times[run]))

    return {
        run: replace(
            result,
            promises=tuple(
                replace(promise, witnesses=tuple(with_story(run, witness) for witness in promise.witnesses))
                for promise in result.promises
            ),
        )
        for run, result in results.items()
    }


def _operations(
    asked: Mapping[int, Sequence[Wanted]], times: Times, look_up: LookUp, *, follows: bool
) -> Mapping[int, Operations]:
    """All operations of the stories, by run and (client, op_id)."""
    clocks = table(
        ((run, name, *span) for run in asked for name, one in times[run].clocks.items() for span in one.spans()),
        WANTED["clock"],
    )
    found: Mapping[int, Operations] = defaultdict(dict)
    rows = followed(_first_wants(asked), clocks, look_up, once=follows)
    for (run, client, op_id), of in rows.items():
        found[run][client, op_id] = _merged(of, times[run].clocks)
    return found


def followed(
    wants: Mapping[str, set[tuple[Any, ...]]], clocks: pa.Table, look_up: LookUp, *, once: bool = False
) -> dict[tuple[int, str, int], list[dict[str, Any]]]:
    """Return the rows that `wants` (rows of `WANTED` by table) lead to, by run, client and op_id: from receives to
    their acknowledgements, from those to the ends of their transactions, and to all rows of each. `once`: those that
    one look-up gives."""
    rows: dict[tuple[int, str, int], list[dict[str, Any]]] = defaultdict(list)
    known: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    while any(wants.values()):
        tables = {name: table(sorted(wants.get(name, ())), columns) for name, columns in WANTED.items()}
        for row in look_up(tables | {"clock": clocks}):
            of = rows[row["run"], row["client"], row["op_id"]]
            if row not in of:
                of.append(row)
        if once:
            break
        for name, keys in wants.items():
            known[name] |= keys
        wants = {name: keys - known[name] for name, keys in _following(rows).items()}
    return rows


def _first_wants(asked: Mapping[int, Sequence[Wanted]]) -> dict[str, set[tuple[Any, ...]]]:
    found: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for run, wants in asked.items():
        for want in wants:
            found["message"] |= {(run, message_id) for _, message_id in want.messages}
            span = (want.start or 0, want.end or want.start or 0)
            if want.client:
                found["span"].add((run, want.client, *span))
            if want.key is not None:
                found["key"].add((run, want.key, *span))
    return found


def _following(
    rows: Mapping[tuple[int, str, int], Sequence[Mapping[str, Any]]],
) -> dict[str, set[tuple[Any, ...]]]:
    found: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for (run, client, op_id), of in rows.items():
        found["operation"].add((run, client, op_id))
        for row in of:
            if row["message_id"] is not None or row["op"] == "ack":
                if row["delivery"] is not None and row["op"] == "receive":
                    found["delivery"].add((run, row["delivery"]))
                if row["txn"] is not None:
                    found["txn"].add((run, row["txn"]))
    return found


def _merged(rows: Sequence[Mapping[str, Any]], clocks: Mapping[str, Placed]) -> dict[str, Any]:
    """The rows of one operation as one, on run time: as stage 1 merges them."""

    def all_of(name: str) -> list[Any]:
        return sorted(row[name] for row in rows if row[name] is not None)

    def times_of(name: str) -> list[int]:
        found = ((row, clocks.get(row["clock"])) for row in rows if row[name] is not None)
        return [row[name] + (clock.offset(row["start_ns"]) if clock else 0) for row, clock in found]

    whole = {name: min(all_of(name), default=None) for name in rows[0]}
    outcomes = set(all_of("outcome"))
    whole["outcome"] = "ok" if "ok" in outcomes else "fail" if "fail" in outcomes else "unknown"
    whole["error"] = None if whole["outcome"] == "ok" else max(all_of("error"), default=None)
    return whole | {"start": min(times_of("start_ns")), "end": max(times_of("end_ns"), default=None)}


def _belongs(want: Wanted, row: Mapping[str, Any], dead: Mapping[str, str]) -> bool:
    """Whether a row that was looked up is of this witness itself; what follows from it comes by delivery and txn."""
    if want.messages:
        return any(
            row["message_id"] == message_id and row["address"] in (None, address, dead.get(address))
            for address, message_id in want.messages
        )
    at = row["start"] if row["end"] is None else row["end"]
    # Of rows without an end, more is looked up than belongs to it.
    within = (want.start or 0) <= at and row["start"] <= (want.end or want.start or 0)
    if want.client:
        return bool(row["client"] == want.client)
    return bool(want.key is not None and row["op"] == "connect" and within)


def _story(
    want: Wanted,
    rows: Mapping[tuple[str, int], Mapping[str, Any]],
    dead: Mapping[str, str],
    times: Timeline,
) -> tuple[Step, ...]:
    own: dict[tuple[str, int], Mapping[str, Any]] = {who: row for who, row in rows.items() if _belongs(want, row, dead)}
    if want.messages:
        deliveries = {row["delivery"] for row in own.values() if row["delivery"]}
        own |= {who: row for who, row in rows.items() if row["op"] == "ack" and row["delivery"] in deliveries}
        txns = {row["txn"] for row in own.values() if row["txn"]}
        own |= {who: row for who, row in rows.items() if row["op"] in _ENDS and row["txn"] in txns}
    if want.client:
        own = _told_of_client(own, want)
    chosen = sorted(own.values(), key=lambda row: (row["start"], row["client"], row["op_id"]))[:MOST_OPS]
    starts = [row["start"] for row in chosen]
    ends = [row["start"] if row["end"] is None else row["end"] for row in chosen]
    if want.start is not None:
        starts.append(want.start)
        ends.append(want.end or want.start)
    steps = [_op_step(row) for row in chosen]
    if starts:
        steps += events_around(times, min(starts) - AROUND_NS, max(ends) + AROUND_NS)
    return tuple(sorted(steps, key=lambda step: (step.t_ns, step.kind == OP)))


def _told_of_client(
    rows: Mapping[tuple[str, int], Mapping[str, Any]], want: Wanted
) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Of a client's operations what went wrong in its time, its connects and closes; and its last success before and
    its first after."""
    begin, end = want.start or 0, want.end or want.start or 0

    def at(row: Mapping[str, Any]) -> int:
        return int(row["start"] if row["end"] is None else row["end"])

    shown = {
        who: row
        for who, row in rows.items()
        if (row["op"] in ("connect", "close") or row["outcome"] != "ok") and row["start"] <= end and at(row) >= begin
    }
    works = [
        (row["start"], who)
        for who, row in rows.items()
        if row["outcome"] == "ok" and (row["op"] == "commit" or (row["op"] == "send" and row["txn"] is None))
    ]
    before = max(((start, who) for start, who in works if at(rows[who]) < begin), default=None)
    after = min(((start, who) for start, who in works if start > begin), default=None)
    return shown | {one[1]: rows[one[1]] for one in (before, after) if one is not None}


def _op_step(row: Mapping[str, Any]) -> Step:
    return Step(
        OP,
        t_ns=row["start"],
        end_ns=row["end"],
        instance=row["instance"] or row["broker"],
        **{name: row.get(name) for name in _OF_ROW},
    )


# What a step says as its operation's row does.
_OF_ROW = (
    *("op", "client", "outcome", "error", "session", "address", "subscription", "message_id", "attempt", "txn"),
    *("delivery", "redelivered"),
)


def events_around(times: Timeline, start: int, end: int) -> list[Step]:
    """Return the role changes, faults and heals from `start` to `end` (ns), and what was already so at `start`: each
    instance's role and the faults in effect."""
    steps: list[Step] = []
    standing: dict[str, Step] = {}
    for role in times.roles:
        step = Step(ROLE, role.at, instance=role.instance, value=role.value, store=role.store)
        if role.at < start:
            standing[role.instance or ""] = step
        elif role.at <= end:
            steps.append(step)
    for fault in times.faults:
        healed = times.run_end if fault.healed_at is None else fault.healed_at
        injected = Step(FAULT, fault.at, name=fault.name, target=fault.target, instance=fault.instance)
        if fault.at <= end and healed >= start:
            steps.append(injected)
        if fault.healed_at is not None and start <= fault.healed_at <= end:
            steps.append(replace(injected, kind=HEAL, t_ns=fault.healed_at))
    return [*standing.values(), *sorted(steps, key=lambda step: step.t_ns)[:MOST_EVENTS]]
