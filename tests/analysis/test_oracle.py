"""The oracle on ledgers small enough to judge by eye, and what the generator's ledgers reach.

Each promise has ledgers that keep it, that break it, and that leave it unknown. Times are in milliseconds here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from brokerdrill.ledger.contract import (
    CLASSES,
    EVENT_COLUMNS,
    PROMISES,
    VERDICTS,
    Clock,
    PromiseSpec,
    RunInfo,
    json_line,
)
from tests.analysis.generate import coverage, generate
from tests.analysis.oracle import judge, merge

Row = dict[str, Any]
MS = 1_000_000
SEEDS = range(400)


def op(client: str, kind: str, start: float, end: float | None, outcome: str = "ok", **columns: Any) -> Row:
    row = {"run_id": "r", "clock": "c", "client": client, "session": 0, "op": kind, "outcome": outcome, **columns}
    return {**row, "start_ns": int(start * MS), "end_ns": None if end is None else int(end * MS)}


def send(message: str, at: float, outcome: str = "ok", client: str = "p", **columns: Any) -> Row:
    """A send on queue `q` that takes 1 ms and carries the message's own checksum."""
    sent = {"address": "q", "message_id": message, "payload_sha": f"sha-{message}", "durable": True, "attempt": 0}
    return op(client, "send", at, at + 1, outcome, **(sent | columns))


def receive(message: str, at: float, client: str = "c", **columns: Any) -> Row:
    """A receive that ends at `at`; its delivery is named after the message and the time."""
    got = {"address": "q", "message_id": message, "payload_sha": f"sha-{message}", "delivery": f"{message}@{at}"}
    return op(client, "receive", at - 1, at, "ok", **(got | columns))


def ack(of: Row, outcome: str = "ok", **columns: Any) -> Row:
    at = of["end_ns"] / MS
    same = {name: of.get(name) for name in ("address", "message_id", "delivery", "subscription", "session")}
    return op(of["client"], "ack", at + 0.1, None if outcome == "null" else at + 0.2, outcome, **(same | columns))


def got(message: str, at: float, **columns: Any) -> list[Row]:
    """A delivery and its acknowledgement."""
    row = receive(message, at, **columns)
    return [row, ack(row)]


def end(kind: str, txn: str, at: float, outcome: str = "ok", client: str = "p", **columns: Any) -> Row:
    return op(client, kind, at, at + 1, outcome, txn=txn, **columns)


def event(kind: str, at: float, **columns: Any) -> Row:
    return {"run_id": "r", "clock": "c", "t_ns": int(at * MS), "kind": kind, **columns}


def role(instance: str, value: str, at: float, store: str = "s", **columns: Any) -> Row:
    return event("role", at, instance=instance, store=store, value=value, **columns)


def phases(load: tuple[float, float] = (0, 1000), drain: tuple[float, float] = (1000, 2000)) -> list[Row]:
    rows = []
    for name, (begin, over) in (("load", load), ("drain", drain)):
        rows += [event("phase", begin, name=name, value="begin"), event("phase", over, name=name, value="end")]
    return rows


RUN = RunInfo(
    run_id="r",
    outcome="completed",
    stores={"s": ("a", "b"), "z": ("x", "y")},
    drained={"q": True, "t": True},
    dead_letters={"q": "DLQ", "t": "DLQ"},
    clocks={"c": Clock("host")},
)


def numbered(rows: Sequence[Row | list[Row]]) -> list[Row]:
    """Flatten, and give each row an op_id of its own where it has none."""
    flat: list[Row] = []
    for row in rows:
        flat += row if isinstance(row, list) else [row]
    return [{"op_id": index, **row} for index, row in enumerate(flat)]


def classes(*rows: Row | list[Row], run: RunInfo = RUN, events: Sequence[Row] = ()) -> dict[str, int]:
    messages = judge(run, numbered(rows), list(events) or phases(), [])["messages"]
    return {name: count for name, count in messages.items() if count}


def promised(spec: PromiseSpec, *rows: Row | list[Row], events: Sequence[Row] = (), run: RunInfo = RUN) -> Row:
    result = judge(run, numbered(rows), list(events), [spec])
    return next(one for one in result["promises"] if one["name"] == spec.name)


def changed(**values: Any) -> RunInfo:
    return RunInfo(**{**{f: getattr(RUN, f) for f in RUN.__dataclass_fields__}, **values})


# --- classes --------------------------------------------------------------------------------------------------------

UNTOUCHED = receive("m", 20)  # delivered, never acknowledged
BROWSED = op("i", "browse", 1100, 1101, address="DLQ", message_id="m")

CLASS_LEDGERS: list[tuple[str, Sequence[Row | list[Row]]]] = [
    ("ok", [send("m", 10), *got("m", 20)]),
    ("ok", [send("m", 10), UNTOUCHED, ack(UNTOUCHED, "unknown")]),
    ("corrupted", [send("m", 10), *got("m", 20, payload_sha="other")]),
    ("corrupted", [send("m", 10, "fail"), *got("m", 20, payload_sha="other")]),
    ("phantom", [send("m", 10, "fail"), UNTOUCHED]),
    ("phantom", [send("m", 10, "fail"), BROWSED]),
    ("unexpected", got("m", 20)),
    ("unexpected", [UNTOUCHED, BROWSED]),
    ("duplicated", [send("m", 10), *got("m", 20), *got("m", 30)]),
    ("duplicated", [send("m", 10, "unknown"), *got("m", 20), *got("m", 30, redelivered=True)]),
    ("dead_lettered", [send("m", 10), UNTOUCHED, BROWSED]),
    ("dead_lettered", [send("m", 10, "unknown"), BROWSED]),
    ("dead_lettered", [send("m", 10), receive("m", 1100, address="DLQ"), ack(receive("m", 1100))]),
    ("expired", [send("m", 10, expires_ns=1900 * MS)]),
    ("lost", [send("m", 10, expires_ns=2000 * MS)]),  # just when the drain ends
    ("lost_nonpersistent", [send("m", 10, durable=False)]),
    ("lost", [send("m", 10)]),
    ("lost", [send("m", 10, expires_ns=2100 * MS)]),
    ("lost", [send("m", 10, "unknown", expires_ns=1900 * MS), send("m", 30, expires_ns=2100 * MS, attempt=1)]),
    ("lost", [send("m", 10, durable=False), send("m", 30, durable=None, attempt=1)]),
    ("lost", [send("m", 10, "unknown"), UNTOUCHED]),
    ("redelivered", [send("m", 10), UNTOUCHED, *got("m", 30)]),
    ("recovered", [send("m", 10, "unknown"), *got("m", 30)]),
    ("unresolved", [send("m", 10, "unknown")]),
    ("unresolved", [send("m", 10, "fail"), send("m", 30, "unknown", attempt=1)]),
    ("rejected", [send("m", 10, "fail")]),
]


