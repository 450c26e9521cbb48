"""What a drill asks of a promise, and whether a run is that: kept, violated, broken no further than a known defect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brokerdrill.analysis.checks.finding import Finding
from brokerdrill.analysis.expectation import TARGET, Asked, Moves, not_met
from brokerdrill.analysis.verdict import concluded, exit_status, together
from brokerdrill.ledger.contract import RunInfo
from brokerdrill.ledger.known import Known
from brokerdrill.ledger.verdict import FAIL, PASS, UNKNOWN, PromiseVerdict, RunVerdict
from tests.analysis.batch import Ledger, Row
from tests.analysis.in_process import judging, rows_of
from tests.analysis.kept_run import MS, find, kept, numbered, op
from tests.analysis.test_checks_can_fail import (
    Change,
    a_key_moves,
    a_message_comes_twice,
    a_message_is_lost,
    changed,
)

LATE = {"t_ns": 5, "first_send_ms": 900.0, "last_try_ms": 950.0}


def defect(promise: str = "no_loss", only: dict[str, Any] | None = None, **at_most: float) -> Known:
    return Known(promise, at_most, "Product 1.0, store", only=only or {})


@pytest.mark.parametrize(
    ("verdicts", "met"),
    [(["pass"], True), (["pass", "unknown"], False), (["unknown"], False), (["pass", "fail"], False)],
)
def test_what_is_to_be_kept_is_kept_in_every_entry(verdicts: list[str], met: bool) -> None:
    assert not_met(verdicts, [Finding()], Asked(), [], {}) == (None if met else "")


@pytest.mark.parametrize("word", ["violated", "known"])
@pytest.mark.parametrize("verdict", ["pass", "unknown"])
def test_what_is_to_be_violated_has_to_be_and_what_may_be_need_not(word: str, verdict: str) -> None:
    met = word == "known" and verdict == "pass"
    assert not_met([verdict], [Finding()], Asked(word, {0: defect(count=9)}), [], {}) == (None if met else "")


@pytest.mark.parametrize(
    ("at_most", "found", "why"),
    [
        ({"count": 2}, Finding(n=2), None),
        ({"count": 2}, Finding(n=3), "3 breaks are more than the 2 that are known"),
        ({"rate": 0.1}, Finding(n=10, judged=100), None),
        ({"rate": 0.1}, Finding(n=11, judged=100), "11 of 100 are more than the share of 0.1 that is known"),
        # Of how many is not known: no share is.
        ({"rate": 0.1}, Finding(n=1), "1 of 0 are more than the share"),
        ({"ms": 900}, Finding(n=1, measured=900.0, witnesses=[LATE]), None),
        ({"ms": 899}, Finding(n=1, measured=900.0, witnesses=[LATE]), "it took longer than the 899 ms that are known"),
        # What was not measured may have taken any time.
        ({"ms": 900}, Finding(n=1), "it took longer than the 900 ms that are known"),
        # What never came took longer than any time.
        ({"ms": 900}, Finding(n=1, measured=1.0, witnesses=[{"last_try_ms": 5}]), "it took longer than the 900 ms"),
        ({"ms": 900}, Finding(n=1, measured=1.0, witnesses=[{"healed_ns": 5}]), "it took longer than the 900 ms"),
        ({"ms": 900}, Finding(n=1, measured=1.0, witnesses=[{"healed_ns": 5, "active_ns": 7}]), None),
        ({"ms": 900}, Finding(n=1, measured=1.0, witnesses=[{"t_ns": 5, "waited_ms": 1.0}]), "it took longer"),
        ({"ms": 900}, Finding(n=1, measured=1.0, witnesses=[{"waited_ms": 1.0, "delivered_ns": 7}]), None),
        ({"ms": 900}, Finding(n=1, measured=1.0, witnesses=[{"alert": "Down", "fired_ms": 1.0}]), "it took longer"),
        ({"ms": 900}, Finding(n=1, measured=1.0, witnesses=[{"alert": "", "fired_ms": 1, "cleared_ms": 1}]), None),
        # None of several ceilings may be passed.
        ({"count": 9, "ms": 900}, Finding(n=1, measured=901.0, witnesses=[LATE]), "it took longer"),
        ({"count": 1, "ms": 900}, Finding(n=2, measured=1.0, witnesses=[LATE]), "2 breaks are more"),
    ],
)
def test_a_known_defect_has_a_ceiling(at_most: dict[str, float], found: Finding, why: str | None) -> None:
    told = not_met(["fail"], [found], Asked("known", {0: defect(**at_most)}), [], {})
    assert (told is None) if why is None else (told is not None and told.startswith(why)), told
    assert why is None or "(Product 1.0, store)" in str(told)


def test_breaks_of_all_entries_of_a_promise_count_together() -> None:
    asked = Asked("known", {0: defect(count=3)})
    assert not_met(["fail", "pass"], [Finding(n=3), Finding()], asked, [], {}) is None
    assert "4 breaks" in str(not_met(["fail", "fail"], [Finding(n=3), Finding(n=1)], asked, [], {}))


def test_another_kind_of_witness_is_another_defect() -> None:
    asked = Asked("known", {0: defect(only={"kind": "a"}, count=9)})
    same, other = {"kind": "a", "x": 1}, {"kind": "b"}
    assert not_met(["fail"], [Finding(n=2, witnesses=[same, same])], asked, [], {}) is None
    assert "in another way" in str(not_met(["fail"], [Finding(n=2, witnesses=[same, other])], asked, [], {}))
    assert "in another way" in str(not_met(["fail"], [Finding(n=1, witnesses=[{"x": 1}])], asked, [], {}))


def test_all_witnesses_count_not_only_the_worst() -> None:
    asked = Asked("known", {3: defect(only={"kind": "a"}, count=99)})
    same, other = {"kind": "a", "x": 1}, {"kind": "b"}
    assert not_met(["fail"], [Finding(n=12, rows=[same] * 11, witnesses=[same] * 10)], asked, [], {}) is None
    found = Finding(n=12, rows=[*[same] * 11, other], witnesses=[same] * 10)
    assert "in another way" in str(not_met(["fail"], [found], asked, [], {}))
    # What partitions find is counted there, for each known defect.
    found = Finding(n=12, witnesses=[same] * 10, otherwise={("lost", 3): 1})
    assert "in another way" in str(not_met(["fail"], [found], asked, [], {}))
    assert not_met(["fail"], [replace(found, otherwise={("lost", 2): 1})], asked, [], {}) is None


def test_of_several_known_defects_one_has_to_fit_and_the_first_is_told() -> None:
    small, large = defect(count=1), defect(count=9)
    for known in ((small, large), (large, small)):
        assert not_met(["fail"], [Finding(n=5)], Asked("known", dict(enumerate(known))), [], {}) is None
    assert "5 breaks are more than the 1" in str(not_met(["fail"], [Finding(n=5)], Asked("known", {0: small}), [], {}))


@pytest.mark.parametrize(
    ("moved", "why"),
    [
        ([("s", "z", 3, 10)], None),
        ([("z", "s", 3, 10)], None),
        (
            [("y", "z", 2, 99), ("s", "z", 3, 99), ("z", "y", 1, 99)],
            "3 of the moves are of keys that no fault concerned",
        ),
        ([("s", "z", 3, 9)], "keys moved before any fault concerned them"),
        ([("s", "r", 3, 9)], None),
    ],
)
def test_moves_of_other_keys_and_earlier_ones_are_no_expected_violation(
    moved: list[tuple[str, str, int, int]], why: str | None
) -> None:
    found, hit = [Moves(*one) for one in moved], {"s": 10, "r": 5}
    assert not_met(["fail"], [Finding(n=3)], Asked("violated", only=TARGET), found, hit) == why
    assert not_met(["fail"], [Finding(n=3)], Asked("violated"), found, hit) is None


# --- through the whole analysis -------------------------------------------------------------------------------------


def a_key_moves_afterwards(ops: list[Row], events: list[Row]) -> None:
    """To the store that a fault hit, from another one that was ready."""
    for at in (100, 1000, 2000):
        find(ops, op="connect", start_ns=at * MS)["instance"] = "x"


LOSS, TWICE = defect("no_loss", count=1), defect("no_duplicates", count=1)
# The message that is lost is one of a transaction.
PART = {"atomic": "violated"}
WHOLE: dict[str, tuple[Change, dict[str, Any], dict[str, str | None]]] = {
    # (what is changed, what run.json asks, promise → why it is not as expected: "" its verdict says it)
    "known": (a_message_is_lost, {"expect": {**PART, "no_loss": "known"}, "known": (LOSS,)}, {}),
    "not known": (a_message_is_lost, {"expect": PART}, {"no_loss": ""}),
    "known of another promise": (
        a_message_is_lost,
        {"expect": {**PART, "no_loss": "known", "no_duplicates": "known"}, "known": (TWICE,)},
        {"no_loss": ""},
    ),
    "both known, each of its own": (
        a_message_comes_twice,
        {
            "expect": {"no_loss": "known", "no_duplicates": "known"},
            "known": (replace(LOSS, at_most={"count": 0}), TWICE),
        },
        {},
    ),
    "more than is known": (
        a_message_is_lost,
        {"expect": {**PART, "no_loss": "known"}, "known": (replace(LOSS, at_most={"count": 0}),)},
        {"no_loss": "1 breaks are more than the 0 that are known (Product 1.0, store)"},
    ),
    # To store z from s, which a fault hit, or from z to s.
    "moved to what was hit": (
        a_key_moves_afterwards,
        {"expect": {"sticky": "violated"}, "only": {"sticky": TARGET}},
        {},
    ),
    "moved before that": (
        a_key_moves,
        {"expect": {"sticky": "violated"}, "only": {"sticky": TARGET}},
        {"sticky": "keys moved before any fault concerned them"},
    ),
}


def test_what_run_json_asks_is_asked_of_the_promise_that_it_names() -> None:
    ledgers = {}
    for name, (change, asked, _) in WHOLE.items():
        run, ops, events = changed(change)
        # What is lost waits for ever, too.
        promises = tuple(one for one in run.promises if one.name != "delivered_within")
        ledgers[name] = (replace(run, promises=promises, **asked), ops, events)
    with judging(ledgers, rows_of(ledgers), parts=2) as found:
        results = found.finish().results
    told = {
        name: {one.name: one.beyond or "" for one in results[number].promises if not one.as_expected}
        for number, name in enumerate(ledgers)
    }
    assert told == {name: why for name, (_, _, why) in WHOLE.items()}


def twelve(*, of_another_kind: bool) -> Ledger:
    """Twelve messages are lost, and sent by calls that fail first; one of them on another address, or all on one."""
    run, ops, events = kept()
    for number in range(12):
        message = {"address": "q", "message_id": f"z{number:02}", "payload_sha": "sha", "durable": True}
        if number == 11 and of_another_kind:
            message["address"] = "q2"
        ops.append(op("o", "send", 2400 + number, 2400.5 + number, outcome="fail", **message, instance="a"))
        ops.append(op("o", "send", 2450 + number, 2450.5 + number, **message, instance="a", attempt=1))
    ops.append(op("c2", "receive", 1000, 7990, outcome="fail", address="q2"))
    defects = ("no_loss", "delivered_within", "transparent")
    expect = dict.fromkeys(defects, "known")
    known = tuple(Known(one, {"count": 99}, "Product 1.0", only={"address": "q"}) for one in defects)
    drained = {"q": True, "q2": True}
    return replace(run, expect=expect, known=known, drained=drained), numbered(ops), events


@pytest.mark.parametrize("parts", [1, 3])
def test_a_twelfth_witness_of_another_kind_is_another_defect(parts: int) -> None:
    ledgers = {"same": twelve(of_another_kind=False), "other": twelve(of_another_kind=True)}
    with judging(ledgers, rows_of(ledgers), parts=parts) as found:
        results = found.finish().results
    for result, why in ((results[0], ""), (results[1], "it is broken in another way than is known (Product 1.0)")):
        told = {one.name: one for one in result.promises if one.expected == "known"}
        assert {name: (one.count, one.beyond) for name, one in told.items()} == dict.fromkeys(told, (12, why))
        assert len(told) == 3
        # None of those that are shown.
        assert {row.fields["address"] for one in told.values() for row in one.witnesses} == {"q"}


@pytest.mark.parametrize(
    ("word", "outcome", "expected"),
    [
        ("known", "completed", True),
        ("known", "crashed", False),
        ("violated", "completed", True),
        ("violated", "crashed", True),
    ],
)
def test_how_far_a_known_defect_would_have_gone_is_not_seen_where_the_run_broke_off(
    word: str, outcome: str, expected: bool
) -> None:
    promise = PromiseVerdict("no_loss", FAIL, count=1, expected=word)
    told = concluded(RunInfo("r", outcome=outcome), RunVerdict(promises=(promise,)), {})
    assert told.as_expected == expected


def test_a_violation_does_not_say_how_far_a_known_defect_would_have_gone() -> None:
    promises = (
        PromiseVerdict("no_duplicates", FAIL, count=1, expected="violated"),
        PromiseVerdict("no_loss", FAIL, count=1, expected="known"),
    )
    for outcome, expected in (("completed", True), ("aborted", False)):
        told = concluded(RunInfo("r", outcome=outcome), RunVerdict(promises=promises), {})
        assert (told.as_expected, exit_status(together([told]))) == (expected, 0 if expected else 2)


def test_of_two_entries_with_a_known_defect_one_may_be_unknown() -> None:
    late, unseen = (
        PromiseVerdict("available", FAIL, expected="known"),
        PromiseVerdict("available", UNKNOWN, expected="known"),
    )
    told = concluded(RunInfo("r", outcome="completed"), RunVerdict(promises=(late, unseen)), {})
    assert [one.as_expected for one in told.promises] == [True, False]
    assert exit_status(together([told])) == 2


def _seen(*promises: tuple[str, bool]) -> RunVerdict:
    judged = tuple(PromiseVerdict("no_loss", verdict, as_expected=met) for verdict, met in promises)
    return RunVerdict(promises=judged, as_expected=all(met for _, met in promises))


@pytest.mark.parametrize(
    ("promises", "status"),
    [
        ([(PASS, True), (UNKNOWN, True)], 0),
        ([(PASS, True), (UNKNOWN, False)], 2),
        ([(FAIL, True), (UNKNOWN, False)], 2),
        ([(FAIL, False), (PASS, True)], 1),
        # kept, and it should be violated
        ([(PASS, False), (PASS, True)], 1),
        ([(PASS, True), (UNKNOWN, False), (FAIL, False)], 1),
    ],
)
def test_the_exit_status_follows_the_promises_that_are_not_as_expected(
    promises: list[tuple[str, bool]], status: int
) -> None:
    assert exit_status(together([_seen(*promises)])) == status
    assert exit_status(together([_seen((PASS, True)), _seen(*promises)])) == status
