"""Stage 1 on few rows: what becomes one operation, what is wrong with it, what decides, at borders and beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from brokerdrill.analysis import clients
from brokerdrill.analysis.columns import table
from brokerdrill.analysis.events import NEVER
from brokerdrill.analysis.kernel import add, engine
from brokerdrill.analysis.reading.rows import RAW_SCHEMA
from tests.analysis.by_hand import (
    MS,
    Row,
    ack,
    end,
    got,
    receive,
    send,
)
from tests.analysis.judging import classes
from tests.analysis.side_by_side import all_classes, all_told, ledger


@contextmanager
def raw(*rows: Row) -> Iterator[duckdb.DuckDBPyConnection]:
    """With these rows as stage 1 takes them."""
    with engine() as base:
        always = (-NEVER, NEVER, 0)
        known = [
            *(
                (0, "c", *always, 0, 0.0, 0, 0),
                (0, "far", *always, 100, 0.0, 1, 0),
                (1, "far", *always, 5000, 0.0, 0, 0),
            ),
            # Two stretches: from 50 on it gains a tenth.
            *((0, "drifts", -NEVER, 50, 0, 7, 0.0, 2, 0), (0, "drifts", 50, NEVER, 50, 7, 0.1, 2, 0)),
        ]
        columns = "run int, clock string, c_from long, c_to long, since long, off long, slope double, tick int, u long"
        add(base, "clocks", table(known, columns))
        given = [{"run": 0, "client": "p", "op_id": 1, **row} for row in rows]
        add(base, "raw", pa.table({one.name: [row.get(one.name) for row in given] for one in RAW_SCHEMA}, RAW_SCHEMA))
        yield base


@pytest.mark.parametrize(("start", "moved"), [(10, 7), (49, 7), (50, 7), (59, 7), (60, 8), (150, 17)])
def test_all_times_of_a_row_are_moved_by_what_its_clock_was_off_at_its_begin(start: int, moved: int) -> None:
    one = operation({**ROW, "clock": "drifts", "start_ns": start, "end_ns": start + 500, "expires_ns": 900})
    assert (one["start"], one["end"], one["expires"]) == (start + moved, start + 500 + moved, 900 + moved)


def operation(*rows: Row) -> dict[str, Any]:
    """What rows of one operation become, beside another run's and another client's of the same number."""
    others = [
        {**row, **other, "outcome": "unknown", "session": 9} for row in rows for other in ({"run": 1}, {"client": "z"})
    ]
    with raw(*rows, *others) as base:
        base.execute(clients._OPERATIONS)
        found = base.sql("SELECT * FROM ops WHERE run = 0 AND client = 'p'").to_arrow_table().to_pylist()
    (one,) = found
    return dict(one)


ROW = {"op": "send", "outcome": "unknown", "session": 0, "clock": "c", "start_ns": 10, "message_id": "m"}


def test_rows_of_one_operation_become_one() -> None:
    """The earliest start and the latest end, in run time; a row that says something beats one that does not."""
    ended = {
        **ROW,
        "outcome": "ok",
        "clock": "far",
        "start_ns": 12,
        "end_ns": 20,
        "message_id": None,
        "expires_ns": 900,
    }
    one = operation(ROW, {**ended, "end_ns": 17}, ended, {**ROW, "start_ns": 11})
    told = {name: one[name] for name in ("op", "outcome", "session", "start", "end", "placed", "expires", "message_id")}
    assert told == {
        "op": "send",
        "outcome": "ok",
        "session": 0,
        "start": 10,
        "end": 120,
        "placed": True,
        "expires": 1000,
        "message_id": "m",
    }


def test_of_values_that_differ_the_smallest_stands() -> None:
    other = {**ROW, "session": 1, "message_id": "n", "expires_ns": 900}
    for rows in ((ROW | {"expires_ns": 800}, other), (other, ROW | {"expires_ns": 800})):
        one = operation(*rows)
        assert (one["session"], one["message_id"], one["expires"]) == (0, "m", 800)


def test_rows_that_differ_give_one_verdict_in_any_order() -> None:
    sent = {**send("m", 10), "op_id": 0}
    first, second = ({**sent, "session": number, "expires_ns": at} for number, at in ((0, 50 * MS), (1, 5000 * MS)))
    told = all_told(*(ledger([list(rows)]) for rows in ((first, second), (second, first))))
    assert classes(told[0]) == classes(told[1]) == {"expired": 1}


@pytest.mark.parametrize("outcome", ["ok", "fail", "unknown", None])
def test_an_outcome_beats_unknown_and_none(outcome: str | None) -> None:
    rows = [{**ROW, "outcome": one} for one in (None, outcome, "unknown")]
    assert operation(*rows[:2])["outcome"] == outcome
    assert operation(*rows)["outcome"] == (outcome or "unknown")
    assert operation(rows[1])["outcome"] == outcome


def test_an_operation_is_placed_if_all_of_its_rows_are() -> None:
    elsewhere = {**ROW, "clock": "nobody's", "start_ns": 5, "end_ns": 30, "expires_ns": 40}
    assert [operation(ROW, {**ROW, "clock": "far"})["placed"], operation(ROW, elsewhere)["placed"]] == [True, False]
    one = operation(elsewhere)
    assert (one["placed"], one["start"], one["end"], one["expires"]) == (False, 5, 30, 40)
    one = operation(ROW, elsewhere)
    assert (one["start"], one["end"], one["expires"]) == (5, 30, 40)
    one = operation({**elsewhere, "clock": "far"})
    assert (one["placed"], one["start"], one["end"], one["expires"]) == (True, 105, 130, 140)


def conflicts(*rows: Row) -> list[tuple[int, str, int, str]]:
    with raw(*rows) as base:
        found = clients.conflicts(base).to_pylist()
    return sorted((one["run"], one["client"], one["op_id"], one["problem"]) for one in found)


SENT = {**ROW, "outcome": "ok", "address": "q"}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([SENT], None),
        ([SENT, {**SENT, "outcome": "unknown"}], None),
        ([SENT, {**SENT, "outcome": "fail"}], "outcome is ok in one row and fail in another"),
        ([SENT, {**SENT, "op": "receive"}], "op is receive and send"),
        ([SENT, {**SENT, "op": "receive", "outcome": "fail"}], "outcome is ok in one row and fail in another"),
        ([SENT, {**SENT, "op": None}], None),
        *(
            ([{**SENT, name: None}, {**SENT, name: None}][:count], f"{name} is missing")
            for name in ("op", "outcome", "session", "start_ns", "address", "message_id")
            for count in (1, 2)
        ),
        *(([SENT, {**SENT, name: None}], None) for name in ("outcome", "session", "start_ns", "address", "message_id")),
        # A receive that got nothing says nothing of a message.
        *(
            ([{**SENT, "op": "receive", "outcome": outcome, name: None}], problem)
            for name in ("address", "message_id")
            for outcome, problem in (("ok", f"{name} is missing"), ("fail", None), ("unknown", None))
        ),
        ([{**SENT, "outcome": "fail", "address": None}], "address is missing"),
        ([{**SENT, "outcome": "fail", "message_id": None}], "message_id is missing"),
        ([{**SENT, "op": "connect", "address": None, "message_id": None}], None),
        ([{**SENT, "op": "ack"}], "delivery is missing"),
        ([{**SENT, "op": "ack", "delivery": "d"}], None),
    ],
)
def test_what_is_wrong_with_an_operation(rows: list[Row], problem: str | None) -> None:
    fine = [{**SENT, "client": "z"}, {**SENT, "op_id": 2}, {**SENT, "run": 1}]
    assert conflicts(*rows, *fine) == ([(0, "p", 1, problem)] if problem else [])


def test_an_operation_clashes_beside_others_of_its_number() -> None:
    rows = [{**SENT, **of, "outcome": outcome} for of in ({}, {"run": 1}) for outcome in ("ok", "fail")]
    rows += [{**SENT, **of, "outcome": "ok"} for of in ({"client": "z"}, {"op_id": 2}) for _ in range(2)]
    told = "outcome is ok in one row and fail in another"
    assert conflicts(*rows) == [(0, "p", 1, told), (1, "p", 1, told)]


def test_twenty_bad_operations_of_a_run_are_told() -> None:
    bad = [{**SENT, "op_id": number, "session": None} for number in range(21)]
    told = conflicts(*bad, {**bad[20], "run": 1})
    assert [(run, number) for run, _, number, _ in told] == [*((0, number) for number in range(20)), (1, 20)]


def test_a_delivery_is_processed_if_one_of_its_acknowledgements_or_its_transactions_commit_says_so() -> None:
    row = receive("m", 20)
    sent, of_x = send("m", 8), {**row, "txn": "x"}
    commit, doubt = end("commit", "y", 30, client="c"), end("commit", "y", 30, "unknown", client="c")
    found = all_classes(
        [sent, row, ack(row, "fail"), ack(row)],
        [sent, row, ack(row), ack(row, "fail")],
        [sent, row, ack(row, "fail")],
        # In a transaction nobody ended, and again in one that was committed.
        [sent, row, ack(row, txn="x"), ack(row, txn="y"), commit],
        [sent, of_x, ack(row, txn="y"), commit],
        [sent, {**row, "txn": "y"}, ack(row, txn="x"), commit],
        # The commit alone decides.
        [sent, row, ack(row), ack(row, txn="x")],
        [sent, of_x, ack(row)],
        # Another run committed those of these names.
        [end("commit", "x", 12), end("commit", "y", 12)],
    )
    processed, not_processed = {"ok": 1}, {"lost": 1}
    assert found == [
        *(processed, processed, not_processed),
        *(processed, processed, processed),
        *(not_processed, not_processed),
        {},
    ]
    # Once may be processed, or not: a second certain one makes it a duplicate only if it was.
    more = got("m", 40)
    found = all_classes([sent, row, ack(row, "unknown"), more], [sent, of_x, doubt, more], [sent, row, ack(row), more])
    assert found == [{"redelivered": 1}, {"redelivered": 1}, {"duplicated": 1}]


# The ends of a transaction, and what a message sent in it is; one that has a delivery where it is ok.
ENDS: list[tuple[list[tuple[str, float, str]], str]] = [
    ([("commit", 5, "fail"), ("commit", 8, "ok")], "ok"),
    ([("commit", 5, "ok"), ("commit", 8, "fail")], "ok"),
    ([("commit", 5, "fail"), ("commit", 8, "unknown")], "unresolved"),
    ([("prepare", 5, "fail")], "unresolved"),
    ([("prepare", 5, "ok"), ("commit", 8, "fail")], "rejected"),
    ([("rollback", 5, "fail"), ("commit", 8, "ok")], "ok"),
    ([("rollback", 5, "unknown"), ("prepare", 8, "ok")], "unresolved"),
    ([("prepare", 5, "ok"), ("rollback", 8, "ok")], "rejected"),
    ([("commit", 5, "unknown"), ("rollback", 8, "ok")], "rejected"),
    ([], "rejected"),
]


def test_a_transaction_is_what_all_of_its_own_ends_say() -> None:
    rows = []
    for ends, found in ENDS:
        own = [end(kind, "x", at, outcome) for kind, at, outcome in ends]
        others = [end(kind, "y", at, {"ok": "fail"}.get(outcome, "ok")) for kind, at, outcome in ends]
        rows.append([send("m", 1, txn="x"), own, others, got("m", 20) if found == "ok" else []])
    assert all_classes(*rows) == [{found: 1} for _, found in ENDS]