@pytest.mark.parametrize(("name", "rows"), CLASS_LEDGERS)
def test_class(name: str, rows: Sequence[Row | list[Row]]) -> None:
    assert classes(*rows) == {name: 1}


def test_another_applications_dead_letter_is_of_no_unit() -> None:
    assert classes(BROWSED) == {}
    assert classes(send("n", 10), BROWSED) == {"lost": 1}


def test_lost_is_unseen_where_the_address_is_not_known_to_be_drained() -> None:
    assert classes(send("m", 10), run=changed(drained={})) == {"unseen": 1}
    assert classes(send("m", 10, durable=False), run=changed(drained={"q": False})) == {"unseen": 1}


# Endings of a transaction: the class of a message sent in it and received, and of one received in it.
ENDINGS: list[tuple[str, list[Row], str, str]] = [
    ("committed", [end("commit", "x", 12)], "ok", "ok"),
    ("in doubt", [end("commit", "x", 12, "unknown")], "recovered", "ok"),
    ("no reply", [op("p", "commit", 12, None, "unknown", txn="x")], "recovered", "ok"),
    ("refused", [end("commit", "x", 12, "fail")], "phantom", "lost"),
    ("refused, then done", [end("commit", "x", 12, "fail"), end("commit", "x", 14)], "ok", "ok"),
    ("refused, then in doubt", [end("commit", "x", 12, "fail"), end("commit", "x", 14, "unknown")], "recovered", "ok"),
    ("rolled back", [end("rollback", "x", 12)], "phantom", "lost"),
    ("in doubt, rolled back", [end("commit", "x", 12, "unknown"), end("rollback", "x", 14)], "phantom", "lost"),
    ("rollback in doubt", [end("rollback", "x", 12, "unknown")], "phantom", "lost"),
    ("prepared", [end("prepare", "x", 12)], "recovered", "lost"),
    ("prepared, then refused", [end("prepare", "x", 12), end("commit", "x", 14, "fail")], "phantom", "lost"),
    ("open", [], "phantom", "lost"),
]


@pytest.mark.parametrize(("_name", "ending", "of_send", "of_receive"), ENDINGS)
def test_transactions(_name: str, ending: list[Row], of_send: str, of_receive: str) -> None:
    assert classes(send("m", 10, txn="x"), ending, *got("m", 20)) == {of_send: 1}
    row = receive("m", 11)
    for txns in (("x", None), (None, "x"), ("x", "x")):
        assert classes(send("m", 8), {**row, "txn": txns[0]}, ack(row, "ok", txn=txns[1]), ending) == {of_receive: 1}


def test_a_failed_send_in_a_committed_transaction_is_failed() -> None:
    assert classes(send("m", 10, "fail", txn="x"), send("n", 11, "unknown", txn="x"), end("commit", "x", 12)) == {
        "rejected": 1,
        "unresolved": 1,
    }


def subscribe(name: str, at: float, client: str, outcome: str = "ok", durable: bool | None = True) -> Row:
    return op(client, "subscribe", at, at + 1, outcome, address="t", subscription=name, durable=durable)


def test_topics_expect_each_subscription_that_was_there_in_time() -> None:
    there = [subscribe("d", 1, "c1"), subscribe("late", 50, "c2"), subscribe("refused", 1, "c3", "fail")]
    message = send("m", 10, address="t")
    delivered = got("m", 20, address="t", subscription="d", client="c1")
    assert classes(*there, message, delivered) == {"ok": 1}
    assert classes(*there, message) == {"lost": 1}
    # A failed first attempt does not count: the second began after the other subscription was there.
    resent = [send("m", 10, "fail", address="t"), send("m", 60, address="t", attempt=1)]
    assert classes(*there, *resent, delivered) == {"ok": 1, "lost": 1}
    # Allowed, and not required: a class only if processed.
    other = receive("m", 70, address="t", subscription="late", client="c2")
    assert classes(*there, message, delivered, other) == {"ok": 1}
    assert classes(*there, message, delivered, other, ack(other)) == {"ok": 2}


@pytest.mark.parametrize(
    ("durable", "ending", "expected"),
    [
        (True, [], {"lost": 1}),
        (True, [op("c1", "unsubscribe", 500, 501, address="t", subscription="d")], {}),
        (True, [op("c1", "unsubscribe", 500, 501, "fail", address="t", subscription="d")], {"lost": 1}),
        (True, [op("c1", "unsubscribe", 1100, 1101, address="t", subscription="d")], {"lost": 1}),
        (True, [op("c1", "close", 500, 501)], {"lost": 1}),
        (None, [op("c1", "close", 500, 501)], {"lost": 1}),
        (False, [op("c1", "close", 500, 501)], {}),
        (False, [op("c1", "close", 2100, 2101)], {"lost": 1}),
        (False, [op("c1", "close", 0.1, 0.2)], {"lost": 1}),
        (False, [op("c2", "close", 500, 501)], {"lost": 1}),
    ],
)
def test_what_ends_a_subscription(durable: bool | None, ending: list[Row], expected: dict[str, int]) -> None:
    assert classes(subscribe("d", 1, "c1", durable=durable), send("m", 10, address="t"), ending) == expected


