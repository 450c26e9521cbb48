"""What is at the same time as what: rules of alerts, at their borders and one tick beside them."""

from __future__ import annotations

import pytest

from brokerdrill.analysis.checks.alerted_within import _quiet_from, find
from brokerdrill.analysis.events import Alert, Event
from brokerdrill.analysis.timeline import Timeline, alerts
from tests.analysis.moments import KILL


def alert(at: int, u: int = 0, cleared: int | None = None) -> Alert:
    return Alert("BrokerDown", "a", "s", at, u, cleared)


@pytest.mark.parametrize(
    ("one", "judged"),
    [
        (alert(94), False),  # before the fault for certain, and firing when it came
        (alert(95), True),
        (alert(93, 2), True),
        (alert(92, 2), False),
        (alert(50, 0, 100), False),  # it is over only after the fault
        (alert(50, 0, 95), False),  # perhaps
        (alert(50, 0, 94), True),
        (alert(94, 0, 100), False),
        (alert(120), True),
    ],
)
def test_a_fault_is_not_judged_whose_alert_was_firing_for_certain(one: Alert, judged: bool) -> None:
    times = Timeline(run_end=1000, faults=(KILL,), alerts=(one,), alerts_watched=((0, 1000),))
    found = find(times, "BrokerDown", 60)
    assert (found.evidence, found.doubt) == (judged, not judged)


@pytest.mark.parametrize(
    ("since", "until", "known"), [(0, 160, True), (0, 159, False), (100, 160, True), (101, 160, False)]
)
def test_that_no_alert_came_is_known_where_the_whole_bound_was_watched(since: int, until: int, known: bool) -> None:
    found = find(Timeline(run_end=1000, faults=(KILL,), alerts_watched=((since, until),)), "BrokerDown", 60)
    assert (found.n, found.doubt) == ((1, False) if known else (0, True))


@pytest.mark.parametrize(("until", "known"), [(260, True), (259, False)])
def test_that_an_alert_did_not_clear_is_known_where_the_whole_bound_was_watched(until: int, known: bool) -> None:
    times = Timeline(run_end=1000, faults=(KILL,), alerts=(alert(120),), alerts_watched=((0, until),))
    found = find(times, "BrokerDown", 60)
    assert (found.n, found.doubt, found.evidence) == ((1, False, True) if known else (0, True, False))


def test_an_alert_is_as_bad_as_the_longer_of_its_two_times() -> None:
    faults = (KILL, KILL._replace(number=2, instance="b", at=500, healed_at=600))
    fired = (alert(110, 0, 500), Alert("BrokerDown", "b", "s", 550, 0, 800))
    found = find(Timeline(run_end=1000, faults=faults, alerts=fired, alerts_watched=((0, 1000),)), "BrokerDown", 60)
    told = [(one["instance"], one["fired_ms"], one["cleared_ms"]) for one in found.witnesses]
    assert told == [("a", 10 / 1e6, 300 / 1e6), ("b", 50 / 1e6, 200 / 1e6)]
    assert found.measured == 300 / 1e6


def test_an_alert_that_never_cleared_is_worse_than_one_that_was_late() -> None:
    """It fired just when the bound was over, the other one long after it, and was cleared within it."""
    sure = KILL._replace(u=0)
    faults = (sure, sure._replace(number=2, instance="b", at=500, healed_at=800))
    fired = (alert(160), Alert("BrokerDown", "b", "s", 700, 0, 810))
    found = find(Timeline(run_end=1000, faults=faults, alerts=fired, alerts_watched=((0, 1000),)), "BrokerDown", 60)
    assert [(one["instance"], one["fired_ms"]) for one in found.witnesses] == [("a", 60 / 1e6), ("b", 200 / 1e6)]
    assert (found.n, found.moments) == (2, [100, 500])


@pytest.mark.parametrize(
    ("one", "quiet"),
    [(alert(99, 0, 120), 120), (alert(100, 0, 120), 120), (alert(101, 0, 120), 100), (alert(100), None)],
)
def test_alerts_are_quiet_from_when_the_last_that_fires_is_cleared(one: Alert, quiet: int | None) -> None:
    assert _quiet_from([one], 100) == quiet


def test_an_alert_is_cleared_by_an_event_of_its_own() -> None:
    def told(kind: str, at: int, value: str, **of: str) -> Event:
        return Event(kind, at, at % 10, value=value, **{"name": "BrokerDown", "instance": "a", "store": "s", **of})

    events = [
        told("alert", 11, "firing"),
        told("alert", 12, "firing"),
        told("health", 13, "cleared"),
        *(told("alert", 14, "cleared", **other) for other in ({"name": "x"}, {"instance": "b"}, {"store": "z"})),
        told("alert", 25, "cleared"),
        told("alert", 36, "firing"),
        told("health", 31, "firing"),
    ]
    ended = Alert("BrokerDown", "a", "s", 11, 1, 25, cleared_u=5)
    assert alerts(events) == (ended, Alert("BrokerDown", "a", "s", 36, 6, None))


@pytest.mark.parametrize("told", [(1, 40), (40, 1), (1, 20, 40)])
def test_of_an_alert_that_is_told_twice_at_one_time_the_vaguest_and_the_surest_are_known(told: tuple[int, ...]) -> None:
    events = [Event("alert", 500, u, instance="a", store="s", name="BrokerDown", value="firing") for u in told]
    events.append(Event("alert", 510, 60, instance="a", store="s", name="BrokerDown", value="firing"))
    assert alerts(events) == (Alert("BrokerDown", "a", "s", 500, 40, None, 1),)


def test_that_an_alert_fired_before_the_fault_the_surest_tells() -> None:
    sure = KILL._replace(u=0, healed_at=None)
    fired = (alert(90, 40)._replace(least_u=1),)
    found = find(Timeline(run_end=1000, faults=(sure,), alerts=fired, alerts_watched=((0, 1000),)), "BrokerDown", 60)
    assert (found.n, found.doubt, found.evidence) == (0, True, False)
