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
from brokerdrill.ledger.contract import Clock, PromiseSpec
from tests.analysis import snapshot
from tests.analysis.in_process import rows_of
from tests.analysis.test_oracle import (
    MS,
    RUN,
    Row,
    ack,
    connect,
    end,
    event,
    got,
    op,
    phases,
    receive,
    role,
    send,
    subscribe,
)
from tests.analysis.test_side_by_side import all_classes, all_told, ledger, promised
from tests.analysis.test_small_ledgers import classes, judged


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


# --- what decides ---------------------------------------------------------------------------------------------------


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


AVAILABLE = [PromiseSpec("available", bound_ms=100)]
WIDE = [PromiseSpec("available", bound_ms=1000)]
LOAD = phases((0, 400), (500, 600))


def outages(told: dict[str, Any]) -> list[tuple[float, float]]:
    return [(one["start_ns"] / MS, one["end_ns"] / MS) for one in told["outages"]]


def test_a_send_is_acknowledged_when_its_first_commit_that_is_ok_ended() -> None:
    """Else when it ended, and when it began where its end is not known."""
    commits = [end("commit", "x", 99, "fail"), end("commit", "x", 109), end("commit", "x", 149)]
    steady = [send(f"m{at}", at - 1) for at in (210, 310)]
    bare = {**send("m", 110), "end_ns": None}
    told = all_told(
        ledger([send("m", 50, txn="x"), *commits, *steady], LOAD, AVAILABLE),
        ledger([send("m", 49), *steady], LOAD, AVAILABLE),
        ledger([bare, *steady], LOAD, AVAILABLE),
        ledger([send("m", 50, txn="x"), end("commit", "x", 110) | {"end_ns": None}, *steady], LOAD, AVAILABLE),
    )
    assert [outages(one) for one in told] == [[(0, 110)], [(50, 210)], [(0, 110)], [(0, 110)]]


def test_a_load_has_its_begin_and_its_end() -> None:
    """What was tried was under way in it, what succeeded ended in it: each to the nanosecond."""
    begin, over = 10 * MS, 400 * MS
    late = 450 * MS
    tried = [(begin, late, True), (over, late, True), (over + 1, late, False), (1, late, True), (1, None, True)]
    tried += [(1, begin, True), (1, begin - 1, False)]
    ledgers = [
        ledger([{**send("m", 0), "start_ns": at, "end_ns": end}], phases((10, 400)), AVAILABLE) for at, end, _ in tried
    ]
    # A success at the load's begin leaves one span after it, none leaves one as well.
    assert [len(one["outages"]) for one in all_told(*ledgers)] == [int(there) for _, _, there in tried]
    succeeded = [(begin - 1, False), (begin, True), (over, True), (over + 1, False)]
    ledgers = [
        ledger(
            [send("n", 50, "unknown"), {**send("m", 0), "start_ns": 1, "end_ns": at}],
            phases((10, 400)),
            WIDE,
            drained={"q": True},
        )
        for at, _ in succeeded
    ]
    told = [promised(one, "available")["verdict"] for one in all_told(*ledgers)]
    assert told == ["pass" if there else "unknown" for _, there in succeeded]


def test_a_span_of_exactly_the_bound_breaks_only_a_promise_with_a_shorter_one() -> None:
    both = [PromiseSpec("available", bound_ms=bound) for bound in (100, 200)]
    for longest, broken in ((200, [True, False]), (200.1, [True, True])):
        rows = [send(name, at - 1) for name, at in (("l", 50), ("m", 50 + longest), ("n", 390))]
        (told,) = all_told(ledger(rows, LOAD, both))
        assert [one["verdict"] == "fail" for one in told["promises"] if one["name"] == "available"] == broken


def test_of_receives_a_load_tries_the_addresses_that_were_received_from() -> None:
    """Not those that were only sent to, nor dead-letter addresses."""
    steady = [row for at in (100, 200, 300) for row in (send(f"m{at}", at - 50), receive(f"m{at}", at))]
    received = [PromiseSpec("available", bound_ms=100, side="receive")]
    dead = op("c", "receive", 250, 251, address="DLQ", message_id="m100")
    nothing = op("c", "receive", 250, 251, "fail", address="r")
    cases = [([dead], "pass"), ([send("n", 50, address="r")], "pass"), ([nothing], "fail"), ([], "pass")]
    told = all_told(*(ledger([*steady, *more], LOAD, received, drained={"q": True}) for more, _ in cases))
    assert [promised(one, "available")["verdict"] for one in told] == [verdict for _, verdict in cases]