# --- rows of one operation, clocks ----------------------------------------------------------------------------------


def test_rows_of_one_operation_merge_in_any_order() -> None:
    whole = send("m", 10) | {"op_id": 900}
    intent = {**whole, "outcome": "unknown", "end_ns": None, "payload_sha": None}
    doubt = {**whole, "outcome": "unknown", "message_id": None, "address": None}
    for rows in ([intent, whole], [whole, intent], [doubt, intent, whole], [whole, doubt, intent]):
        assert classes(*rows, *got("m", 20)) == {"ok": 1}
        assert classes(*rows, *got("m", 20, payload_sha="other")) == {"corrupted": 1}
    assert classes(intent, doubt) == {"unresolved": 1}
    with pytest.raises(ValueError, match="ok and fail"):
        classes(whole, {**whole, "outcome": "fail"})


def test_a_message_that_was_sent_with_several_payloads_comes_with_one_of_them() -> None:
    again = [send("m", 10), send("m", 12, payload_sha="again")]
    other = [send("n", 14), *got("n", 24)]
    assert classes(*again, *other, *got("m", 20, payload_sha="again")) == {"ok": 2}
    assert classes(*again, *other, *got("m", 20, payload_sha="neither")) == {"ok": 1, "corrupted": 1}


def test_times_of_different_clocks_meet_on_run_time() -> None:
    run = changed(clocks={"c": Clock("host"), "far": Clock("host2", offset_ns=500 * MS)})
    assert classes(send("m", 10, expires_ns=1600 * MS), run=run) == {"expired": 1}
    assert classes(send("m", 10, expires_ns=1600 * MS, clock="far"), run=run) == {"lost": 1}


# --- promises by class ----------------------------------------------------------------------------------------------

KEPT = [send("m", 10), *got("m", 20), send("v", 11, durable=False), *got("v", 21)]


LOOK = op("i", "browse", 90, 91, address="DLQ")


@pytest.mark.parametrize(
    ("name", "breaking"),
    [
        ("no_phantoms", [send("n", 30, "fail"), *got("n", 40)]),
        ("no_loss", [send("n", 30)]),
        ("no_nonpersistent_loss", [send("n", 30, durable=False)]),
        ("no_duplicates", [send("n", 30), *got("n", 40), *got("n", 50)]),
        ("no_dead_letters", [send("n", 30), {**BROWSED, "message_id": "n"}]),
    ],
)
def test_promises_by_class(name: str, breaking: list[Row | list[Row]]) -> None:
    spec = PromiseSpec(name)
    assert promised(spec, *KEPT, LOOK)["verdict"] == "pass"
    broken = promised(spec, *KEPT, LOOK, *breaking)
    assert (broken["verdict"], broken["count"]) == ("fail", 1)
    assert [witness["message_id"] for witness in broken["witnesses"]] == ["n"]
    assert promised(spec, op("p", "connect", 1, 2))["verdict"] == "unknown"  # nothing was sent


def test_no_loss_is_unknown_while_undrained_and_no_dead_letters_without_a_mapped_address() -> None:
    undrained = promised(PromiseSpec("no_loss"), *KEPT, send("n", 30), run=changed(drained={}))
    assert (undrained["verdict"], undrained["count"]) == ("unknown", 0)
    assert promised(PromiseSpec("no_loss"), *KEPT, run=changed(drained={}))["verdict"] == "pass"
    assert promised(PromiseSpec("no_dead_letters"), *KEPT, run=changed(dead_letters={}))["verdict"] == "unknown"


def test_what_does_not_break_no_loss() -> None:
    rows = [send("e", 10, expires_ns=100 * MS), send("n", 20, durable=False), send("u", 30, "unknown")]
    assert promised(PromiseSpec("no_loss"), *KEPT, *rows, events=phases())["verdict"] == "pass"
    # Nor does it say anything of it: none of these had to arrive.
    assert promised(PromiseSpec("no_loss"), *rows, events=phases())["verdict"] == "unknown"


# --- ordered --------------------------------------------------------------------------------------------------------

TWO = [send("m1", 10, key="k"), send("m2", 20, key="k")]
SWAPPED = [*got("m2", 30), *got("m1", 40)]
ORDERED = PromiseSpec("ordered")
BY_KEY = PromiseSpec("ordered", scope="key")


