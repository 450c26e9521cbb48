"""Which drills are chosen, in which order, and which reach too far."""

from __future__ import annotations

import datetime

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.gameday.model import Choice, Radius
from brokerdrill.gameday.plan import Place, last_held, load_hosts, planned
from brokerdrill.gameday.radius import possible, reached, too_far
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.scenario.drill import load_drill, resolve

from .pair import PAIR, topology

PLACE = Place(topology(), [*PAIR, *load_hosts(topology())])
KILL, STOP, REPLY = (load_drill(name) for name in ("kill_active", "stop_active", "lost_reply"))


def names(found: list) -> list[str]:  # type: ignore[type-arg]
    return [f"{one.drill.name}@{one.topology.name}" for one in found]


def test_what_a_target_can_come_to_mean() -> None:
    assert {one.describe() for one in possible(PLACE.descriptors, "active")} == {"artemis1", "artemis2"}
    assert {one.describe() for one in possible(PLACE.descriptors, "one of artemis")} == {"artemis1", "artemis2"}
    assert [one.describe() for one in possible(PLACE.descriptors, "all of artemis")] == ["artemis1, artemis2"]
    links = possible(PLACE.descriptors, "link load→active")
    assert {one.describe() for one in links} == {"load1→artemis1", "load1→artemis2"}
    assert possible(PLACE.descriptors, "zookeeper") == []


def test_how_far_a_drill_reaches() -> None:
    kill = reached(resolve(KILL, PLACE.descriptors, "pair").scenario, PLACE.descriptors)
    assert (kill.hosts, kill.at_once) == ({"artemis1", "artemis2"}, 1)
    # Two faults on one link, bent where the load dials.
    reply = reached(resolve(REPLY, PLACE.descriptors, "pair").scenario, PLACE.descriptors)
    assert (reply.hosts, reply.at_once) == ({"load1"}, 1)


def test_what_is_hit_again_counts_once() -> None:
    features = ["cluster", "quorum_queues"]
    brokers = [Descriptor(schema=1, product="rabbitmq", instance=name, host=name, features=features) for name in "abc"]
    dials = [{"link": "backend", "to": name, "address": name, "port": 5672} for name in "abc"]
    routers = [
        Descriptor(schema=1, product="amqp_router", instance=name, host=name, dials=dials, control="ctl")
        for name in ("r1", "r2")
    ]
    descriptors = [*brokers, *routers]
    found = reached(resolve(load_drill("broker_drained"), descriptors, "routers").scenario, descriptors)
    # Any broker of the cluster is stopped, and none but the one that is drained.
    assert (found.hosts, found.at_once) == ({"a", "b", "c", "r1", "r2"}, 1)
    stop = next(step for step in found.steps if step.step == "stop")
    assert set(stop.targets) == {"a", "b", "c"}


def test_what_is_too_far() -> None:
    kill = reached(resolve(KILL, PLACE.descriptors, "pair").scenario, PLACE.descriptors)
    groups = {"artemis1": ("artemis",), "artemis2": ("artemis", "spare"), "load1": ("load",)}
    assert too_far(kill, (), 1, groups) == []
    assert too_far(kill, ("artemis",), 1, groups) == []
    assert too_far(kill, ("spare",), 1, groups) == ["it could hit artemis1, outside spare"]
    assert too_far(kill, (), 0, groups) == ["it could hit 1 at once, and 0 is allowed"]
    unknown = reached(resolve(REPLY, PLACE.descriptors, "pair").scenario, PAIR)
    assert "what cut would hit is not known beforehand" in too_far(unknown, (), 1, groups)


def test_what_was_not_held_for_longest_comes_first() -> None:
    def then(day: int) -> datetime.datetime:
        return datetime.datetime(2026, 11, day, tzinfo=datetime.UTC)

    other = Place(topology("other"), PLACE.descriptors)
    rows = [
        {"scenario": "kill_active", "topology": "pair", "started_at": then(1), "outcome": "completed"},
        {"scenario": "kill_active", "topology": "pair", "started_at": then(3), "outcome": "completed"},
        {"scenario": "lost_reply", "topology": "pair", "started_at": then(2), "outcome": "completed"},
        # What was broken off was not held.
        {"scenario": "kill_active", "topology": "other", "started_at": then(9), "outcome": "aborted"},
    ]
    chosen, refused = planned(
        Choice(names=["kill_active", "lost_reply"], most=3), Radius(), [KILL, REPLY], [PLACE, other], last_held(rows)
    )
    assert names(chosen) == ["kill_active@other", "lost_reply@other", "lost_reply@pair"]
    assert [one.last for one in chosen] == [None, None, then(2)]
    assert refused == []


def test_what_may_not_be_held_is_told_and_takes_no_place() -> None:
    radius = Radius(groups=["load"])
    chosen, refused = planned(Choice(most=1), radius, [KILL, REPLY], [PLACE], {})
    assert names(chosen) == ["lost_reply@pair"]
    assert names(refused) == ["kill_active@pair"]
    assert refused[0].refused == ("it could hit artemis1, artemis2, outside load",)
    closed = Place(topology(allowed=False), PLACE.descriptors)
    chosen, refused = planned(Choice(), Radius(), [KILL], [closed], {})
    assert chosen == [] and "drill_allowed" in refused[0].refused[0]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(tags=["kil"]), "no tag is called 'kil'; did you mean 'kill'?"),
        (Choice(names=["kill_actif"]), "no drill is called 'kill_actif'; did you mean 'kill_active'?"),
        (Choice(without=["kil_active"]), "did you mean 'kill_active'?"),
        (Choice(names=["kill_active"], tags=["lost-reply"]), "no chosen drill applies to pair"),
    ],
)
def test_a_choice_of_what_there_is_not(choice: Choice, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(choice, Radius(), [KILL, REPLY], [PLACE], {})
    assert message in str(caught.value)
