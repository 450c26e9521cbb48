"""ordered on ledgers of few rows and few times: who gave back when, at each border and beside it."""

from __future__ import annotations

import random
from typing import Any

from brokerdrill.analysis.verdict import WITNESSES
from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.batch import Ledger
from tests.analysis.by_hand import MS, Row, got, op, receive, send, subscribe
from tests.analysis.judging import judged
from tests.analysis.side_by_side import Rows, all_told, ledger, promised

BY_SESSION, BY_KEY = PromiseSpec("ordered"), PromiseSpec("ordered", scope="key")
# m1 precedes m2.
TWO = [send("m1", 10, key="k"), send("m2", 20, key="k")]


def told_of(spec: PromiseSpec, *cases: Rows) -> list[str]:
    """What becomes of the one late message of each ledger, side by side."""
    found = [promised(one, "ordered") for one in all_told(*(ledger(rows, promises=[spec]) for rows in cases))]
    told = {("fail", 1, 0): "late", ("pass", 0, 1): "excused", ("pass", 0, 0): "in order", ("unknown", 0, 0): "no pair"}
    return [told[one["verdict"], one["count"], one["excused"]] for one in found]


def rollback(client: str, begin: float, over: float | None, session: int = 0, outcome: str = "ok") -> Row:
    return op(client, "rollback", begin, over, outcome, session=session, txn="t")


def test_what_precedes_what() -> None:
    def of(first: tuple[float, float], second: float, delivered: tuple[float, float], **more: Any) -> Rows:
        one = {**send("m1", 1), "start_ns": round(first[0] * MS), "end_ns": round(first[1] * MS)}
        return [one, send("m2", second, **more), receive("m1", delivered[0]), receive("m2", delivered[1])]

    found = told_of(
        BY_SESSION,
        of((1, 11), 11.1, (40, 30)),
        of((1, 11), 11, (40, 30)),  # neither precedes
        of((1, 11), 11.1, (40, 40)),  # delivered at once
        of((1, 11), 11.1, (40, 39.9)),
        of((1, 11), 11.1, (30, 40)),
        of((1, 11), 11.1, (40, 30), client="p2"),
        of((1, 11), 11.1, (40, 30), key="k"),
        of((1, 11), 11.1, (40, 30), address="elsewhere"),
    )
    assert found == ["late", "no pair", "in order", "late", "in order", "no pair", "no pair", "no pair"]


def test_what_is_in_flight_together_is_in_the_order_of_its_session() -> None:
    """m2 begins at 20, while m1 is under way, which begins at 10 and ends at 25."""
    m1, m2 = TWO[0] | {"end_ns": 25 * MS}, TWO[1]
    late = [receive("m2", 30), receive("m1", 40)]
    third = [send("m3", 25, key="k"), receive("m3", 29)]
    cases = [
        ([m1, m2], "late"),
        ([m1, m2, send("m1", 5, "fail", key="k")], "late"),
        ([m1 | {"end_ns": 20 * MS}, m2], "no pair"),
        ([m1, m2 | {"start_ns": 10 * MS}], "no pair"),
        ([m1 | {"outcome": "unknown"}, m2], "no pair"),
        ([m1 | {"outcome": "unknown", "end_ns": None}, m2], "no pair"),
        ([m1, m2 | {"outcome": "unknown"}], "late"),
        ([m1, m2, send("m1", 28, key="k", attempt=1)], "no pair"),
        ([m1, m2, send("m1", 11, "unknown", key="k", attempt=1)], "no pair"),
        ([m1 | {"txn": "x"}, m2, op("p", "commit", 28, 29, txn="x")], "no pair"),
        ([m1, m2 | {"txn": "x"}, op("p", "commit", 28, 29, txn="x")], "no pair"),
        ([m1, m2, op("p", "connect", 25.1, 26, session=1)], "late"),
        ([m1, m2, op("p", "connect", 25, 26, session=1)], "no pair"),
        ([m1, m2 | {"session": 1}], "no pair"),
        # What was in flight with another one came before what begins as it ends.
        ([m1, m2 | {"key": "l"}, *third], "late"),
        ([m1, *third], "no pair"),
        ([m1, m2 | {"key": "l", "session": 1}, *third], "no pair"),
    ]
    assert told_of(BY_SESSION, *([*more, *late] for more, _ in cases)) == [found for _, found in cases]


def test_a_message_is_of_whom_its_first_attempt_is() -> None:
    """Of those that may have taken effect; it ends with the last of them."""
    resent = {"attempt": 1, "key": "l", "client": "p2"}
    found = told_of(
        BY_SESSION,
        [*TWO, send("m1", 15, **resent), receive("m2", 30), receive("m1", 40)],
        [*TWO, send("m1", 19, **resent), receive("m2", 30), receive("m1", 40)],
        [*TWO, send("m1", 25, "fail", **resent), receive("m2", 30), receive("m1", 40)],
        [*TWO, send("m2", 25, **resent), receive("m2", 30), receive("m1", 40)],
        [TWO[0], send("m2", 5, "fail", key="j"), TWO[1], receive("m2", 30), receive("m1", 40)],
    )
    assert found == ["late", "no pair", "late", "late", "late"]