@pytest.mark.parametrize(
    ("spec", "rows", "verdict", "count", "excused"),
    [
        (ORDERED, [*TWO, *got("m1", 30), *got("m2", 40)], "pass", 0, 0),
        (ORDERED, [*TWO, *SWAPPED], "fail", 1, 0),
        # m3 is late as well, m1 only once although two overtook it
        (ORDERED, [*TWO, send("m3", 25, key="k"), *got("m3", 28), *SWAPPED], "fail", 2, 0),
        (ORDERED, [*TWO, *got("m2", 30), *got("m1", 40, redelivered=True)], "pass", 0, 1),
        # only the first delivery counts
        (ORDERED, [*TWO, *got("m1", 25), *SWAPPED], "pass", 0, 0),
        # another producer, another key, an attempt that may still take effect: nothing precedes
        (ORDERED, [send("m1", 10), send("m2", 20, client="p2"), *SWAPPED], "unknown", 0, 0),
        (ORDERED, [send("m1", 10, key="k"), send("m2", 20, key="l"), *SWAPPED], "unknown", 0, 0),
        (ORDERED, [*TWO, send("m1", 25, "unknown", key="k", attempt=1), *SWAPPED], "unknown", 0, 0),
        (
            ORDERED,
            [op("p", "send", 10, None, "unknown", address="q", message_id="m1"), TWO[1], *SWAPPED],
            "unknown",
            0,
            0,
        ),
        # a failed attempt never took effect
        (ORDERED, [*TWO, send("m1", 25, "fail", key="k", attempt=1), *SWAPPED], "fail", 1, 0),
        # two sessions: not comparable by session, late by key, excused once the other session has ended between
        (ORDERED, [*TWO, *got("m2", 30), *got("m1", 40, client="d")], "unknown", 0, 0),
        (BY_KEY, [*TWO, *got("m2", 30), *got("m1", 40, client="d")], "fail", 1, 0),
        (BY_KEY, [*TWO, *got("m2", 30), op("c", "close", 34, 35), *got("m1", 40, client="d")], "pass", 0, 1),
        (BY_KEY, [*TWO, *got("m2", 30), op("c", "close", 44, 45), *got("m1", 40, client="d")], "fail", 1, 0),
        (
            BY_KEY,
            [*TWO, *got("m2", 30), op("c", "connect", 34, 35, session=1), *got("m1", 40, client="d")],
            "pass",
            0,
            1,
        ),
        (BY_KEY, [*TWO, *got("m2", 30), op("c", "close", 24, 25), *got("m1", 40, client="d")], "fail", 1, 0),
        # a session of nobody who reads there
        (BY_KEY, [*TWO, *got("m2", 30), op("e", "close", 34, 35), *got("m1", 40, client="d")], "fail", 1, 0),
    ],
)
def test_ordered(spec: PromiseSpec, rows: list[Row | list[Row]], verdict: str, count: int, excused: int) -> None:
    result = promised(spec, *rows)
    assert (result["verdict"], result["count"], result["excused"]) == (verdict, count, excused)


# What is late in the other consumer's hands: d reads there, too; m2 was sent at 20 and delivered at 30, m1 at 40.
SHARED = [op("c", "connect", 1, 2), op("d", "connect", 1, 2), *got("other", 5, client="d"), *TWO, *SWAPPED]


@pytest.mark.parametrize(
    ("given_back", "excused"),
    [
        ([], False),
        # d rolls back after m2 was delivered, so that m1 can have been its own until then
        ([op("d", "rollback", 34, 35, txn="t")], True),
        ([op("d", "rollback", 34, 50, txn="t")], True),
        ([op("d", "rollback", 4, 35, txn="t")], True),
        ([op("d", "rollback", 34, None, "unknown")], True),
        ([op("d", "close", 34, 35)], True),
        ([op("d", "connect", 34, 35, session=1)], True),
        ([op("d", "connect", 34, 35, session=1), op("d", "receive", 45, 46, "unknown", session=1)], True),
        # a commit that was not ok may have been rolled back by the client's library
        ([op("d", "commit", 34, 35, "fail", txn="t")], True),
        ([op("d", "commit", 34, None, "unknown", txn="t")], True),
        # before m2 was delivered, but m2 may have lain in c's window already
        ([op("d", "rollback", 24, 25, txn="t")], True),
        ([op("d", "close", 24, 25)], True),
        ([op("d", "connect", 25, 26, session=1)], True),
        # nothing was given back
        ([op("d", "rollback", 34, 35, "fail", txn="t")], False),
        ([op("d", "commit", 34, 35, txn="t")], False),
        ([op("d", "close", 34, 35, "fail")], False),
        # at a time that explains nothing: m2 was not sent yet, m1 already delivered
        ([op("d", "rollback", 18, 19, txn="t")], False),
        ([op("d", "rollback", 19, 20, txn="t")], False),
        ([op("d", "rollback", 40, 41, txn="t")], False),
        # c's session began when that was over, with an empty window
        ([op("c", "connect", 26, 28, session=1), op("d", "rollback", 24, 25, txn="t")], False),
        ([op("c", "connect", 26, 28, session=1), op("d", "rollback", 24, 28, txn="t")], False),
        ([op("c", "connect", 26, 28, session=1), op("d", "rollback", 24, 29, txn="t")], True),
        (
            [
                op("c", "connect", 22, 23, "fail", session=1),
                op("c", "connect", 26, 28, session=1),
                op("d", "rollback", 24, 25, txn="t"),
            ],
            False,
        ),
        # what c gives back is m2 as well, unless it has been delivered
        ([op("c", "rollback", 34, 35, txn="t")], False),
        ([op("c", "connect", 22, 23, session=1), op("c", "commit", 21, 25, "unknown", session=0)], False),
        # by one who does not read there, or reads elsewhere
        ([op("e", "close", 34, 35)], False),
        ([*got("x", 6, client="e", address="r"), op("e", "close", 34, 35)], False),
    ],
)
def test_ordered_given_back(given_back: list[Row], excused: bool) -> None:
    """Of one session's deliveries m1 is late: another consumer may have given it back, or nothing explains it."""
    session = 1 if any(row["client"] == "c" and row["op"] == "connect" for row in given_back) else 0
    rows = [{**row, "session": session} if row in got("m1", 40) + got("m2", 30) else row for row in SHARED]
    result = promised(ORDERED, *rows, *given_back)
    expected = ("pass", 0, 1) if excused else ("fail", 1, 0)
    assert (result["verdict"], result["count"], result["excused"]) == expected


def test_ordered_by_key_needs_what_was_delivered() -> None:
    """Across sessions, what came before the overtaking delivery explains nothing: that message was delivered later."""
    rows = [*TWO, *got("m2", 30), *got("m1", 40, client="d"), op("e", "subscribe", 4, 5, address="q")]
    for at, verdict in ((25, "fail"), (35, "pass")):
        assert promised(BY_KEY, *rows, op("e", "rollback", at, at, txn="t"))["verdict"] == verdict


