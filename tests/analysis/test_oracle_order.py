"""The oracle on ledgers small enough to judge by eye: what comes in order, and what comes together."""

from __future__ import annotations

import pytest

from brokerdrill.ledger.contract import (
    PromiseSpec,
)
from tests.analysis.by_hand import MS, Row, end, event, got, op, phases, promised, send

TWO = [send("m1", 10, key="k"), send("m2", 20, key="k")]
# m1 while m2 begins
UNDER_WAY = send("m1", 10, key="k") | {"end_ns": 25 * MS}
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
        # in flight together: in the order of one session, but for what was in doubt, sent again, or is in a transaction
        (ORDERED, [UNDER_WAY, TWO[1], *SWAPPED], "fail", 1, 0),
        (ORDERED, [send("m1", 5, "fail", key="k"), UNDER_WAY, TWO[1], *SWAPPED], "fail", 1, 0),
        (ORDERED, [UNDER_WAY | {"end_ns": 20 * MS}, TWO[1], *SWAPPED], "unknown", 0, 0),
        (ORDERED, [UNDER_WAY | {"outcome": "unknown"}, TWO[1], *SWAPPED], "unknown", 0, 0),
        (ORDERED, [UNDER_WAY | {"outcome": "unknown", "end_ns": None}, TWO[1], *SWAPPED], "unknown", 0, 0),
        (ORDERED, [UNDER_WAY, TWO[1], send("m1", 28, key="k", attempt=1), *SWAPPED], "unknown", 0, 0),
        (ORDERED, [UNDER_WAY | {"txn": "x"}, end("commit", "x", 28), TWO[1], *SWAPPED], "unknown", 0, 0),
        (ORDERED, [UNDER_WAY, TWO[1] | {"txn": "x"}, end("commit", "x", 28), *SWAPPED], "unknown", 0, 0),
        # whoever had left the session may have sent it by another one
        (ORDERED, [UNDER_WAY, TWO[1], op("p", "connect", 26, 27, session=1), *SWAPPED], "fail", 1, 0),
        (ORDERED, [UNDER_WAY, TWO[1], op("p", "connect", 25, 26, session=1), *SWAPPED], "unknown", 0, 0),
        (
            ORDERED,
            [UNDER_WAY, op("p", "connect", 15, 16, session=1), TWO[1] | {"session": 1}, *SWAPPED],
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


@pytest.mark.parametrize(("at", "excused"), [(29, 0), (35, 1), (40, 0)])
def test_a_killed_consumers_session_ends_with_it(at: float, excused: int) -> None:
    """d had m1 when it was killed, after m2 was delivered and before m1 came to c."""
    killed = event("note", at, name="clients killed", detail={"clients": "x, d"})
    read = [*got("other", 5, client="d"), *TWO, *got("m2", 30), *got("m1", 40)]
    result = promised(BY_KEY, *read, events=[*phases(), killed])
    assert (result["verdict"], result["excused"]) == ("pass" if excused else "fail", excused)


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