def durable(name: str, at: float, client: str, kept: bool | None, **more: Any) -> Row:
    return subscribe(name, at, client, durable=kept) | more


UNSUBSCRIBED, CLOSED = ("c1", "unsubscribe"), ("c1", "close")
OF_D = {"address": "t", "subscription": "d"}
# What may end a subscription, whether it does in any case, and whether it does unless that is durable.
ENDINGS: list[tuple[list[Row], bool, bool]] = [
    ([op(*UNSUBSCRIBED, 500, 1000, **OF_D)], False, False),  # with the drain's begin
    ([op(*UNSUBSCRIBED, 500, 999.9, **OF_D)], True, True),
    ([op(*UNSUBSCRIBED, 999, 999.5, "unknown", **OF_D)], True, True),
    ([op(*UNSUBSCRIBED, 999, None, "unknown", **OF_D)], True, True),
    ([op(*UNSUBSCRIBED, 500, 501, "fail", **OF_D)], False, False),
    ([op(*UNSUBSCRIBED, 500, 501, **OF_D | {"subscription": "other"})], False, False),
    ([op(*UNSUBSCRIBED, 500, 501, **OF_D | {"address": "u"})], False, False),
    ([op(*CLOSED, 500, 1000)], False, False),
    ([op(*CLOSED, 500, 999.9)], False, True),
    ([op(*CLOSED, 500, None, "unknown")], False, True),
    ([op(*CLOSED, 500, 501, "fail")], False, False),
    ([op(*CLOSED, 1, 3)], False, False),  # not after the subscribe began
    ([op(*CLOSED, 1.5, 3)], False, True),
    ([op(*CLOSED, 0, 1), op(*CLOSED, 500, 501)], False, True),
    ([op(*CLOSED, 500, 501), op(*CLOSED, 1500, 1501)], False, True),
    ([op("c2", "close", 500, 501)], False, False),
    ([op("c1", "connect", 500, 501)], False, False),
    ([], False, False),
]


def test_what_ends_a_subscription_before_the_drain() -> None:
    for kept in (True, None, False):
        rows = [durable("d", 1, "c1", kept), send("m", 10, address="t")]
        ended = [unless_durable if kept is False else always for _, always, unless_durable in ENDINGS]
        found = all_classes(*([*rows, *ending] for ending, *_ in ENDINGS))
        assert found == [{} if one else {"lost": 1} for one in ended]


def test_without_a_drain_whatever_ends_a_subscription_is_before_it() -> None:
    rows = [durable("d", 1, "c1", False), send("m", 10, address="t")]
    ended = [[op(*CLOSED, 5000, 5001)], [op(*UNSUBSCRIBED, 5000, 5001, **OF_D)], []]
    told = all_told(*(ledger([*rows, *one], [event("note", 1)]) for one in ended))
    assert [classes(one) for one in told] == [{}, {}, {"lost": 1}]


def test_a_subscription_is_there_since_its_first_subscribe_that_was_ok() -> None:
    message = send("m", 10, address="t")
    found = all_classes(
        [subscribe("d", 1, "c1", "fail"), subscribe("d", 50, "c1"), message],
        [subscribe("d", 1, "c1"), subscribe("d", 50, "c1"), subscribe("d", 50, "c2"), message],
        [subscribe("d", 1, "c1", "unknown"), message],
        [durable("d", 1, "c1", False, address="u"), durable("d", 1, "c1", False, subscription="e"), message],
        # The dead letters' own subscription is none of a topic's.
        [subscribe("d", 1, "c1") | {"address": "DLQ"}, message],
    )
    assert found == [{}, {"lost": 1}, {}, {"lost": 1}, {"lost": 1}]


# --- served by whom -------------------------------------------------------------------------------------------------