# --- atomic ----------------------------------------------------------------------------------------------------------

TOGETHER = [send("m1", 10, txn="x"), send("m2", 11, txn="x"), end("commit", "x", 12)]
IN_DOUBT = [send("m1", 10, txn="x"), end("commit", "x", 12, "unknown"), *got("m1", 20)]


@pytest.mark.parametrize(
    ("rows", "verdict", "count"),
    [
        ([*TOGETHER, *got("m1", 20), *got("m2", 21)], "pass", 0),
        ([*TOGETHER, *got("m1", 20)], "fail", 1),
        (TOGETHER, "pass", 0),  # all, or none
        ([*TOGETHER[::2], *got("m1", 20)], "unknown", 0),  # of one message nothing is told
        # another attempt may have brought it
        ([*TOGETHER, *got("m1", 20), send("m1", 15, "unknown", attempt=1)], "pass", 0),
        # but for one within the transaction
        ([*TOGETHER, *got("m1", 20), send("m1", 10.5, attempt=1, txn="x")], "fail", 1),
        # in doubt, until it expires: just when the drain ends it has not
        ([*IN_DOUBT, send("m2", 11, txn="x", expires_ns=2000 * MS)], "fail", 1),
        ([*IN_DOUBT, send("m2", 11, txn="x", expires_ns=2000 * MS - 1)], "unknown", 0),
        ([*IN_DOUBT, send("m2", 11, txn="x", durable=False)], "unknown", 0),
    ],
)
def test_atomic(rows: list[Row | list[Row]], verdict: str, count: int) -> None:
    result = promised(PromiseSpec("atomic"), *rows, events=phases())
    assert (result["verdict"], result["count"]) == (verdict, count)


# --- sticky ---------------------------------------------------------------------------------------------------------


def connect(at: float, instance: str | None, session: int, key: str | None = "k", outcome: str = "ok") -> Row:
    return op("r", "connect", at - 1, at, outcome, session=session, key=key, instance=instance)


BOTH_ACTIVE = [role("a", "active", 1), role("x", "active", 1, "z")]
STICKY = PromiseSpec("sticky")


def pool(instance: str, value: str, at: float) -> Row:
    return event("pool", at, instance=instance, value=value)


LATE = [pool("a", "not_ready", 240), pool("b", "not_ready", 250)]


@pytest.mark.parametrize(
    ("spec", "connects", "events", "verdict", "count", "excused"),
    [
        # the pair is the target
        (STICKY, [connect(100, "a", 0), connect(200, "b", 1)], BOTH_ACTIVE, "pass", 0, 0),
        (STICKY, [connect(100, "a", 0), connect(200, "x", 1)], BOTH_ACTIVE, "fail", 1, 0),
        # moving back is a move
        (STICKY, [connect(100, "a", 0), connect(200, "x", 1), connect(300, "a", 2)], BOTH_ACTIVE, "fail", 2, 0),
        (STICKY, [connect(100, "a", 0), connect(200, "x", 1, "l")], BOTH_ACTIVE, "unknown", 0, 0),
        (STICKY, [connect(100, "a", 0), connect(200, "x", 1, outcome="fail")], BOTH_ACTIVE, "unknown", 0, 0),
        (STICKY, [connect(100, "a", 0), connect(200, None, 1)], BOTH_ACTIVE, "unknown", 0, 0),
        # nobody was active meanwhile
        (
            STICKY,
            [connect(100, "a", 0), connect(200, "x", 1)],
            [*BOTH_ACTIVE, role("a", "down", 150), role("b", "active", 160)],
            "pass",
            0,
            1,
        ),
        (
            PromiseSpec("sticky", moves="never"),
            [connect(100, "a", 0), connect(200, "x", 1)],
            [*BOTH_ACTIVE, role("a", "down", 150), role("b", "active", 160)],
            "fail",
            1,
            0,
        ),
        (
            PromiseSpec("sticky", moves="some"),
            [connect(100, "a", 0), connect(200, "x", 1)],
            [*BOTH_ACTIVE, role("a", "down", 150), role("b", "active", 160)],
            "pass",
            0,
            1,
        ),
        (
            PromiseSpec("sticky", moves="some"),
            [connect(100, "a", 0), connect(200, "b", 1)],
            BOTH_ACTIVE,
            "unknown",
            0,
            0,
        ),
        # … only after the connect, and only the period reaches there
        (STICKY, [connect(100, "a", 0), connect(200, "x", 1)], [*BOTH_ACTIVE, role("a", "down", 250)], "fail", 1, 0),
        (
            PromiseSpec("sticky", check_period_ms=60),
            [connect(100, "a", 0), connect(200, "x", 1)],
            [*BOTH_ACTIVE, role("a", "down", 250)],
            "pass",
            0,
            1,
        ),
        # with the connect, less or plus the period, and just beside it
        *(
            (
                PromiseSpec("sticky", check_period_ms=20),
                [connect(100, "a", 0), connect(200, "x", 1)],
                [*BOTH_ACTIVE, role("a", "down", down)],
                *(("pass", 0, 1) if excused else ("fail", 1, 0)),
            )
            for down, excused in ((220, True), (220.1, False))
        ),
        *(
            (
                PromiseSpec("sticky", check_period_ms=20),
                [connect(100, "a", 0), connect(200, "x", 1)],
                [*BOTH_ACTIVE, role("a", "down", 50), role("a", "active", up)],
                *(("pass", 0, 1) if excused else ("fail", 1, 0)),
            )
            for up, excused in ((80.1, True), (80, False))
        ),
        # nothing is known before the first role
        *(
            (
                STICKY,
                [connect(100, "a", 0), connect(200, "x", 1)],
                [role("x", "active", 1, "z"), *roles],
                *(("pass", 0, 1) if excused else ("fail", 1, 0)),
            )
            for roles, excused in (
                ([], False),
                ([role("a", "active", 300)], False),
                ([role("b", "down", 300)], False),
                ([role("b", "down", 150)], True),
            )
        ),
        # the pool knows better than roles: one of the two was ready all the time, then none
        (
            STICKY,
            [connect(100, "a", 0), connect(200, "x", 1)],
            [pool("a", "ready", 1), pool("b", "not_ready", 2), role("a", "down", 150)],
            "fail",
            1,
            0,
        ),
        (
            STICKY,
            [connect(100, "a", 0), connect(200, "x", 1)],
            [*BOTH_ACTIVE, pool("a", "not_ready", 50), pool("b", "not_ready", 120), pool("b", "ready", 130)],
            "pass",
            0,
            1,
        ),
        # "from the fault that explains it": one on the target, in effect when it is taken for not ready
        *(
            (STICKY, [connect(100, "a", 0), connect(200, "x", 1)], [*faults, *LATE], verdict, count, 1 - count)
            for faults, verdict, count in (
                ([event("fault", 150, name="kill", instance="a")], "pass", 0),
                ([event("fault", 150, name="cut", detail={"toward": "q, a"})], "pass", 0),
                ([event("fault", 150, name="kill", store="s")], "pass", 0),
                # on another, without an end that is known, after the move, or healed by then
                ([event("fault", 150, name="kill", instance="x")], "fail", 1),
                ([event("fault", 150, name="cut")], "fail", 1),
                ([event("fault", 210, name="kill", instance="a")], "fail", 1),
                ([event("fault", 150, name="cut", detail={"toward": "a"}), event("heal", 230, name="cut")], "fail", 1),
                # an earlier time without the target is what it explains; what comes later needs one of its own
                (
                    [
                        event("fault", 20, name="kill", instance="a"),
                        *(pool(who, "not_ready", 30) for who in "ab"),
                        pool("a", "ready", 90),
                    ],
                    "fail",
                    1,
                ),
            )
        ),
        (
            PromiseSpec("sticky", cache_timeout_ms=90),
            [connect(100, "a", 0), connect(200, "x", 1)],
            BOTH_ACTIVE,
            "pass",
            0,
            1,
        ),
        (
            PromiseSpec("sticky", cache_timeout_ms=100),
            [connect(100, "a", 0), connect(200, "x", 1)],
            BOTH_ACTIVE,
            "fail",
            1,
            0,
        ),
        (
            PromiseSpec("sticky", cache_timeout_ms=110),
            [connect(100, "a", 0), connect(200, "x", 1)],
            BOTH_ACTIVE,
            "fail",
            1,
            0,
        ),
        (
            PromiseSpec("sticky", cache_timeout_ms=0),
            [connect(100, "a", 0), connect(200, "x", 1)],
            BOTH_ACTIVE,
            "fail",
            1,
            0,
        ),
    ],
)
def test_sticky(
    spec: PromiseSpec, connects: list[Row], events: list[Row], verdict: str, count: int, excused: int
) -> None:
    result = promised(spec, *connects, events=[*events, event("note", 1000)])
    assert (result["verdict"], result["count"], result["excused"]) == (verdict, count, excused)


