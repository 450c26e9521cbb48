"""Ledgers of few rows through the stages in this process, each analysis by itself: no other run helps or hinders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from brokerdrill.analysis.verdict import WITNESSES
from brokerdrill.ledger.contract import Clock, PromiseSpec
from tests.analysis.batch import Ledger
from tests.analysis.by_hand import (
    BOTH_ACTIVE,
    BROWSED,
    MS,
    RUN,
    Row,
    ack,
    connect,
    end,
    event,
    got,
    numbered,
    op,
    phases,
    receive,
    role,
    send,
    subscribe,
)
from tests.analysis.in_process import judging, rows_of
from tests.analysis.judging import classes, judged


def ledger(*rows: Row | list[Row], events: Sequence[Row] = (), promises: Sequence[PromiseSpec] = ()) -> Ledger:
    return replace(RUN, promises=tuple(promises)), numbered(rows), list(events) or phases()


# So many that not all of them are in one partition with whose work they end.
OTHERS = [f"other-{number}" for number in range(5)]


def test_a_transaction_that_another_client_commits_is_committed() -> None:
    """Where nobody acknowledges what another client received."""
    rows = [[send(f"m{who}", 10, txn=who), end("commit", who, 12, client=who), *got(f"m{who}", 20)] for who in OTHERS]
    assert classes(judged(ledger(*rows), parts=2)[0]) == {"ok": len(OTHERS)}


def test_a_delivery_that_another_client_acknowledges_is_processed() -> None:
    """Where nobody ends another client's transaction. A second delivery makes it a duplicate: it is certain."""
    rows = []
    for who in OTHERS:
        first, again = receive(f"m{who}", 20), receive(f"m{who}", 30)
        rows.append([send(f"m{who}", 10), first, again, *({**ack(one), "client": who} for one in (first, again))])
    assert classes(judged(ledger(*rows), parts=2)[0]) == {"duplicated": len(OTHERS)}


@pytest.mark.parametrize(("decision", "told"), [("commit", "ok"), ("rollback", "phantom")])
def test_a_commit_that_had_no_answer_is_decided_by_whoever_ended_the_transaction_then(decision: str, told: str) -> None:
    rows: list[Row | list[Row]] = []
    for who in OTHERS:
        rows += [send(f"m{who}", 10, txn=who), end("commit", who, 12, "unknown"), end(decision, who, 14, client=who)]
        rows.append(got(f"m{who}", 20))
    assert classes(judged(ledger(*rows), parts=2)[0]) == {told: len(OTHERS)}


def test_a_transaction_is_ended_in_its_own_run_alone() -> None:
    """Runs whose clients have the same names: of two the transactions have one name, and one of the two is open."""
    open_, ended = send("m", 10, txn="x"), end("commit", "x", 12, client="other")
    told = judged(*(ledger(open_, *more) for of in OTHERS for more in ([], [{**ended, "client": of}])), parts=2)
    assert [classes(one) for one in told] == [{"rejected": 1}, {"lost": 1}] * len(OTHERS)


@pytest.mark.parametrize("ended", [False, True])
def test_a_subscription_is_there_since_the_first_of_its_consumers_until_one_ends_it(ended: bool) -> None:
    rows = [subscribe("d", 50, who) for who in OTHERS[1:]] + [subscribe("d", 1, OTHERS[0])]
    if ended:
        rows.append(op(OTHERS[0], "unsubscribe", 500, 501, address="t", subscription="d"))
    told = judged(ledger(*rows, send("m", 10, address="t")), parts=2)[0]
    assert classes(told) == ({} if ended else {"lost": 1})


@pytest.mark.parametrize(("alone", "others"), [(10, 60), (60, 10)])
def test_a_send_is_between_two_of_another_instance_whoever_sent_them(alone: int, others: int) -> None:
    rows = [send(f"m{who}", others, client=who, instance="a") for who in OTHERS]
    rows += [send("m", alone, client="alone", instance="a"), send("n", 30, client="between", instance="b")]
    events = [*phases(), role("a", "active", 1)]
    (told,) = judged(ledger(*rows, events=events, promises=[PromiseSpec("single_active")]), parts=2)
    promise = next(one for one in told["promises"] if one["name"] == "single_active")
    assert (promise["count"], [one["message_id"] for one in promise["witnesses"]]) == (1, ["n"])


def test_a_run_has_rows_of_a_clock_that_nobody_placed_if_one_client_has() -> None:
    rows = [send(f"m{who}", 10, client=who) for who in OTHERS]
    given = {"placed": ledger(*rows), "not": ledger(*rows, send("m", 10, client="far", clock="far"))}
    seen: list[frozenset[int]] = []

    def doubts(unplaced: frozenset[int]) -> tuple[dict[int, frozenset[str]], dict[int, list[str]]]:
        seen.append(unplaced)
        return {}, {}

    with judging(given, rows_of(given), parts=3) as found:
        found.finish(doubts)
    assert seen == [{1}]


MANY = WITNESSES + 2