def sent_in(name: str, begin: float, over: float, instance: str | None, outcome: str = "ok", **more: Any) -> Row:
    times = {"start_ns": round(begin * MS), "end_ns": round(over * MS)}
    return {**send(name, 1, outcome, instance=instance, **more), **times}


SINGLE = [PromiseSpec("single_active")]
# Of the other store, too, it is known who serves it.
A_ACTIVE = [role("a", "active", 5), role("a", "down", 100), role("x", "active", 5, "z"), event("note", 1000)]


def test_an_intruder_is_wholly_between_two_sends_of_one_epoch() -> None:
    """a is active from 5 to 100; what begins as another ends is not after it."""
    other = {"client": "p2"}
    cases = [
        (sent_in("l", 10, 20, "a"), sent_in("m", 20.1, 30, "b", **other), sent_in("n", 40, 50, "a"), 1),
        (sent_in("l", 10, 20, "a"), sent_in("m", 20, 30, "b", **other), sent_in("n", 40, 50, "a"), 0),
        (sent_in("l", 10, 20, "a"), sent_in("m", 21, 40, "b", **other), sent_in("n", 40, 50, "a"), 0),
        (sent_in("l", 10, 20, "a"), sent_in("m", 21, 39.9, "b", **other), sent_in("n", 40, 50, "a"), 1),
        # The epoch's first and last, and just outside
        (sent_in("l", 5, 20, "a"), sent_in("m", 21, 30, "b", **other), sent_in("n", 40, 100, "a"), 1),
        (sent_in("l", 4.9, 20, "a"), sent_in("m", 21, 30, "b", **other), sent_in("n", 40, 100, "a"), 0),
        (sent_in("l", 5, 20, "a"), sent_in("m", 21, 30, "b", **other), sent_in("n", 40, 100.1, "a"), 0),
        # Not acknowledged: neither between, nor around
        (sent_in("l", 10, 20, "a"), sent_in("m", 21, 30, "b", "unknown"), sent_in("n", 40, 50, "a"), 0),
        (sent_in("l", 10, 20, "a", "unknown"), sent_in("m", 21, 30, "b"), sent_in("n", 40, 50, "a"), 0),
        (sent_in("l", 10, 20, "a"), sent_in("m", 21, 30, "b"), sent_in("n", 40, 50, "a", "fail"), 0),
        # Of another store
        (sent_in("l", 10, 20, "a"), sent_in("m", 21, 30, "x"), sent_in("n", 40, 50, "a"), 0),
    ]
    told = all_told(*(ledger(rows, A_ACTIVE, SINGLE) for *rows, _ in cases))
    assert [promised(one, "single_active")["count"] for one in told] == [count for *_, count in cases]
    assert {promised(one, "single_active")["verdict"] for one in told} == {"pass", "fail"}


def test_a_send_without_a_store_casts_doubt_in_its_own_run() -> None:
    """Where the promise is asked for, and only if it is ok."""
    rows = [[sent_in("m", 10, 20, name, outcome)] for name in ("a", None) for outcome in ("ok", "unknown")]
    told = all_told(*(ledger(one, A_ACTIVE, SINGLE) for one in rows), ledger(rows[2], A_ACTIVE))
    verdicts = [promised(one, "single_active")["verdict"] for one in told[:4]]
    assert verdicts == ["pass", "pass", "unknown", "pass"]


def test_the_others_of_an_intruder_are_told_by_name() -> None:
    """The first by name, with the first sends to come first; a send without an end ends as it begins."""
    roles = [role(who, "active", 5, "s") for who in ("a", "b", "c")]
    rows = [sent_in(f"{name}-{who}", at, at + 1, who) for who in ("a", "b") for name, at in (("l", 10), ("n", 90))]
    rows.append({**sent_in("m", 50, 50, "c"), "end_ns": None})
    run = {"stores": {"s": ("a", "b", "c")}}
    (told,) = judged(ledger(rows, [*roles, event("note", 1000)], SINGLE, **run))
    sends = [one for one in promised(told, "single_active")["witnesses"] if "message_id" in one]
    assert [(one["message_id"], one["other_instance"], one["end_ns"]) for one in sends] == [("m", "a", 50 * MS)]


