"""The oracle on ledgers small enough to judge by eye: who serves, and for how long nobody does."""

from __future__ import annotations

import pytest

from brokerdrill.ledger.contract import (
    Clock,
    PromiseSpec,
)
from tests.analysis.by_hand import (
    MS,
    RUN,
    Row,
    changed,
    end,
    event,
    got,
    numbered,
    op,
    phases,
    promised,
    receive,
    role,
    send,
)
from tests.analysis.oracle import judge

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


@pytest.mark.parametrize(
    ("clients", "met"),
    [
        # p has two sends without an end, and c, which was killed as well, an acknowledgement; e goes on
        ("p, c", {"clients": 2, "in_flight": 3, "operations": 3}),
        ("p", {"clients": 1, "in_flight": 2, "operations": 2}),
        # of a fault that names nobody all count; of those that were not killed what they began last hangs on
        ("", {"clients": 3, "in_flight": 4, "operations": 4}),
    ],
)
def test_what_a_fault_met_that_killed_clients(clients: str, met: Row) -> None:
    what = {"target": "load1", "instance": "load1", "value": "kill-clients"}
    fault = event("fault", 100, name="client_killed", **what)
    told = [fault, event("note", 100, name="clients killed", detail={"clients": clients}, **what)]
    rows = [
        *(op("p", "send", at, None, "unknown", address="q", message_id=f"m{at}") for at in (98, 99)),
        op("c", "ack", 99, None, "unknown", address="q", delivery="d"),
        op("e", "send", 99, None, "unknown", address="q", message_id="e"),
    ]
    found = judge(RUN, numbered(rows), [*phases(), *told], [])["coverage"][0]
    expected = met if clients else met | {"in_flight": 3, "operations": 3}
    assert {name: found[name] for name in met} == expected
