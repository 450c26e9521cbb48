"""Which drills are chosen, in which order, and which reach too far."""

from __future__ import annotations

import datetime

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.gameday.model import Choice
from brokerdrill.gameday.plan import PlannedTopology, last_held, planned
from brokerdrill.inventory.planned import load_hosts
from brokerdrill.scenario.drill import load_drill
from brokerdrill.scenario.radius import Radius

from .pair import PAIR, topology

PLACE = PlannedTopology(topology(), [*PAIR, *load_hosts(topology())])
KILL, STOP, REPLY = (load_drill(name) for name in ("kill_active", "stop_active", "lost_reply"))


def names(found: list) -> list[str]:  # type: ignore[type-arg]
    return [f"{one.drill.name}@{one.topology.name}" for one in found]


def test_what_was_not_held_for_longest_comes_first() -> None:
    def then(day: int) -> datetime.datetime:
        return datetime.datetime(2026, 11, day, tzinfo=datetime.UTC)

    other = PlannedTopology(topology("other"), PLACE.descriptors)
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
    closed = PlannedTopology(topology(allowed=False), PLACE.descriptors)
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