def test_what_excuses_a_move_for_certain_counts_whichever_connect_came_first() -> None:
    """The clocks leave open which of two connects came first, and the period is longer than that."""
    run = changed(clocks={"c": Clock("host", uncertainty_ns=10 * MS)})
    spec = PromiseSpec("sticky", check_period_ms=60)
    events = [*BOTH_ACTIVE, role("a", "down", 120), event("note", 1000)]
    result = promised(spec, connect(150, "a", 0), connect(155, "x", 1), events=events, run=run)
    assert (result["verdict"], result["excused"]) == ("pass", 1)


# --- single_active --------------------------------------------------------------------------------------------------

TAKEOVER = [role("a", "active", 1), role("a", "down", 100), role("b", "active", 150)]
BETWEEN = [send("m1", 10, instance="a"), send("m2", 20, instance="b", client="p2"), send("m3", 30, instance="a")]


@pytest.mark.parametrize(
    ("rows", "events", "verdict", "count"),
    [
        ([send("m1", 10, instance="a"), send("m2", 160, instance="b")], TAKEOVER, "pass", 0),
        (BETWEEN, [role("a", "active", 1)], "fail", 1),
        ([*BETWEEN[:1], send("m2", 20, "unknown", instance="b"), BETWEEN[2]], [role("a", "active", 1)], "pass", 0),
        # it does not lie wholly between, or a's epoch was interrupted
        ([*BETWEEN[:2], send("m3", 20.5, instance="a")], [role("a", "active", 1)], "pass", 0),
        (BETWEEN, [role("a", "active", 1), role("a", "down", 15), role("a", "active", 25)], "pass", 0),
        # repeats continue an epoch
        (BETWEEN, [role("a", "active", 1), role("a", "active", 15)], "fail", 1),
        # the server of another store
        ([BETWEEN[0], send("m2", 20, instance="x"), BETWEEN[2]], [role("a", "active", 1)], "pass", 0),
        # overlapping epochs, and such as may overlap
        ([], [role("a", "active", 1), role("b", "active", 150), role("a", "down", 160)], "fail", 1),
        (
            [],
            [role("a", "active", 1), role("b", "active", 150, uncertainty_ns=20 * MS), role("a", "down", 160)],
            "unknown",
            0,
        ),
        ([send("m1", 10, instance="a")], [], "unknown", 0),
        ([send("m1", 10)], TAKEOVER, "unknown", 0),
    ],
)
def test_single_active(rows: list[Row | list[Row]], events: list[Row], verdict: str, count: int) -> None:
    of_the_other = role("x", "active", 1, "z")
    result = promised(PromiseSpec("single_active"), *rows, events=[*events, of_the_other, event("note", 1000)])
    assert (result["verdict"], result["count"]) == (verdict, count)