def test_another_clients_session_gave_back_while_the_message_may_have_lain_with_it() -> None:
    """d reads there, too. m2 was sent at 20, delivered at 30, m1 at 40; c's session connected until 28."""
    late = [*TWO, receive("m2", 30), receive("m1", 40), *got("other", 5, client="d")]
    connected = op("c", "connect", 26, 28)
    cases = [
        ([rollback("d", 20.1, 20.1)], "excused"),
        ([rollback("d", 20, 20)], "late"),
        ([rollback("d", 30, 30)], "excused"),
        ([rollback("d", 40, 40)], "late"),
        ([rollback("d", 39.9, 39.9)], "excused"),
        # Under way as m1 was delivered
        ([rollback("d", 15, 45)], "excused"),
        ([rollback("d", 39.9, 45)], "excused"),
        ([rollback("d", 40, 45)], "late"),
        ([rollback("d", 15, 45, outcome="fail")], "late"),
        ([op("d", "commit", 15, 45, "unknown", txn="t")], "excused"),
        ([op("d", "commit", 15, 45, txn="t")], "late"),
        ([rollback("d", 15, 16), rollback("d", 14, 45)], "excused"),
        ([connected, rollback("d", 28, 28)], "late"),
        ([connected, rollback("d", 28.1, 28.1)], "excused"),
        ([connected, op("c", "connect", 29, 35), rollback("d", 29, 29)], "excused"),
        ([connected, rollback("d", 24, 24), rollback("d", 45, 45)], "late"),
        ([connected, rollback("d", 28.1, 28.1), rollback("c", 35, 36)], "excused"),
        ([connected, rollback("d", 24, 24), rollback("c", 35, 36)], "late"),
        # The first end of several, and the next connect
        ([op("d", "close", 34, 35), op("d", "close", 60, 61)], "excused"),
        ([op("d", "close", 50, 51), op("d", "close", 34, 35, "fail")], "late"),
        ([op("d", "connect", 34, 35, session=1), op("d", "connect", 60, 61, session=2)], "excused"),
        ([op("d", "connect", 34, 60, session=1), op("d", "connect", 36, 61, session=1)], "excused"),
        ([op("d", "close", 50, 51), op("d", "connect", 34, 35, session=1)], "late"),
        ([op("d", "connect", 34, 35, "fail", session=1)], "excused"),
        ([op("d", "connect", 34, 35, session=0)], "late"),
        ([op("e", "subscribe", 1, 2, address="q"), op("e", "close", 34, 35)], "excused"),
        ([op("e", "ack", 1, 2, address="q", delivery="x"), op("e", "close", 34, 35)], "excused"),
        ([op("e", "unsubscribe", 1, 2, address="q"), op("e", "close", 34, 35)], "late"),
        ([op("e", "subscribe", 1, 2, address="q"), op("f", "close", 34, 35)], "late"),
        ([op("e", "subscribe", 1, 2, address="q", session=1), op("e", "close", 34, 35)], "late"),
    ]
    assert told_of(BY_SESSION, *([*late, *more] for more, _ in cases)) == [found for _, found in cases]


def test_another_session_of_the_same_client_gave_back_strictly_between() -> None:
    late = [*TWO, receive("m2", 30, session=1), receive("m1", 40, session=1), receive("x", 5)]
    cases = [
        ([rollback("c", 30.1, 30.1)], "excused"),
        ([rollback("c", 30, 30)], "late"),
        ([rollback("c", 39.9, 39.9)], "excused"),
        ([rollback("c", 40, 40)], "late"),
        ([rollback("c", 35, 35, session=1)], "late"),
        ([rollback("c", 35, 35), rollback("c", 36, 37, session=1)], "excused"),
        ([rollback("c", 29, 29), rollback("c", 36, 37, session=1)], "late"),
        ([rollback("c", 29, 29), rollback("c", 35, 35), rollback("c", 36, 37, session=1)], "excused"),
        ([rollback("c", 35, 35), rollback("c", 35, 35, session=1)], "excused"),
        # Under way as m1 was delivered: not another client's
        ([rollback("c", 25, 45)], "late"),
        ([rollback("c", 25, 45, session=1)], "late"),
    ]
    assert told_of(BY_SESSION, *([*late, *more] for more, _ in cases)) == [found for _, found in cases]


