"""The oracle on ledgers small enough to judge by eye: classes, what they break, the whole; and what the generator's
ledgers reach. Each promise has ledgers that keep it, that break it, and that leave it unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from brokerdrill.ledger.contract import (
    CLASSES,
    EVENT_COLUMNS,
    PROMISES,
    VERDICTS,
    Clock,
    PromiseSpec,
    json_line,
)
from tests.analysis.by_hand import (
    BROWSED,
    MS,
    RUN,
    UNTOUCHED,
    Row,
    ack,
    changed,
    classes,
    end,
    got,
    numbered,
    op,
    phases,
    promised,
    receive,
    send,
    subscribe,
)
from tests.analysis.generate import coverage, generate
from tests.analysis.oracle import judge, merge

SEEDS = range(400)

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
    events = phases(load=(0, 80))
    assert promised(spec, *KEPT, LOOK, events=events)["verdict"] == "pass"
    broken = promised(spec, *KEPT, LOOK, *breaking, events=events)
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