@pytest.mark.parametrize(("of_z", "verdict"), [([], "unknown"), ([role("y", "passive", 1, "z")], "pass")])
def test_of_each_store_of_several_instances_a_role_is_to_be_known(of_z: list[Row], verdict: str) -> None:
    result = promised(PromiseSpec("single_active"), events=[*TAKEOVER, *of_z, event("note", 1000)])
    assert result["verdict"] == verdict


def test_a_clock_makes_role_events_uncertain() -> None:
    events = [role("a", "active", 1), role("b", "active", 150), role("a", "down", 160), event("note", 1000)]
    run = changed(clocks={"c": Clock("host", uncertainty_ns=6 * MS)})
    assert promised(PromiseSpec("single_active"), events=events, run=run)["verdict"] == "unknown"


# --- failover, failback ---------------------------------------------------------------------------------------------

KILL = event("fault", 95, name="kill", instance="a", uncertainty_ns=2 * MS)
FAILOVER = [*TAKEOVER, KILL, event("note", 1000)]
BEFORE = send("m1", 10, instance="a")
# Another client that the fault meets; it sends nothing, so that nothing is due from it.
IN_FLIGHT = op("w", "connect", 90, 300, instance="a")


@pytest.mark.parametrize(
    ("bound", "rows", "events", "verdict", "measured"),
    [
        (100, [BEFORE, send("m2", 160, instance="b")], FAILOVER, "pass", 66),
        (60, [BEFORE, send("m2", 160, instance="b")], FAILOVER, "fail", 66),
        # the worst client
        (90, [send("m2", 160, instance="b"), send("m3", 190, instance="b", client="p2")], FAILOVER, "fail", 96),
        # acknowledged is what counts: the commit
        (90, [send("m2", 160, instance="b", txn="x"), end("commit", "x", 200)], FAILOVER, "fail", 106),
        (90, [send("m2", 160, instance="b", txn="x"), end("rollback", "x", 200)], FAILOVER, "unknown", None),
        # b answers before it is seen active: that is not its next epoch yet
        (100, [send("m2", 120, instance="b"), send("m3", 160, instance="b")], FAILOVER, "pass", 66),
        # begun before the fault, or within its uncertainty
        (100, [send("m2", 96, instance="b") | {"end_ns": 170 * MS}], FAILOVER, "unknown", None),
        # tries on past the bound; gave up before; was never served before
        (100, [BEFORE, send("m2", 300, "unknown")], FAILOVER, "fail", None),
        (100, [BEFORE, op("p", "send", 96, None, "unknown", address="q", message_id="m2")], FAILOVER, "fail", None),
        # begun with the fault, or before it, and never returned
        (100, [BEFORE, op("p", "send", 95, None, "unknown", address="q", message_id="m2")], FAILOVER, "fail", None),
        (100, [BEFORE, op("p", "send", 94, None, "unknown", address="q", message_id="m2")], FAILOVER, "fail", None),
        (100, [BEFORE, send("m2", 120, "unknown")], FAILOVER, "unknown", None),
        (100, [send("m2", 300, "unknown")], FAILOVER, "unknown", None),
        # no failover: the fault hit who was not active, a link, or left it active
        (100, [BEFORE, send("m2", 300, instance="a")], [role("a", "active", 1), KILL], "unknown", None),
        (100, [BEFORE], [*TAKEOVER, event("fault", 95, name="kill", instance="b")], "unknown", None),
        (100, [BEFORE], [*TAKEOVER, event("fault", 95, name="cut", target="a→b")], "unknown", None),
        # who served is not known
        (100, [BEFORE, send("m2", 160)], FAILOVER, "unknown", None),
    ],
)
def test_failover(bound: float, rows: list[Row], events: list[Row], verdict: str, measured: float | None) -> None:
    result = promised(PromiseSpec("failover_within", bound_ms=bound), IN_FLIGHT, *rows, events=events)
    assert (result["verdict"], result["measured"]) == (verdict, measured)


def test_failover_is_split() -> None:
    rows = [send("m1", 10, instance="a"), send("m2", 160, instance="b"), receive("m2", 180, instance="b")]
    result = judge(RUN, numbered(rows), FAILOVER, [PromiseSpec("failover_within", bound_ms=100)])
    times = {"detection_ms": 5, "activation_ms": 55, "first_send_ms": 66, "first_delivery_ms": 85}
    assert result["failover"] == [{"fault": "kill", "t_ns": 95 * MS, "client": "p", **times}]


@pytest.mark.parametrize(("over", "u", "told"), [(301, 0, 206), (302, 0, None), (306, 5, 211), (307, 5, None)])
def test_a_first_delivery_may_begin_as_the_successor_ends(over: float, u: int, told: float | None) -> None:
    """As far as the clocks tell."""
    rows = [send("m1", 10, instance="a"), send("m2", 160, instance="b"), receive("m2", over, instance="b")]
    events = [*FAILOVER, role("b", "down", 300, uncertainty_ns=u * MS)]
    result = judge(RUN, numbered(rows), events, [PromiseSpec("failover_within", bound_ms=100)])
    assert [row["first_delivery_ms"] for row in result["failover"]] == [told]


HEAL = event("heal", 200, name="kill", instance="a")
BACK = [role("b", "passive", 290), role("a", "active", 300)]


@pytest.mark.parametrize(
    ("bound", "events", "verdict", "measured"),
    [
        (150, [*FAILOVER, HEAL, *BACK], "pass", 100),
        (90, [*FAILOVER, HEAL, *BACK], "fail", 100),
        (150, [*FAILOVER, HEAL], "fail", None),
        (150, FAILOVER, "unknown", None),
        (150, [role("a", "active", 1), KILL, HEAL], "unknown", None),  # it never ceased to be active
        (150, [*TAKEOVER, event("fault", 170, name="kill", instance="b"), {**HEAL, "instance": "b"}], "unknown", None),
    ],
)
def test_failback(bound: float, events: list[Row], verdict: str, measured: float | None) -> None:
    result = promised(PromiseSpec("failback_within", bound_ms=bound), IN_FLIGHT, events=events)
    assert (result["verdict"], result["measured"]) == (verdict, measured)