KILL = event("fault", 95, name="kill", instance="a", uncertainty_ns=2 * MS)
FAILOVER = [role("a", "active", 1), role("a", "down", 100), role("b", "active", 150), KILL, event("note", 1000)]
FAILED_OVER = [PromiseSpec("failover_within", bound_ms=1000)]
BEFORE = sent_in("m1", 10, 11, "a")
# Another client that met the fault: nothing is due from one that never sends.
IN_FLIGHT = op("w", "connect", 90, 300, instance="a")


def test_a_client_is_served_again_by_its_first_send_that_began_after_the_fault() -> None:
    """Of those that the next epoch served; at the fault plus its uncertainty is not after it."""
    again = sent_in("n", 200, 201, "b")
    cases = [
        ([BEFORE, sent_in("m", 97, 160, "b"), again], 106),
        ([BEFORE, sent_in("m", 97.1, 160, "b"), again], 65),
        ([BEFORE, sent_in("m", 120, 150, "b"), again], 55),  # with the epoch's begin
        ([BEFORE, sent_in("m", 120, 149.9, "b"), again], 106),
        ([BEFORE, sent_in("m", 160, 161, "b", "unknown"), again], 106),
        ([BEFORE, sent_in("m", 160, 161, "x"), again], None),  # another store served it first
        ([BEFORE, again, sent_in("m", 210, 211, "b")], 106),
        ([BEFORE, sent_in("m", 160, 300, "b"), again], 106),
    ]
    told = all_told(*(ledger(rows, FAILOVER, FAILED_OVER) for rows, _ in cases))
    assert [promised(one, "failover_within")["measured"] for one in told] == [ms for _, ms in cases]
    # An epoch that began with the fault is none of after it.
    begun = [role("b", "active", 95), role("b", "active", 95.1)]
    told = all_told(*(ledger([BEFORE, again], [FAILOVER[0], KILL, one, *FAILOVER[4:]], FAILED_OVER) for one in begun))
    assert [promised(one, "failover_within")["measured"] for one in told] == [None, 106]


def test_who_gives_up_had_been_served_and_tried_on_past_the_bound() -> None:
    """What counts as served before: acknowledged by that store, with the fault at the latest."""
    bound = [PromiseSpec("failover_within", bound_ms=100)]
    late = sent_in("m", 190, 197.1, None, "unknown")
    cases = [
        ([BEFORE, late], "fail"),
        ([BEFORE, sent_in("m", 190, 197, None, "unknown")], "unknown"),
        ([sent_in("m1", 10, 95, "a"), late], "fail"),
        ([sent_in("m1", 10, 95.1, "a"), late], "unknown"),
        ([sent_in("m1", 10, 11, "a", "unknown"), late], "unknown"),
        ([sent_in("m1", 10, 11, "x"), late], "unknown"),
        ([BEFORE, {**late, "client": "p2"}], "unknown"),
        ([BEFORE, op("p", "connect", 190, 197.1, "unknown")], "fail"),
        ([BEFORE, op("p", "prepare", 190, 197.1, "unknown", txn="x")], "fail"),
        ([BEFORE, op("p", "commit", 190, 197.1, "unknown", txn="x")], "fail"),
        ([BEFORE, op("p", "rollback", 190, 197.1, "unknown", txn="x")], "unknown"),
        ([BEFORE, op("p", "receive", 190, 197.1, "unknown")], "unknown"),
        ([BEFORE, op("p", "connect", 95.1, None, "unknown")], "fail"),
        ([BEFORE, op("p", "connect", 95, None, "unknown")], "fail"),
        ([BEFORE, op("p", "connect", 20, None, "unknown")], "fail"),
        ([BEFORE, op("p", "connect", 20, None, "unknown"), op("p", "connect", 21, 22)], "unknown"),
        ([BEFORE, late, sent_in("n", 120, 121, None, "unknown")], "fail"),
        # Of another client that never sends nothing is due.
        ([BEFORE, op("p2", "connect", 190, 197.1, "unknown")], "unknown"),
    ]
    told = all_told(*(ledger([IN_FLIGHT, *rows], FAILOVER, bound) for rows, _ in cases))
    assert [promised(one, "failover_within")["verdict"] for one in told] == [verdict for _, verdict in cases]


