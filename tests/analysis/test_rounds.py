"""Rounds of a repeated method: where one ends, and what is of which."""

from __future__ import annotations

from brokerdrill.analysis.checks.failover_within import DueFailover
from brokerdrill.analysis.checks.finding import Finding
from brokerdrill.analysis.checks.rounds import broken, place, rounds_of
from brokerdrill.analysis.events import NEVER, Epoch, Event, Hit, MethodRound
from brokerdrill.analysis.timeline import Timeline, rounds, timeline
from brokerdrill.ledger.contract import PromiseSpec
from brokerdrill.ledger.verdict import Outage


def mark(number: int, at: int, edge: str = "begin") -> Event:
    return Event("note", at, name=str(number), detail=(("round", edge),))


def test_a_round_lasts_until_its_end_and_counts_until_the_next() -> None:
    events = [mark(2, 30), mark(1, 10), mark(1, 25, "end"), mark(2, 50, "end"), Event("note", 40, name="1")]
    assert rounds(events, 90) == (MethodRound("1", 10, 25, 30), MethodRound("2", 30, 50, NEVER))


def test_a_round_that_broke_off_lasts_until_the_run_ends() -> None:
    assert rounds([mark(1, 10), mark(2, 30)], 90) == (MethodRound("1", 10, 30, 30), MethodRound("2", 30, 90, NEVER))
    assert rounds([], 90) == ()


def test_each_time_is_of_one_round() -> None:
    times = Timeline(run_end=90, rounds=rounds([mark(1, 10), mark(2, 30)], 90))
    assert [place(times, at) for at in (0, 9, 10, 29, 30, 1000)] == [None, None, 0, 0, 1, 1]
    assert place(Timeline(run_end=90), 20) is None


def test_what_breaks_before_the_first_round_is_of_none() -> None:
    times = Timeline(run_end=90, rounds=rounds([mark(1, 10), mark(2, 30)], 90))
    specs = [PromiseSpec("no_loss"), PromiseSpec("stays_up"), PromiseSpec("available", 10.0), PromiseSpec("available")]
    findings = [Finding(n=4), Finding(moments=[5, 31]), Finding(moments=[11]), Finding(moments=[12])]
    counted = [("no_loss", 1, 4), ("no_duplicates", 1, 7)]
    assert broken(times, specs, findings, counted) == {0: {"available": 2}, 1: {"no_loss": 4, "stays_up": 1}}


def test_a_row_has_the_slowest_of_its_round() -> None:
    """Two kills, each with a failover and a failback; the second broker does not come back."""

    def event(kind: str, at: int, **of: str) -> Event:
        return Event(kind, at * 1_000_000, instance="a", target="a", store="s", name="kill", **of)

    def role(at: int, instance: str, value: str) -> Event:
        return Event("role", at * 1_000_000, instance=instance, store="s", value=value)

    events = [
        mark(1, 10_000_000), mark(2, 30_000_000), role(1, "a", "active"),
        event("fault", 11), role(12, "a", "down"), role(13, "b", "active"), event("heal", 15), role(18, "b", "down"),
        role(19, "a", "active"),
        event("fault", 31), role(32, "a", "down"), role(33, "b", "active"), event("heal", 35),
    ]  # fmt: skip
    made = timeline(events, {"s": ("a", "b")}, None)
    hit = made.hits[0]
    assert isinstance(hit, Hit) and isinstance(hit.epoch, Epoch)
    waits = [DueFailover(hit, name, True, None, False, took, 0) for name, took in (("x", 3_000_000), ("y", 4_000_000))]
    never = DueFailover(made.hits[1], "x", True, None, False, None, 0)
    rows = rounds_of(made, [*waits, never], [Outage(31_000_000)], {1: {"failover_within": 1}})
    assert [row.to_json() for row in rows] == [
        {"round": "1", "start_ns": 10_000_000, "end_ns": 30_000_000, "faults": 1, "failover_ms": 4.0,
         "failback_ms": 4.0, "outages": 0, "broken": {}},
        {"round": "2", "start_ns": 30_000_000, "end_ns": 35_000_000, "faults": 1, "failover_ms": None,
         "failback_ms": None, "outages": 1, "broken": {"failover_within": 1}},
    ]  # fmt: skip
