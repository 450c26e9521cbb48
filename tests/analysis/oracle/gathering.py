"""From a ledger's rows to its facts: operations, attempts and deliveries with what became of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from brokerdrill.ledger.contract import RunInfo
from tests.analysis.oracle.clocks import on_run_time, watches
from tests.analysis.oracle.epochs import find_epochs
from tests.analysis.oracle.facts import Facts
from tests.analysis.oracle.rows import Row, ended, merge_rows
from tests.analysis.oracle.single_active import begun_unseen
from tests.analysis.oracle.units import find_units


def gather(run: RunInfo, ops: Sequence[Row], events: Sequence[Row]) -> Facts:
    """Return the facts of a ledger."""
    clocks = watches(run, events)
    rows = [on_run_time(row, clocks, ("start_ns", "end_ns", "expires_ns")) for row in ops]
    merged = merge_rows(rows)
    happened = []
    for event in events:
        row = on_run_time(event, clocks, ("t_ns",))
        # "The uncertainty of an event is its own plus its clock's."
        clock = clocks[row["clock"]].uncertainty if row["clock"] in clocks else 0
        told = {**row, "uncertainty_ns": (row.get("uncertainty_ns") or 0) + clock}
        # "Rows that are there twice count once", of the same values however they are spelled.
        if told not in happened:
            happened.append(told)
    # Roles that were told at one time: in the order of their values, and of one told twice what is more certain.
    happened.sort(
        key=lambda event: (
            event["t_ns"],
            *(
                (event.get("value") or "", event.get("store") or "", event["uncertainty_ns"])
                if event["kind"] == "role"
                else ("", "", 0)
            ),
        )
    )
    txns: dict[str, list[Row]] = defaultdict(list)
    for op in merged:
        if op.get("txn") is not None and op["op"] in ("prepare", "commit", "rollback"):
            txns[op["txn"]].append(op)
    facts = Facts(
        run=run,
        ops=merged,
        events=happened,
        end=max([ended(op) for op in merged] + [event["t_ns"] for event in happened], default=0),
        txns=txns,
        attempts=defaultdict(list),
        deliveries=defaultdict(list),
        epochs=find_epochs(run, happened),
        clocks=clocks,
    )
    begun_unseen(facts)
    acks: dict[str, list[Row]] = defaultdict(list)
    for op in facts.of("ack"):
        if op.get("delivery") is not None:
            acks[op["delivery"]].append(op)
    for op in merged:
        if op.get("address") is None or op.get("message_id") is None:
            continue
        message = (op["address"], op["message_id"])
        if op["op"] == "send":
            # "An attempt is a send row."
            facts.attempts[message].append({**op, "result": attempt_result(op, txns)})
        elif op["op"] == "receive" and op["outcome"] == "ok" and op["address"] not in run.dead_letters.values():
            # "A delivery is a receive that is ok."; on a dead-letter address it is "never its delivery"
            facts.deliveries[message].append(
                {**op, "result": delivery_result(op, acks[op.get("delivery") or ""], txns)}
            )
    facts.units = find_units(facts)
    facts.missing = operations_are_missing(run, merged, events)
    return facts


def operations_are_missing(run: RunInfo, ops: Sequence[Row], events: Sequence[Row]) -> bool:
    """ "each worker's clock present, `op_id`s without holes" """
    if set(run.clocks) - {row["clock"] for row in (*ops, *events)}:
        return True
    numbers: dict[str, list[int]] = defaultdict(list)
    for op in ops:
        numbers[op["client"]].append(op["op_id"])
    firsts = [min(own) for own in numbers.values()]
    if len(numbers) > 1 and len(set(firsts)) == len(firsts):
        # "and there are no more operations than numbers"
        every = [number for own in numbers.values() for number in own]
        if len(every) <= len(range(min(every), max(every) + 1)):
            return False
    return any(set(range(min(own) if min(own) <= 1 else 0, max(own) + 1)) - set(own) for own in numbers.values())


def attempt_result(send: Row, txns: Mapping[str, list[Row]]) -> str:
    """ok, fail or unknown, by "An attempt is a send row. …" """
    # "Outside a transaction it has its row's outcome."
    if send.get("txn") is None:
        return send["outcome"]
    ends = txns.get(send["txn"], [])
    commits = [op for op in ends if op["op"] == "commit"]
    # "In one it is fail if its row is fail, …"
    if send["outcome"] == "fail":
        return "fail"
    # "… a rollback is ok, …"
    if any(op["op"] == "rollback" and op["outcome"] == "ok" for op in ends):
        return "fail"
    # "… neither prepare nor commit was ever invoked, …"
    if not any(op["op"] in ("prepare", "commit") for op in ends):
        return "fail"
    # "… or every commit invoked is fail"
    if commits and all(op["outcome"] == "fail" for op in commits):
        return "fail"
    # "ok if its row and some commit are ok; else unknown"
    if send["outcome"] == "ok" and any(op["outcome"] == "ok" for op in commits):
        return "ok"
    return "unknown"


def delivery_result(receive: Row, acks: Sequence[Row], txns: Mapping[str, list[Row]]) -> str:
    """processed, possibly or neither, by "With a txn on the receive or the ack, only the commit decides …" """
    names = {op["txn"] for op in (receive, *acks) if op.get("txn") is not None}
    if names:
        ends = [op for name in names for op in txns.get(name, [])]
        # "a rollback that is ok or no commit is neither"
        if any(op["op"] == "rollback" and op["outcome"] == "ok" for op in ends):
            return "neither"
        deciding = [op for op in ends if op["op"] == "commit"]
    else:
        deciding = list(acks)  # "Without a txn the ack decides in the same way."
    # "ok is processed, unknown or without end possibly processed"
    if any(op["outcome"] == "ok" for op in deciding):
        return "processed"
    if any(op["outcome"] == "unknown" for op in deciding):
        return "possibly"
    return "neither"