def test_who_joined_after_the_fault_or_whose_server_is_not_known_measures_nothing() -> None:
    served = sent_in("n", 200, 201, "b")
    joined = [op("p", "connect", 94, 95), op("p", "connect", 95, 99), op("p", "connect", 95.1, 99)]
    nameless = sent_in("m", 160, 161, None)
    cases = [
        ([joined[0], served], "pass"),
        ([joined[1], served], "pass"),
        ([joined[2], served], "unknown"),
        ([joined[2], joined[0], served], "pass"),
        ([joined[2], BEFORE, served], "pass"),
        ([BEFORE, nameless, served], "unknown"),
        ([BEFORE, {**nameless, "outcome": "unknown"}, served], "pass"),
        ([BEFORE, sent_in("m", 97, 161, None), served], "pass"),
        ([BEFORE, sent_in("m", 97.1, 161, None), served], "unknown"),
        ([BEFORE, sent_in("m", 210, 211, None), served], "pass"),
        ([BEFORE, sent_in("m", 160, 300, None), nameless, served], "unknown"),
    ]
    told = all_told(*(ledger([IN_FLIGHT, *rows], FAILOVER, FAILED_OVER) for rows, _ in cases))
    assert [promised(one, "failover_within")["verdict"] for one in told] == [verdict for _, verdict in cases]


def test_an_epoch_that_served_on_after_a_fault_outlived_it() -> None:
    """Its last client's send is of it, as far as it began after the fault plus its uncertainty."""
    events = [role("a", "active", 1), KILL, event("note", 1000)]
    tries = sent_in("n", 300, 301, None, "unknown", client="p2")
    before = {**BEFORE, "client": "p2"}
    bound = [PromiseSpec("failover_within", bound_ms=100)]
    cases = [
        ([before, tries, sent_in("m", 97.1, 120, "a")], "unknown"),
        ([before, tries, sent_in("m", 97, 120, "a")], "fail"),
        ([before, tries, sent_in("m", 98, 120, "a", "unknown")], "fail"),
        ([before, tries, sent_in("m", 98, 120, "x")], "fail"),
        # Who served that is not known.
        ([before, tries, sent_in("m", 98, 120, None, client="p3")], "fail"),
    ]
    told = all_told(*(ledger(rows, events, bound) for rows, _ in cases))
    assert [promised(one, "failover_within")["verdict"] for one in told] == [verdict for _, verdict in cases]


def test_the_first_delivery_after_a_fault_is_that_of_an_epoch_that_began_after_it() -> None:
    """It ended after the fault plus its uncertainty, whoever received it."""
    served = [BEFORE, sent_in("n", 200, 201, "b")]

    def receipt(over: float, instance: str | None, begin: float | None = None) -> Row:
        begin = over - 1 if begin is None else begin
        return {**receive("n", over, instance=instance), "start_ns": round(begin * MS)}

    early = [role("b", "active", 95.5), role("b", "down", 96.9, uncertainty_ns=MS)]
    cases = [
        ([receipt(220, "b"), receipt(210, "b") | {"client": "c2"}], (), 115),
        ([receipt(220, "b"), receipt(150, "b")], (), 55),
        ([receipt(220, "b"), receipt(149.9, "b")], (), 125),
        ([receipt(220, "b"), receipt(210, "x")], (), 125),
        ([receipt(220, "b"), receipt(210, None)], (), 125),
        ([receipt(220, "b"), receipt(98, "a")], (), 125),
        # Of an epoch between the two: it ended by the fault plus its uncertainty, or not
        ([receipt(220, "b"), receipt(97, "b")], early, 125),
        ([receipt(220, "b"), receipt(97.1, "b")], early, 2.1),
        ([receipt(220, "b"), receipt(97.1, "b")], [role("b", "active", 95), *early[1:]], 125),
        # It began as the epoch before it may have ended, or later
        ([receipt(220, "b"), receipt(120, "b", 97.9)], early, 25),
        ([receipt(220, "b"), receipt(120, "b", 98)], early, 125),
    ]
    on_another = [role("b", "active", 250, "z")]
    two_stores = {"s": ("a", "b"), "z": ("b", "x")}
    for stores in (RUN.stores, two_stores):
        told = all_told(
            *(ledger([*served, *rows], [*FAILOVER, *more], FAILED_OVER, stores=stores) for rows, more, _ in cases)
        )
        found = [one["failover"][0]["first_delivery_ms"] for one in told]
        assert found == pytest.approx([ms for *_, ms in cases])
    rows = [[*served, receipt(at, "b", 240)] for at in (249.9, 250)]
    told = all_told(*(ledger(one, [*FAILOVER, *on_another], FAILED_OVER, stores=two_stores) for one in rows))
    assert [one["failover"][0]["first_delivery_ms"] for one in told] == [pytest.approx(154.9), None]


