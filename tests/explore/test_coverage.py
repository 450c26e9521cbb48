"""Coverage: what a run saw, and that what was not tried comes first."""

from __future__ import annotations

from brokerdrill.explore.coverage import Coverage, FaultWindow, Role, Situation, observed, of_events, parse, planned
from brokerdrill.explore.schedule import Schedule, ScheduledFault

S = 1_000_000_000
ROLES = [
    Role(0, "pair1", "a", "active"),
    Role(0, "pair1", "b", "passive"),
    Role(5 * S, "pair1", "a", "down"),
    Role(7 * S, "pair1", "b", "active"),
]


def test_each_operation_is_placed_in_state_and_faults() -> None:
    faults = [FaultWindow("kill active", 5 * S, 9 * S), FaultWindow("pause one of zookeeper", 6 * S, 8 * S)]
    operations = [
        (-1, "connect"),
        (S, "send"),
        (5 * S, "send"),
        (6 * S, "commit unknown"),
        (8 * S, "send"),
        (9 * S, "ack"),
    ]
    assert observed(ROLES, faults, operations) == {
        Situation("active+passive", "-", "send"),
        Situation("down+passive", "kill active", "send"),
        Situation("down+passive", "kill active, pause one of zookeeper", "commit unknown"),
        Situation("active+down", "kill active", "send"),
        Situation("active+down", "-", "ack"),
    }


def test_events_tell_roles_and_faults_by_the_words_of_the_drill() -> None:
    events = [
        {"t_ns": 4, "kind": "heal", "name": "kill", "target": "zk1"},
        {"t_ns": 1, "kind": "fault", "name": "kill", "target": "zk1", "detail": {"asked": "one of zookeeper"}},
        {"t_ns": 2, "kind": "fault", "name": "arm", "target": "a→b"},
        {"t_ns": 0, "kind": "role", "instance": "a", "store": "s", "value": "active"},
        {"t_ns": 3, "kind": "fault", "name": "cut", "target": "a→b"},
        {"t_ns": 5, "kind": "heal", "name": "pause", "target": "never began"},
    ]
    roles, spans = of_events(events)
    assert roles == [Role(0, "s", "a", "active")]
    assert spans == [FaultWindow("kill one of zookeeper", 1, 4), FaultWindow("cut a→b", 3, 1 << 62)]


def test_what_was_seen_is_kept_as_text() -> None:
    one = Situation("active+passive", "kill active, pause b", "commit unknown")
    assert parse(str(one)) == one


def test_what_was_not_tried_is_worth_more_and_what_showed_something_is_kept() -> None:
    tried, other = Schedule((ScheduledFault("kill", "active"),)), Schedule((ScheduledFault("pause", "passive"),))
    found = Coverage()
    assert found.novelty(tried) == found.novelty(other)
    assert found.add(tried, [Situation("s", "-", "send")]) == 1
    assert found.novelty(tried) < found.novelty(other)
    assert found.add(other, [Situation("s", "-", "send")]) == 0
    assert [one for one, _ in found.fruitful] == [tried]


def test_a_schedule_plans_its_hits_beside_each_other() -> None:
    hits = (ScheduledFault("kill", "primary", 1, overlaps=True), ScheduledFault("pause", "one of zookeeper", 0))
    found = planned(Schedule(hits, "backlog"))
    assert {"pause one of zookeeper while kill primary", "kill primary under backlog", "kill primary 1"} <= found