def test_ten_witnesses_of_each_promise_are_told() -> None:
    """Of a run that breaks each twelve times."""
    numbers = range(MANY)
    rows: list[Row | list[Row]] = [
        [send(f"twice{n}", 10), *got(f"twice{n}", 20), *got(f"twice{n}", 30)] for n in numbers
    ]
    rows += [send(f"lost{n}", 10) for n in numbers]
    rows += [got(f"stranger{n}", 20) for n in numbers]
    rows += [[send(f"dead{n}", 10), {**BROWSED, "message_id": f"dead{n}"}] for n in numbers]
    for n in numbers:
        both = [send(f"{name}{n}", 10, txn=f"x{n}", client=f"p{n}") for name in ("half", "other")]
        rows += [both, end("commit", f"x{n}", 12, client=f"p{n}"), got(f"half{n}", 20)]
    # Backwards: all but the last sent are late.
    line = [f"line{n:02}" for n in range(MANY + 1)]
    rows += [send(name, 100 + 2 * place, key="k") for place, name in enumerate(line)]
    rows += [got(name, 200 + 2 * place) for place, name in enumerate(reversed(line))]
    rows += [connect(300 + n, "ax"[n % 2], n) for n in range(MANY + 1)]
    # b sends within a's epoch.
    rows += [send(f"of-a{at}", at, instance="a", client="pa") for at in (400, 500)]
    rows += [send(f"of-b{n}", 410 + n, instance="b", client="pb") for n in numbers]
    names = (
        "no_phantoms",
        "no_loss",
        "no_duplicates",
        "no_dead_letters",
        "atomic",
        "ordered",
        "sticky",
        "single_active",
    )
    events = [*phases(), role("a", "active", 1), role("x", "active", 1, "z")]
    (told,) = judged(ledger(*rows, events=events, promises=[PromiseSpec(name) for name in names]))
    assert {one["name"]: len(one["witnesses"]) for one in told["promises"]} == dict.fromkeys(names, WITNESSES)
    assert all(one["count"] >= MANY for one in told["promises"])


@pytest.mark.parametrize(("second", "broken"), [(11, [{"atomic": 1}, {}]), (10, [{}, {"atomic": 1}])])
def test_a_transaction_that_came_apart_is_told_by_its_first_messages_and_first_attempt(
    second: int, broken: list[dict[str, int]]
) -> None:
    """0 proves nothing, since it may have come by its attempt outside the transaction."""
    rows = [
        *(send("0", 12, txn="x", client="p1"), send("0", 35, "unknown", client="p1", attempt=1)),
        *(send("b", 20, txn="x", client="p2"), send("a", 10, txn="x", client="p1")),
        *(send("d", 30, txn="x", client="p2"), send("c", 32, txn="x", client="p1")),
        end("commit", "x", 50, client="p1"),
        *(got("d", 60), got("c", 62), got("0", 64)),
    ]
    begins = [event("note", at, name=name, detail={"round": "begin"}) for at, name in ((9, "1"), (second, "2"))]
    (told,) = judged(ledger(*rows, events=[*phases(), *begins], promises=[PromiseSpec("atomic")]))
    (witness,) = next(one["witnesses"] for one in told["promises"] if one["name"] == "atomic")
    assert (witness["txn"], witness["client"], witness["seen"], witness["missing"]) == ("x", "p1", 3, 2)
    assert (witness["message_id"], witness["seen_message_id"]) == ("a", "c")
    # From a round's begin on.
    assert [one["broken"] for one in told["rounds"]] == broken


@pytest.mark.parametrize(("drained", "verdict"), [(True, "fail"), (False, "unknown")])
def test_the_rest_of_a_transaction_in_doubt_may_still_be_on_a_queue_that_nobody_saw_empty(
    drained: bool, verdict: str
) -> None:
    rows = [*(send(name, 10 + n, txn="x") for n, name in enumerate("abc")), end("commit", "x", 20, "unknown")]
    run = replace(RUN, promises=(PromiseSpec("atomic"),), drained={"q": drained})
    (result,) = judged((run, numbered([*rows, *got("a", 30), *got("b", 31)]), phases()))
    promise = next(one for one in result["promises"] if one["name"] == "atomic")
    assert (promise["verdict"], promise["count"]) == (verdict, int(drained))


# The load's clock is known to 10 ms, the events' to 0.1 ms.
@pytest.mark.parametrize(("down", "verdict"), [(230.1, "unknown"), (230.100001, "fail")])
def test_what_may_excuse_a_move_reaches_to_the_last_moment_that_the_clocks_allow(down: float, verdict: str) -> None:
    spec = PromiseSpec("sticky", check_period_ms=20)
    run = replace(RUN, clocks={"c": Clock("host", uncertainty_ns=10 * MS)}, promises=(spec,))
    events = [*BOTH_ACTIVE, role("a", "down", down), event("note", 1000)]
    (result,) = judged((run, numbered([connect(100, "a", 0), connect(200, "x", 1)]), events))
    assert next(one for one in result["promises"] if one["name"] == "sticky")["verdict"] == verdict


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (
            [send("a", 10), send("b", 11), send("c", 12), *got("a", 20)],
            "messages that were acknowledged and not deliver",
        ),
        ([send("a", 10, "fail")], None),
    ],
)
def test_why_a_loss_is_unknown_says_which_of_the_two_it_is(rows: list[Row], reason: str | None) -> None:
    run = replace(RUN, promises=(PromiseSpec("no_loss"),), drained={"q": False})
    (result,) = judged((run, numbered(rows), phases()))
    promise = next(one for one in result["promises"] if one["name"] == "no_loss")
    assert promise["verdict"] == "unknown"
    assert str(promise.get("reason")).startswith(str(reason)), promise
    assert reason is None or ": 2;" in promise["reason"]