STICKY = [PromiseSpec("sticky")]
TWO_STORES = [role("a", "active", 1), role("x", "active", 1, "z"), event("note", 1000)]


def test_connects_of_a_key_are_held_against_each_other() -> None:
    """Those that were ok, of its own run; who served is told by the time, where an instance may serve two stores."""
    one = connect(100, "a", 0)
    cases = [
        ([one, connect(200, "x", 1)], ("fail", 1)),
        ([one, connect(200, "a", 1)], ("pass", 0)),
        ([one, connect(200, "x", 1, outcome="fail")], ("unknown", 0)),
        ([one, connect(200, "x", 1, "l"), connect(201, "x", 1, None)], ("unknown", 0)),
        ([one, connect(200, "x", 1) | {"op": "close"}], ("unknown", 0)),
        ([one, connect(200, None, 1)], ("unknown", 0)),
    ]
    told = all_told(*(ledger(rows, TWO_STORES, STICKY) for rows, _ in cases))
    found = [(of["verdict"], of["count"]) for of in (promised(one, "sticky") for one in told)]
    assert found == [expected for _, expected in cases]


def test_an_instance_of_two_stores_leads_to_the_one_of_which_its_epoch_is() -> None:
    """The epoch in which the connect ended, from its begin on, if the connect did not begin after that epoch."""
    stores = {"s": ("a", "b"), "z": ("a", "x")}
    roles = [role("a", "active", 50), role("a", "down", 150), role("a", "active", 200, "z"), event("note", 1000)]

    def led(begin: float, over: float, session: int) -> Row:
        return {**connect(over, "a", session), "start_ns": round(begin * MS)}

    first = led(100, 101, 0)
    cases = [
        ([first, led(120, 130, 1)], ("pass", 0, 0)),
        ([first, led(190, 200, 1)], ("pass", 0, 1)),  # z: a move, while nobody was active on s
        ([first, led(150, 199.9, 1)], ("pass", 0, 0)),  # begun as a's first epoch ended
        ([first, led(150.1, 199.9, 1)], ("unknown", 0, 0)),
        ([led(30, 50, 0), first], ("pass", 0, 0)),
        ([led(30, 49.9, 0), first], ("unknown", 0, 0)),
    ]
    told = all_told(*(ledger(rows, roles, STICKY, stores=stores) for rows, _ in cases))
    found = [(of["verdict"], of["count"], of["excused"]) for of in (promised(one, "sticky") for one in told)]
    assert found == [expected for _, expected in cases]


def test_a_send_is_served_by_the_epoch_in_which_it_ended_unless_it_began_after_it() -> None:
    """As far as clocks tell; b may serve two stores."""
    stores = {"s": ("a", "b"), "z": ("b", "x")}
    roles = [role("a", "active", 1), role("a", "down", 100), role("b", "active", 150, uncertainty_ns=MS), KILL]
    roles += [role("b", "down", 300, uncertainty_ns=2 * MS), event("note", 1000)]
    cases = [
        (sent_in("m", 120, 149, "b"), 54),
        (sent_in("m", 120, 148.9, "b"), None),
        (sent_in("m", 302, 310, "b"), 215),
        (sent_in("m", 302.1, 310, "b"), None),
        ({**sent_in("m", 149, 149, "b"), "end_ns": None}, 54),
        ({**sent_in("m", 148.9, 149, "b"), "end_ns": None}, None),
    ]
    told = all_told(*(ledger([BEFORE, one], roles, FAILED_OVER, stores=stores) for one, _ in cases))
    assert [promised(one, "failover_within")["measured"] for one in told] == [ms for _, ms in cases]


