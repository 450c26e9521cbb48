"""Ledgers of few rows whose names are the same, judged side by side and each by itself: what is of one run is of no
other. What is told follows from the contract, and the oracle tells it, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.by_hand import (
    BOTH_ACTIVE,
    BROWSED,
    MS,
    Row,
    ack,
    connect,
    event,
    got,
    phases,
    receive,
    role,
    send,
    subscribe,
)
from tests.analysis.judging import classes
from tests.analysis.side_by_side import Rows, all_classes, all_told, ledger

D = subscribe("d", 1, "c1")
ON_T = {"address": "t"}
AT_D = {"address": "t", "subscription": "d", "client": "c1"}


def test_a_failed_message_that_was_found_dead_is_one_phantom_on_a_queue_and_on_a_topic() -> None:
    """Whatever else was: another message, a delivery, several subscriptions that tell of it, other topics."""
    twice = [{**BROWSED, "subscription": name} for name in ("d", "e", None)]
    of_u = [subscribe("u", 1, "c2") | {"address": "u"}, send("m", 10, "fail", address="u")]
    found = all_classes(
        [D, send("m", 10, "fail", **ON_T), *twice],
        [D, send("m", 10, "fail", **ON_T), receive("m", 20, **AT_D), *twice],
        [D, send("m", 10, "fail", **ON_T)],
        [D, send("m", 10, **ON_T), BROWSED],
        [D, send("m", 60, **ON_T), send("n", 10, "fail", **ON_T), receive("n", 20, **AT_D), BROWSED],
        [D, send("m", 10, "fail"), BROWSED],
        [D, *of_u, send("m", 10, "fail"), receive("x", 20, **AT_D), BROWSED],
        [subscribe("d", 50, "c1"), send("m", 10, **ON_T), send("n", 10, "fail", **ON_T), BROWSED],
    )
    assert found == [
        {"phantom": 1},
        {"phantom": 1},
        {},
        {"dead_lettered": 1},
        {"dead_lettered": 1, "phantom": 1},
        {"phantom": 1},
        {"phantom": 1, "unexpected": 1},
        {},
    ]


def test_a_message_found_dead_that_no_address_knows_is_another_applications() -> None:
    strange = {**BROWSED, "message_id": "strange"}
    found = all_classes(
        [BROWSED],
        [BROWSED, {**BROWSED, "subscription": "d"}, strange],
        [BROWSED, receive("m", 20), strange],
        [BROWSED, send("m", 10, **ON_T), D],
        [BROWSED, send("m", 10, "fail", address="elsewhere")],
    )
    assert found == [
        {},
        {},
        {"unexpected": 1},
        {"dead_lettered": 1},
        {"rejected": 1},
    ]


def test_a_receive_from_a_dead_letter_address_is_no_delivery() -> None:
    assert all_classes([send("m", 10), got("m", 1100, address="DLQ")]) == [{"dead_lettered": 1}]


def test_what_is_found_dead_was_browsed_or_received() -> None:
    found = all_classes(
        [send("m", 10), BROWSED],
        [send("m", 10), {**BROWSED, "outcome": "unknown"}],
        [send("m", 10), {**BROWSED, "outcome": "fail", "op": "receive"}],
        [send("m", 10), {**BROWSED, "message_id": None}],
        [send("m", 10), send("m", 20, address="DLQ")],
    )
    assert found == [{"dead_lettered": 1}, {"lost": 1}, {"lost": 1}, {"lost": 1}, {"lost": 1, "unseen": 1}]


def test_a_dead_letter_is_of_those_whose_address_it_is() -> None:
    sent = [send("m", 10, address=name) for name in ("q", "r")]
    maps = ({"q": "DLQ", "r": "DLQ2"}, {"r": "DLQ", "q": "DLQ2"}, {"q": "DLQ", "r": "DLQ"}, {"r": "DLQ"})
    drained = {"q": True, "r": True}
    ledgers = [ledger([*sent, BROWSED], dead_letters=one, drained=drained) for one in maps]
    found = [classes(one) for one in all_told(*ledgers)]
    assert found == [
        {"dead_lettered": 1, "lost": 1},
        {"dead_lettered": 1, "lost": 1},
        {"dead_lettered": 2},
        {"dead_lettered": 1, "lost": 1},
    ]


def test_a_subscribe_that_ended_when_the_attempt_began_was_not_before_it() -> None:
    assert all_classes(*([D, send("m", begin, **ON_T)] for begin in (2, 2.000001))) == [{}, {"lost": 1}]


def test_a_delivery_to_a_subscription_that_came_later_counts_if_it_is_processed_or_of_a_failed_message() -> None:
    later = subscribe("d", 50, "c1")
    delivered = receive("m", 70, **AT_D)
    others = [send("n", 10, "fail", **ON_T), send("o", 10, "fail")]
    found = all_classes(
        [later, send("m", 10, **ON_T), delivered, *others],
        [later, send("m", 10, **ON_T), delivered, ack(delivered), *others],
        [later, send("m", 10, "fail", **ON_T), delivered, *others],
        [later, delivered, *others],
        [later, send("m", 10, "unknown", **ON_T), delivered],
        [send("m", 10), receive("m", 70)],
    )
    assert found == [
        {"rejected": 1},
        {"ok": 1, "rejected": 1},
        {"phantom": 1, "rejected": 1},
        {"unexpected": 1, "rejected": 1},
        {},
        {"lost": 1},
    ]


def test_a_message_is_durable_if_any_attempt_is_and_expires_at_the_latest_of_all() -> None:
    """The drain ends at 2000."""
    found = all_classes(
        *([send("m", 10, durable=one), send("m", 30, durable=not one, attempt=1)] for one in (True, False)),
        [send("m", 10, durable=False), send("m", 30, durable=False, attempt=1)],
        *(
            [send("m", 10 + place, expires_ns=at * MS, attempt=place) for place, at in enumerate(both)]
            for both in ((1900, 2100), (2100, 1900), (1900, 1950), (1900, 2000))
        ),
    )
    lost = {"lost": 1}
    assert found == [lost, lost, {"lost_nonpersistent": 1}, lost, lost, {"expired": 1}, lost]


PAYLOADS = [f"sha-{number}" for number in range(6)]


def test_a_delivery_has_one_of_the_payloads_that_were_sent() -> None:
    """Whichever of several has the greater hash."""

    def of(name: str, sent: Sequence[str], *delivered: str | None) -> Rows:
        rows = [receive(name, 20 + number, payload_sha=sha) for number, sha in enumerate(delivered)]
        return [
            *(send(name, 10, payload_sha=sha, attempt=number) for number, sha in enumerate(sent)),
            *rows,
            ack(rows[0]),
        ]

    right: list[Row | list[Row]] = []
    wrong: list[Row | list[Row]] = []
    for place, sha in enumerate(PAYLOADS):
        other, third = (PAYLOADS[(place + more) % len(PAYLOADS)] for more in (1, 2))
        right += [*of(f"a{sha}", [sha], sha), *of(f"b{sha}", [sha], None), *of(f"c{sha}", [sha, other], sha)]
        right += [*of(f"d{sha}", [sha, other], other), *of(f"e{sha}", [sha, other], None)]
        wrong += [*of(f"f{sha}", [sha], other), *of(f"g{sha}", [sha], other, sha), *of(f"h{sha}", [sha, other], third)]
        wrong += of(f"i{sha}", [sha, other], third, third)
    assert all_classes(right, wrong) == [{"ok": 5 * len(PAYLOADS)}, {"corrupted": 4 * len(PAYLOADS)}]


def test_a_dead_letter_of_a_topic_is_of_its_subscription_or_of_all() -> None:
    both = [D, subscribe("e", 1, "c2"), send("m", 10, **ON_T)]
    of_d = {**BROWSED, "subscription": "d"}
    queue = send("m", 10)
    found = all_classes(
        [*both, of_d],
        [*both, {**of_d, "subscription": "e"}, {**of_d, "subscription": "f"}],
        [*both, BROWSED, of_d],
        [*both, {**of_d, "subscription": "f"}],
        [queue, of_d, {**of_d, "subscription": "e"}],
        [*both, queue, of_d],
    )
    assert found == [
        {"dead_lettered": 1, "lost": 1},
        {"dead_lettered": 1, "lost": 1},
        {"dead_lettered": 2},
        {"lost": 2},
        {"dead_lettered": 1},
        {"dead_lettered": 2, "lost": 1},
    ]


def routed(client: str, instance: str | None, at: float, **columns: Any) -> Row:
    return event("routed", at, target=client, instance=instance, name="r", **columns)


AT_R = {"instance": "r"}
KILLED = [*phases(), event("fault", 200, name="kill", instance="a", store="s", target="host-a")]


@pytest.mark.parametrize(
    ("led", "met"),
    [
        # Nobody says who is behind the router: its clients are at nobody that was hit
        ([], (0, 0, 0)),
        ([routed("p", "a", 8), routed("p2", "x", 9)], (1, 1, 2)),
        ([routed("p", "a", 8), routed("p2", "a", 9)], (2, 1, 4)),
        ([routed("p", "x", 8), routed("p2", "x", 9)], (0, 0, 0)),
        # Led elsewhere before its last success, and after it
        ([routed("p", "a", 8), routed("p", "x", 150)], (0, 0, 0)),
        ([routed("p", "x", 8), routed("p", "a", 150)], (1, 1, 2)),
        ([routed("p", "a", 8), routed("p", "x", 300)], (1, 1, 2)),
        # What was in flight ended there
        ([routed("p", "x", 8), routed("p", "a", 182)], (1, 1, 2)),
        # Give or take
        ([routed("p", "x", 8), routed("p", "a", 232)], (0, 0, 0)),
        ([routed("p", "x", 8), routed("p", "a", 232, uncertainty_ns=2 * MS)], (1, 1, 2)),
        # One of its names says nothing
        ([routed("p", None, 8)], (0, 0, 0)),
    ],
)
def test_who_is_behind_a_router_is_hit_with_its_clients(led: list[Row], met: tuple[int, int, int]) -> None:
    """Client p: a send before the fault, one across it, one after; p2 none across it. The router has a row for each
    that it led, and is no client."""
    rows = [
        *(send("m1", 180, **AT_R), send("m2", 199, **AT_R) | {"end_ns": 230 * MS}, send("m3", 240, **AT_R)),
        *(
            send("n1", 180, client="p2", **AT_R),
            send("n2", 240, client="p2", **AT_R),
            send("n3", 250, client="p2", **AT_R),
        ),
        *(connect(7, one["instance"], number) for number, one in enumerate(led) if one["instance"]),
    ]
    (told,) = all_told(ledger(rows, [*KILLED, *led]))[:1]
    (of,) = told["coverage"]
    assert (of["clients"], of["in_flight"], of["operations"]) == met


@pytest.mark.parametrize(("earlier", "met"), [(0, (0, 0)), (8, (0, 0)), (15, (1, 0)), (20, (1, 1))])
def test_whom_a_stop_sent_away_before_it_was_over_had_met_it(earlier: int, met: tuple[int, int]) -> None:
    """The client's last send was answered 20 ms before the middle of the time that the stop took; then it went to
    another store."""
    rows = [send("m1", 170, instance="a") | {"end_ns": 180 * MS + 1}, send("m2", 190, instance="x")]
    stop = event("fault", 200, name="stop", instance="a", store="s", uncertainty_ns=earlier * MS)
    (told,) = all_told(ledger(rows, [*phases(), stop]))[:1]
    (of,) = told["coverage"]
    assert (of["clients"], of["in_flight"]) == met


def test_a_router_that_is_hit_is_hit_with_its_own_clients() -> None:
    """Client p comes by router r, p2 by another one, p3 by none."""
    rows = [send("m1", 190, **AT_R), send("n1", 190, client="p2", instance="r2")]
    rows += [send("o1", 190, client="p3", instance="a")]
    led = [routed("p", "a", 8), {**routed("p2", "a", 9), "name": "r2"}]
    kill = event("fault", 200, name="kill", instance="r", target="host-r")
    (told,) = all_told(ledger(rows, [*phases(), *led, kill]))[:1]
    (of,) = told["coverage"]
    assert of["clients"] == 1


@pytest.mark.parametrize(
    ("led", "met"),
    [
        ([routed("p", "a", 8)], (1, 1, 2)),
        ([{**routed("p", "a", 8), "name": "r2"}], (0, 0, 0)),
        ([{**routed("p", "a", 8), "name": "r2"}, routed("p", "a", 150)], (1, 1, 2)),
        ([routed("p", "a", 8), {**routed("p", "a", 150), "name": "r2"}], (0, 0, 0)),
        ([], (0, 0, 0)),
    ],
)
def test_at_an_address_that_routers_have_in_turn_they_say_whose_clients_are_hit(
    led: list[Row], met: tuple[int, int, int]
) -> None:
    """No operation of p says who served it."""
    rows = [send("m1", 190), send("m2", 199) | {"end_ns": 230 * MS}, send("m3", 240)]
    both = [{**routed("other", "a", 2), "name": name} for name in ("r", "r2")]
    kill = event("fault", 200, name="kill", instance="r", target="host-r")
    (told,) = all_told(ledger([{**row, "instance": None} for row in rows], [*phases(), *both, *led, kill]))[:1]
    (of,) = told["coverage"]
    assert (of["clients"], of["in_flight"], of["operations"]) == met


def asking(via: str, at: float, instance: str, session: int) -> Row:
    return connect(at, instance, session) | {"via": via}


@pytest.mark.parametrize(
    ("asked", "met"),
    [
        # Not the fault's instance, before the fault, from its heal on, from before until after
        ([asking("x", 210, "x", 0)], (0, 0, 0)),
        ([asking("a", 150, "x", 0)], (0, 0, 0)),
        ([asking("a", 302, "x", 0)], (0, 0, 0)),
        ([asking("a", 199, "x", 0) | {"end_ns": 400 * MS}], (1, 1, 1)),
        # Refused, never answered, one of two, from two clients
        ([asking("a", 210, "x", 0) | {"outcome": "fail", "instance": None}], (1, 0, 1)),
        ([asking("a", 210, "x", 0) | {"outcome": "unknown", "end_ns": None}], (1, 0, 1)),
        ([asking("a", 210, "x", 0), asking("x", 220, "x", 1)], (1, 0, 1)),
        ([asking("a", 210, "x", 0), asking("a", 220, "x", 0) | {"client": "p2"}], (2, 0, 2)),
        # A client that is served by it: each of its operations once
        ([asking("x", 150, "a", 0), asking("a", 210, "a", 1)], (1, 0, 1)),
        # Another operation says nothing of whom it asked
        ([send("m0", 210, instance="x") | {"via": "a"}], (0, 0, 0)),
    ],
)
def test_who_asks_a_router_that_is_hit_whom_to_connect_to_meets_it(asked: list[Row], met: tuple[int, int, int]) -> None:
    """By that connect alone: its sends go to whom it was led to."""
    rows = [*asked, send("m1", 230, instance="x")]
    (told,) = all_told(ledger(rows, [*KILLED, event("heal", 300, name="kill", instance="a", target="host-a")]))[:1]
    (of,) = told["coverage"]
    assert (of["clients"], of["in_flight"], of["operations"]) == met


@pytest.mark.parametrize(
    ("later", "verdict"),
    [
        # A poll that knows it roughly, before or after b's end; then another one that repeats it, surely; then the log
        ([], "unknown"),
        ([role("b", "active", 62, uncertainty_ns=0)], "unknown"),
        ([role("b", "active", 62, name="log", uncertainty_ns=MS)], "pass"),
        ([role("b", "active", 62), role("b", "active", 62, name="log", uncertainty_ns=MS)], "pass"),
        ([role("b", "active", 62), role("b", "active", 63, name="log", uncertainty_ns=12 * MS)], "pass"),
        ([role("b", "active", 62), role("b", "active", 63, name="log", uncertainty_ns=14 * MS)], "unknown"),
    ],
)
def test_the_line_of_a_log_bounds_an_epoch_however_sure_a_poll_is(later: list[Row], verdict: str) -> None:
    """The log shows other roles before."""
    before = [
        *BOTH_ACTIVE,
        role("y", "passive", 1, "z"),
        role("b", "passive", 1),
        role("b", "passive", 2, name="log", uncertainty_ns=MS),
    ]
    swapped = [role("a", "passive", 50), role("b", "active", 60, uncertainty_ns=30 * MS)]
    rows = [send("m1", 10, instance="a"), send("m2", 80, instance="b")]
    found = all_told(ledger(rows, [*phases(), *before, *swapped, *later], [PromiseSpec("single_active")]))
    assert found[0]["promises"][-1]["verdict"] == verdict
