"""Promises of few rows through all stages, at borders and beside them: what counts from where, and up to where."""

from __future__ import annotations

from typing import Any

import pytest

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.by_hand import (
    BEFORE,
    MS,
    RUN,
    Row,
    connect,
    end,
    event,
    op,
    phases,
    receive,
    role,
    send,
    sent_in,
    subscribe,
)
from tests.analysis.judging import classes, judged
from tests.analysis.side_by_side import all_classes, all_told, ledger, promised

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
# What may end a subscription, whether it does in any case, and whether it does unless that is durable (None: perhaps).
ENDINGS: list[tuple[list[Row], bool | None, bool | None]] = [
    ([op(*UNSUBSCRIBED, 500, 1000, **OF_D)], False, False),  # with the drain's begin
    ([op(*UNSUBSCRIBED, 500, 999.9, **OF_D)], True, True),
    ([op(*UNSUBSCRIBED, 999, 999.5, "unknown", **OF_D)], None, None),
    ([op(*UNSUBSCRIBED, 999, None, "unknown", **OF_D)], None, None),
    ([op(*UNSUBSCRIBED, 1000, 1001, "unknown", **OF_D)], False, False),  # it began with the drain
    ([op(*UNSUBSCRIBED, 0, 0.5, **OF_D)], False, False),  # before the subscribe
    ([op(*UNSUBSCRIBED, 500, 501, "fail", **OF_D)], False, False),
    ([op(*UNSUBSCRIBED, 500, 501, **OF_D | {"subscription": "other"})], False, False),
    ([op(*UNSUBSCRIBED, 500, 501, **OF_D | {"address": "u"})], False, False),
    ([op(*CLOSED, 500, 1000)], False, False),
    ([op(*CLOSED, 500, 999.9)], False, True),
    ([op(*CLOSED, 500, None, "unknown")], False, None),
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
        assert found == [{True: {}, False: {"lost": 1}, None: {"unseen": 1}}[one] for one in ended]


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