# --- what a report shows --------------------------------------------------------------------------------------------

# A clock that began before the run (ms).
EARLIER = 10
CLOCKS = {"c": Clock("host"), "early": Clock("host2", offset_ns=-EARLIER * MS)}


def shown(*ledgers: Any) -> list[dict[str, Any]]:
    """All that is told of ledgers that are judged side by side, what a report draws, too."""
    given = {str(number): one for number, one in enumerate(ledgers)}
    return list(snapshot.told(given, rows_of(given), 1).values())


def phase(told: dict[str, Any], name: str, kind: str) -> tuple[int, float | None] | None:
    found = next((one for one in told["phases"] if one["phase"] == name), {}).get(kind)
    return found and (found["count"], found["max_ms"])


def test_latencies_count_from_when_a_batch_was_due() -> None:
    """Of a message that was tried twice from its first try on; of a transaction its commit's; to the first delivery."""
    rows = [
        send("m", 10, "unknown", late_ns=5 * MS),
        send("m", 30, attempt=1, late_ns=2 * MS),
        receive("m", 50),
        receive("m", 90),
        send("n", 60, txn="x", late_ns=7 * MS),
        end("commit", "x", 70, late_ns=9 * MS),
        end("commit", "y", 75, "unknown", late_ns=90 * MS),
        {**end("commit", "z", 76), "end_ns": None},
        send("failed", 80, "fail", late_ns=90 * MS),
    ]
    told, other = shown(ledger(rows), ledger([send("m", 10), got("m", 20)]))
    assert [phase(told, "load", kind) for kind in ("send", "commit", "receive")] == [(2, 3), (1, 10), (2, 45)]
    assert [phase(other, "load", kind) for kind in ("send", "commit", "receive")] == [(1, 1), None, (1, 10)]


def test_a_phase_has_what_ended_in_it() -> None:
    """Its begin is of it; what ended before the run began is of none. A send that was seen before it began took 0."""
    at = [-0.1, 0, 9.9, 10, 400]
    rows = [sent_in(f"m{one}", one + EARLIER - 1e-6, one + EARLIER, None, clock="early") for one in at]
    early = [{**send("e", 20), "payload_sha": None}, receive("e", 15, payload_sha=None)]
    told, _ = shown(ledger([*rows, *early], phases((10, 400)), clocks=CLOCKS), ledger([], phases((0, 1))))
    assert phase(told, "outside", "send") == (2, 1e-6)
    assert phase(told, "load", "send") == (3, 1)
    assert phase(told, "load", "receive") == (1, 0)


def test_what_ends_as_an_epoch_begins_counts_once() -> None:
    """That epoch served it, and the one before, or the time before the first, did not."""
    roles = [role("b", "active", 150), role("b", "down", 300), role("b", "active", 400), event("note", 1000)]
    sends = [sent_in("m", 100, 150, "b"), sent_in("n", 260, 400, "b")]
    taken = [receive("m", 150, instance="b"), receive("n", 400, instance="b")]
    told, _ = shown(ledger([*sends, *taken], roles), ledger([BEFORE]))
    assert [(phase(told, "outside", kind) or (0,))[0] for kind in ("send", "receive")] == [2, 2]


def spans(told: dict[str, Any]) -> set[tuple[str, str, int]]:
    return {(one["client"], one["value"], one["failures"]) for one in told["series"]["clients"]}


DOES = ("connect", "send", "ack", "commit")


def test_a_client_was_served_or_failed() -> None:
    """A receive that got nothing, and an acknowledgement without an answer, are no failures; a close is no service."""
    kinds = ("connect", "close", "subscribe", "unsubscribe", "send", "receive", "ack", "prepare", "commit", "rollback")
    of = {"address": "q", "message_id": "m", "delivery": "d"}
    ok = [op(kind, kind, 10, 11, **of) for kind in kinds]
    not_ok = [op(kind, kind, 10, 11, outcome, **of) for kind in kinds for outcome in ("fail", "unknown")]
    told = shown(ledger(ok), ledger(not_ok))
    assert spans(told[0]) == {(kind, "served", 0) for kind in ("connect", "send", "receive", "ack", "commit")}
    assert spans(told[1]) == {(kind, "failed", 2) for kind in ("connect", "send", "prepare", "commit", "rollback")}


