"""How it is written: on own clocks, in any order, amended, and not all of it."""

from __future__ import annotations

from collections import defaultdict

from brokerdrill.ledger.contract import EVENT_COLUMNS, OP_COLUMNS
from tests.analysis.generate.draft import Draft, Row

_REQUIRED = {column.name for column in OP_COLUMNS if column.required}
# Columns that a writer may know only when the call has returned, or only before: either row may lack them.
_OPTIONAL = [column.name for column in OP_COLUMNS if not column.required and column.name != "end_ns"]


def finish(draft: Draft) -> tuple[list[Row], list[Row]]:
    """Return the rows as they are written: own clocks, op_ids, amendments, any order, absent keys null."""
    for row in (*draft.rows, *draft.events):
        for name in ("start_ns", "end_ns", "t_ns", "expires_ns"):
            if row.get(name) is not None:
                row[name] -= row[name] % draft.tick
    ops, events = [], []
    by_client: dict[str, list[Row]] = defaultdict(list)
    for row in draft.rows:
        by_client[row["client"]].append(row)
    for client, rows in by_client.items():
        clock = draft.clock_of[client]
        offset = draft.clocks[clock].offset_ns
        for op_id, row in enumerate(sorted(rows, key=lambda row: row["start_ns"])):
            whole = {k: v for k, v in row.items() if v is not None}
            whole |= {"run_id": draft.run_id, "clock": clock, "op_id": op_id}
            for name in ("start_ns", "end_ns", "expires_ns"):
                if name in whole:
                    whole[name] -= offset
            ops += amend(draft, whole)
    for event in draft.events:
        whole = {k: v for k, v in event.items() if v is not None}
        whole |= {"run_id": draft.run_id, "t_ns": event["t_ns"] - draft.clocks[event["clock"]].offset_ns}
        events.append(whole)
    assert {k for row in ops for k in row} <= {c.name for c in OP_COLUMNS}
    assert {k for row in events for k in row} <= {c.name for c in EVENT_COLUMNS}
    draft.rng.shuffle(ops)
    draft.rng.shuffle(events)
    return lost(draft, ops), events


def lost(draft: Draft, ops: list[Row]) -> list[Row]:
    """Return the rows that came home: of some ledgers not all, of some clients or of one clock none."""
    rng = draft.seen
    kind = rng.choice(("",) * 15 + ("hole", "begin", "clock"))
    if not kind:
        return ops
    chosen = rng.choice(sorted({row["client"] for row in ops}))
    last = max(row["op_id"] for row in ops if row["client"] == chosen)
    if kind == "clock":
        gone = rng.choice(("load1", "load2"))
        left = [row for row in ops if row["clock"] != gone]
    elif kind == "begin":
        begin = rng.randint(1, 3)
        left = [row for row in ops if row["client"] != chosen or row["op_id"] >= begin]
    else:
        hole = rng.randint(0, last)
        left = [row for row in ops if (row["client"], row["op_id"]) != (chosen, hole)]
    return left or ops


def amend(draft: Draft, whole: Row) -> list[Row]:
    """Split an operation into an intent and what completes or amends it; each optional column is in one."""
    if not draft.chance(0.35):
        return [whole]
    first = {k: v for k, v in whole.items() if k in _REQUIRED} | {"outcome": "unknown"}
    second = {k: v for k, v in whole.items() if k in _REQUIRED or k == "end_ns"}
    for name in _OPTIONAL:
        if name in whole:
            place = draft.rng.choice((0, 1, 2))
            if place != 1:
                first[name] = whole[name]
            if place != 0:
                second[name] = whole[name]
    rows = [first, second]
    if "end_ns" in whole and draft.chance(0.3):  # returned in doubt, proved later
        rows.append({**first, "end_ns": whole["end_ns"]})
    return rows