def test_failback_tells_the_clients_gap() -> None:
    rows = [send("m1", 219), send("m2", 279)]
    result = promised(PromiseSpec("failback_within", bound_ms=50), *rows, events=[*FAILOVER, HEAL, *BACK])
    assert [witness["client_gap_ms"] for witness in result["witnesses"]] == [60]


# --- available ------------------------------------------------------------------------------------------------------

LOAD = phases((0, 400), (500, 600))
STEADY = [send(f"m{at}", at - 1) for at in (100, 200, 300)]


@pytest.mark.parametrize(
    ("bound", "side", "rows", "events", "verdict", "measured"),
    [
        (100, None, STEADY, LOAD, "pass", 100),
        (99, "send", STEADY, LOAD, "fail", 100),
        # an address of its own; an unknown send is no success; nor does one of a transaction that was rolled back help
        (150, None, [*STEADY, send("n", 99, address="r"), send("o", 299, address="r")], LOAD, "fail", 200),
        (150, None, [*STEADY[:1], send("m200", 199, "unknown"), STEADY[2]], LOAD, "fail", 200),
        (150, None, [*STEADY[:1], send("n", 199, txn="x"), end("rollback", "x", 201), STEADY[2]], LOAD, "fail", 200),
        (150, None, [*STEADY[:1], send("n", 199, txn="x"), end("commit", "x", 209), STEADY[2]], LOAD, "pass", 110),
        # it never came back
        (150, None, STEADY[:1], LOAD, "fail", 300),
        (150, "receive", [*STEADY, *got("m100", 200)], LOAD, "fail", 200),
        (250, "receive", [*STEADY, *got("m100", 200)], LOAD, "pass", 200),
        (150, None, STEADY, [], "unknown", None),
        (150, None, got("m", 20), LOAD, "unknown", None),
        (150, "receive", STEADY, LOAD, "unknown", None),
    ],
)
def test_available(
    bound: float, side: str | None, rows: list[Row], events: list[Row], verdict: str, measured: float | None
) -> None:
    run = changed(drained={"q": True})
    result = promised(PromiseSpec("available", bound_ms=bound, side=side), *rows, events=events, run=run)
    assert (result["verdict"], result["measured"]) == (verdict, measured)


def test_an_outage_names_its_fault() -> None:
    faults = [event("fault", 30, name="kill", instance="a"), event("fault", 40, name="cut", target="l")]
    faults += [event("heal", 90, name="cut", target="l"), event("fault", 360, name="stop", instance="a")]
    rows = [*STEADY[:2], send("m", 349)]
    result = judge(RUN, numbered(rows), [*LOAD, *faults], [PromiseSpec("available", bound_ms=120)])
    [outage] = result["outages"]
    assert (outage["start_ns"], outage["end_ns"], outage["fault"]) == (200 * MS, 350 * MS, "kill")


# --- the whole ------------------------------------------------------------------------------------------------------


def test_no_phantoms_is_always_checked_and_verdicts_merge() -> None:
    result = judge(RUN, numbered(KEPT), [], [PromiseSpec("no_loss"), PromiseSpec("ordered")])
    assert {one["name"]: one["verdict"] for one in result["promises"]} == {
        "no_phantoms": "pass",
        "no_loss": "pass",
        "ordered": "unknown",
    }
    assert (result["verdict"], result["as_expected"]) == ("unknown", False)
    assert merge(["pass", "fail", "unknown"]) == "fail"
    assert merge(["pass", "pass"]) == "pass"


@pytest.mark.parametrize(
    ("expect", "lost", "as_expected"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"no_loss": "kept"}, True, False),
        ({"no_loss": "violated"}, True, True),
        ({"no_loss": "violated"}, False, False),
        ({"no_phantoms": "violated"}, False, False),
    ],
)
def test_as_expected(expect: dict[str, str], lost: bool, as_expected: bool) -> None:
    rows = [*KEPT, send("n", 30)] if lost else KEPT
    result = judge(changed(expect=expect), numbered(rows), [], [PromiseSpec("no_loss")])
    assert (result["verdict"] == "fail", result["as_expected"]) == (lost, as_expected)


def test_a_torn_line_lets_no_pass_stand_that_it_could_affect() -> None:
    specs = [PromiseSpec("no_loss"), PromiseSpec("no_duplicates")]
    verdicts = {
        torn: [one["verdict"] for one in judge(RUN, numbered(KEPT), [], specs, torn=torn)["promises"]]
        for torn in ((), ("ops",), ("events",))
    }
    assert verdicts == {(): ["pass"] * 3, ("ops",): ["unknown"] * 3, ("events",): ["pass", "unknown", "pass"]}


# --- the generator --------------------------------------------------------------------------------------------------


def test_generated_ledgers_are_valid_and_the_same_for_the_same_seed() -> None:
    for seed in range(50):
        run, ops, events = generate(seed)
        assert generate(seed) == (run, ops, events)
        assert 10 <= len({(row["client"], row["op_id"]) for row in ops}) <= 120
        for row in ops:
            json_line(row)
        for row in events:
            json_line(row, EVENT_COLUMNS)


def test_generated_ledgers_reach_every_class_and_every_verdict_of_every_promise() -> None:
    classes_reached, verdicts = coverage(SEEDS)
    assert [name for name in CLASSES if not classes_reached[name]] == []
    assert [(name, verdict) for name in PROMISES for verdict in VERDICTS if not verdicts[name, verdict]] == []