def test_what_ended_before_the_run_began_is_not_drawn() -> None:
    """Where a clock is placed so."""
    rows = [op(f"c{one}", "connect", 5, EARLIER + one, clock="early") for one in (-0.1, 0)]
    rows.append(op("c", "connect", 5, None, "unknown"))
    assert spans(shown(ledger(rows, clocks=CLOCKS))[0]) == {("c0", "served", 0), ("c", "failed", 1)}


def test_of_many_clients_those_are_drawn_that_failed_most_and_waited_longest() -> None:
    """Of two more than there is room for; another run has its own."""
    names = [f"c{number:02}" for number in range(clients.MOST_CLIENTS + 2)]
    at = dict.fromkeys(names[:-2], (9000, 9400)) | {names[-2]: (10, 200, 5000)}
    rows = [op(name, "connect", one, one + 1) for name in names for one in at.get(name, (10,))]
    # The last two by name: one fails twice, in one bucket, the other waits longest.
    rows += [op(names[-1], "connect", one, one + 1, "fail") for one in (20, 21)]
    several, one = shown(ledger(rows), ledger([op(names[-3], "connect", 10, 11)]))
    drawn = {client for client, *_ in spans(several)}
    assert drawn == {*names} - {names[-3], names[-4]}
    assert (several["series"]["client_count"], one["series"]["client_count"]) == (len(names), 1)
    assert spans(one) == {(names[-3], "served", 0)}


def blamed(told: dict[str, Any], name: str) -> list[tuple[str | None, int]]:
    return sorted(((one["fault"], one["count"]) for one in told[name]), key=str)


def fault(kind: str, at: float, name: str) -> Row:
    return event(kind, at, name=name, target=name)


def test_a_break_falls_under_the_fault_that_was_in_effect_meanwhile() -> None:
    """Of what was delivered the last one by its last delivery that was not healed before its first attempt, of what
    was not the first that was not; of redeliveries the last one by each."""
    twice = [send("m", 10, "unknown"), send("m", 30, attempt=1), *got("m", 40), *got("m", 50)]
    lost = [send("m", 10, "unknown"), send("m", 30, attempt=1)]

    def made(*spans: tuple[float, float, str]) -> list[Row]:
        kinds = [(kind, at, name) for begin, over, name in spans for kind, at in (("fault", begin), ("heal", over))]
        return [*phases(), *(fault(*one) for one in kinds)]

    cases = [
        (twice, made((5, 10, "healed as it was sent")), "healed as it was sent"),
        (twice, made((5, 9.9, "healed before")), None),
        (twice, made((50, 60, "with the last delivery")), "with the last delivery"),
        (twice, made((50.1, 60, "after the last delivery")), None),
        (twice, made((20, 60, "first"), (45, 60, "last")), "last"),
        (twice, made((5, 60, "first"), (5, 60, "last by name")), "last by name"),
        (lost, made((5, 10, "healed as it was sent")), "healed as it was sent"),
        (lost, made((5, 9.9, "healed before")), None),
        (lost, made((20, 60, "first"), (45, 60, "last")), "first"),
        (lost, made((20, 60, "a"), (20, 60, "b")), "a"),
    ]
    told = shown(*(ledger(rows, events) for rows, events, _ in cases))
    assert [blamed(one, "attribution") for one in told] == [[(name, 1)] for *_, name in cases]
    again = [blamed(one, "redeliveries") for one in told]
    assert again == [[(name, 1)] if rows is twice else [] for rows, _, name in cases]


def test_a_break_is_of_the_round_of_its_first_attempt() -> None:
    begins = [event("note", at, name=name, detail={"round": "begin"}) for at, name in ((5, "1"), (20, "2"))]
    rows = [send("m", 10, "unknown"), send("m", 30, attempt=1), send("n", 30)]
    (told,) = shown(ledger(rows, [*phases(), *begins], [PromiseSpec("no_loss")]))
    assert [one["broken"] for one in told["rounds"]] == [{"no_loss": 1}, {"no_loss": 1}]