def test_by_key_whoever_else_gave_back_strictly_between() -> None:
    late = [*TWO, receive("m2", 30), receive("m1", 40, client="d")]
    cases = [
        ([op("c", "close", 29, 30.1)], "excused"),
        ([op("c", "close", 29, 30)], "late"),
        ([op("c", "close", 29, 39.9)], "excused"),
        ([op("c", "close", 29, 40)], "excused"),
        ([op("c", "close", 29, 41)], "excused"),
        ([op("c", "close", 40, 41)], "late"),
        ([rollback("d", 34, 35)], "late"),
        ([rollback("c", 32, 32), rollback("d", 34, 35)], "excused"),
        ([rollback("c", 25, 25), rollback("d", 34, 35)], "late"),
        ([rollback("c", 25, 25), rollback("c", 32, 32), rollback("d", 34, 36)], "excused"),
        ([rollback("c", 34, 34), rollback("d", 34, 34)], "excused"),
        ([rollback("c", 34, 34, outcome="fail")], "late"),
        ([rollback("c", 34, None, outcome="unknown")], "excused"),
        # Without an end to the end of its session
        ([rollback("c", 15, None, outcome="unknown")], "excused"),
        ([rollback("c", 15, None, outcome="unknown"), op("c", "connect", 25, 26, session=1)], "late"),
        ([rollback("c", 15, None, outcome="unknown"), op("c", "connect", 35, 36, session=1)], "excused"),
    ]
    assert told_of(BY_KEY, *([*late, *more] for more, _ in cases)) == [found for _, found in cases]


TICK = 10
READERS = ("c", "d", "e")


def drawn(seed: int) -> Ledger:
    """A ledger of some messages of a queue or topic, whose times are so few that many things have the same."""
    rng = random.Random(seed)

    def time(low: int = 0) -> int:
        return rng.randint(low, 14)

    def span(low: int = 0) -> dict[str, int]:
        begin = time(low)
        return {"start_ns": begin * TICK * MS, "end_ns": (begin + rng.choice((0, 0, 1, 2))) * TICK * MS}

    topic = rng.random() < 0.4
    where = {"address": "t" if topic else "q"}
    subs = ("d", "e") if topic else (None,)
    rows: list[Row] = [subscribe(name, 0, who) for name in subs for who in READERS if name]
    for number in range(rng.randint(2, 6)):
        name = f"m{number}"
        key = rng.choice((None, "k"))
        rows.append({**send(name, 1, rng.choice(("ok", "ok", "unknown")), key=key, **where), **span()})
        for sub in subs:
            for _ in range(rng.choice((1, 1, 1, 2))):
                who = {"client": rng.choice(READERS), "session": rng.randint(0, 1)}
                flagged = {"redelivered": rng.random() < 0.1}
                rows.append({**receive(name, 1, **where, **who, **flagged), "subscription": sub, **span(5)})
    for _ in range(rng.randint(0, 6)):
        what = rng.choice(("rollback", "commit", "close", "connect", "connect"))
        outcome = rng.choice(("ok", "unknown", "fail"))
        who, session = rng.choice(READERS), rng.randint(0, 2)
        rows.append({**op(who, what, 1, 2, outcome, session=session, txn=f"t{len(rows)}"), **span()})
        if rng.random() < 0.2 and outcome == "unknown":
            rows[-1]["end_ns"] = None
    # Of what ended at once the first by client and operation comes first.
    rows.sort(key=lambda row: row["client"])
    return ledger(rows, promises=rng.choice(([BY_SESSION], [BY_KEY], [BY_KEY, BY_SESSION])))


def test_ledgers_of_few_times_as_the_oracle_judges_them() -> None:
    """All of them side by side: their names are the same."""
    told = all_told(*(drawn(seed) for seed in range(250)))
    found = [one for of in told for one in of["promises"] if one["name"] == "ordered"]
    assert {one["verdict"] for one in found} == {"pass", "fail", "unknown"}
    assert sum(one["excused"] for one in found) > 50
    assert sum(one["count"] for one in found) > 50


def test_the_worst_late_messages_are_told() -> None:
    """By how much they are behind the newest that was delivered before them, then by name."""
    names = [f"m{number:02}" for number in range(WITNESSES + 2)]
    rows = [send(name, 10 + 2 * place, key="k") for place, name in enumerate(names)]
    rows += [receive("m00", 30), receive("m11", 40), *(receive(name, 50) for name in names[1:-1])]
    (told,) = judged(ledger(rows, promises=[BY_SESSION]))
    found = promised(told, "ordered")
    assert found["count"] == WITNESSES
    assert [one["message_id"] for one in found["witnesses"]] == names[1:-1]
    # m11 began at 32, m01 ended at 13.
    assert [one["behind_ns"] for one in found["witnesses"]] == [(19 - 2 * place) * MS for place in range(WITNESSES)]
    assert found["witnesses"][0] == {
        "message_id": "m01",
        "address": "q",
        "producer": "p",
        "key": "k",
        "consumer": "c",
        "session": 0,
        "delivered_ns": 50 * MS,
        "behind_ns": 19 * MS,
    }
