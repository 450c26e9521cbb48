"""Generated drills: whatever is drawn is an ordinary drill that applies, and can be drawn again from its seed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerdrill.explore import document
from brokerdrill.explore import schedule as schedules
from brokerdrill.explore.draw import changed, fresh
from brokerdrill.explore.schedule import AT_ONCE, FAILED_OVER, IN_SYNC, SERVED, SYNCING, Schedule, ScheduledFault, valid
from brokerdrill.explore.shrink import smaller
from brokerdrill.explore.space import FaultChoice, instance_targets, space, spans, unlive
from brokerdrill.inventory.targets import validate_spec
from brokerdrill.scenario.drill import load_drill, resolve
from brokerdrill.scenario.facts import facts
from brokerdrill.scenario.model import Action, Heal
from tests.unit.descriptors import broker, instance

from .places import TOPOLOGY, drawn_on, pair

SPACE = drawn_on()
KILL = ScheduledFault("kill", "majority of zookeeper", 1)


def test_what_can_be_hit_is_said_by_role() -> None:
    targets = {one.target for one in SPACE.choices if one.fault == "kill"}
    assert targets == {
        "active", "passive", "primary", "backup", "all of artemis", "one of zookeeper", "majority of zookeeper",
        "all of zookeeper",
    }  # fmt: skip
    assert SPACE.choice("partition", "link active→zookeeper")
    assert SPACE.choice("toxic", "link load→active") == FaultChoice("toxic", "link load→active", "link load→artemis", 8)
    assert SPACE.choice("nothing", "active") is None
    # What the topology lacks is not drawn: a router, a lock file, a database, a disk of the store's own.
    assert not {one.fault for one in SPACE.choices} & {"drain", "hold", "lock_file", "switchover", "disk_full", "clock"}
    assert SPACE.resyncs and "single" in SPACE.loads


def test_links_without_a_toxiproxy_are_not_armed() -> None:
    bare = space(TOPOLOGY, pair(), ())
    assert not {one.fault for one in bare.choices} & {"toxic", "cut"}
    assert {one.fault for one in bare.choices} >= {"kill", "partition"}


def test_clusters_without_roles_are_hit_by_number() -> None:
    cluster = [
        broker("artemis", f"a{number}", store=f"a{number}", unit="u", features=["cluster"]) for number in (1, 2, 3)
    ]
    words = [*instance_targets(cluster, facts(cluster))]
    assert words == ["one of artemis", "majority of artemis", "all of artemis"]


def test_times_lie_around_the_settings() -> None:
    assert spans([("session_ms", 4000.0), ("cache_size", 4000.0), ("long_ms", 60_000.0)]) == (
        0.5, 2.0, 3.2, 5.0, 6.0, 10.0,
    )  # fmt: skip


def test_an_armed_link_is_there_whoever_has_the_role() -> None:
    assert unlive("link load→active", pair()) == "link load→artemis"
    assert unlive("link active↔passive", pair()) == "link artemis↔artemis"
    assert unlive("link passive of pair1→zookeeper", pair()) == "link artemis→zookeeper"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(0, 4))
def test_whatever_is_drawn_or_made_smaller_is_a_drill(
    tmp_path_factory: pytest.TempPathFactory, seed: int, changes: int
) -> None:
    rng = random.Random(seed)
    one = fresh(SPACE, rng)
    for _ in range(changes):
        one = changed(one, SPACE, rng)
    assert valid(one)
    assert schedules.from_json(one.to_json()) == one
    for each in (one, *list(smaller(one))[:3]):
        path = tmp_path_factory.getbasetemp() / "drawn.yml"
        path.write_text(document.text(document.document(each, SPACE, "drawn", "drawn")), encoding="utf-8")
        scenario = resolve(load_drill(str(path)), pair(), TOPOLOGY).scenario
        actions = [step for step in scenario.method if isinstance(step, Action)]
        assert [(step.fault, step.target) for step in actions] == [(hit.fault, hit.target) for hit in each.hits]
        healed = [step.of for step in scenario.method if isinstance(step, Heal)]
        assert sorted(healed) == sorted(step.name for step in actions)
        for step in actions:
            validate_spec(step.target)
        # A hit that the load does not meet keeps no promise from being judged.
        assert {(least.operations, least.packets) for least in scenario.minimum().values()} == {(0, 0)}


def test_the_same_seed_draws_the_same() -> None:
    assert fresh(SPACE, random.Random("3/1")) == fresh(SPACE, random.Random("3/1"))
    assert len({fresh(SPACE, random.Random(f"3/{number}")) for number in range(50)}) > 45


@pytest.mark.parametrize(
    ("hits", "right"),
    [
        ((KILL,), True),
        ((ScheduledFault("kill", "active", wait=IN_SYNC),), False),
        ((ScheduledFault("kill", "active", overlaps=True),), False),
        ((KILL, ScheduledFault("kill", "active")), False),
        ((KILL, ScheduledFault("kill", "active", wait=SERVED)), True),
        ((KILL, ScheduledFault("kill", "passive", wait=SERVED)), False),
        ((KILL, ScheduledFault("kill", "passive", wait=IN_SYNC)), True),
        # While the ensemble is away nobody may be active.
        ((ScheduledFault("kill", "all of zookeeper", overlaps=True), ScheduledFault("kill", "active")), False),
        ((ScheduledFault("kill", "all of zookeeper", overlaps=True), ScheduledFault("kill", "primary")), True),
        (
            (
                ScheduledFault("kill", "all of zookeeper", overlaps=True),
                ScheduledFault("kill", "primary", wait=SYNCING),
            ),
            False,
        ),
        ((ScheduledFault("kill", "active", overlaps=True), ScheduledFault("kill", "active", wait=FAILED_OVER)), False),
        ((ScheduledFault("kill", "active", overlaps=True), ScheduledFault("pause", "active", wait=FAILED_OVER)), True),
        ((ScheduledFault("kill", "active", overlaps=True), ScheduledFault("clock", "primary", wait=AT_ONCE)), False),
        (
            (
                ScheduledFault("partition", "link load→active", overlaps=True),
                ScheduledFault("kill", "primary", wait=FAILED_OVER),
            ),
            False,
        ),
    ],
)  # fmt: skip
def test_a_schedule_whose_hits_would_miss_is_none(hits: tuple[ScheduledFault, ...], right: bool) -> None:
    assert valid(Schedule(hits)) == right


def test_the_words_of_a_schedule_say_what_it_does() -> None:
    one = Schedule(
        (
            ScheduledFault("kill", "primary", 1, hold_s=2, overlaps=True),
            ScheduledFault("partition", "link active→zookeeper", 0, FAILED_OVER),
        )
    )
    assert document.in_words(one) == (
        "kill primary for 2 s; then while that lasts, once failed over, "
        "partition link active→zookeeper how=reject for 5 s (load plain)"
    )
    method = document.document(one, SPACE, "t", "d")["method"]
    assert [(step["type"], step["name"]) for step in method] == [
        ("action", "kill-primary-1"),
        ("probe", "moment-2"),
        ("action", "partition-link-active-zookeeper-2"),
        ("heal", "end-kill-primary-1"),
        ("heal", "end-partition-link-active-zookeeper-2"),
        ("probe", "serves-again"),
    ]


def test_a_backlog_is_drained_while_the_last_fault_comes(tmp_path: Path) -> None:
    method = document.document(Schedule((KILL,), "draining"), SPACE, "t", "d")["method"]
    assert [step["type"] for step in method] == ["consume", "action", "heal", "probe"]


def test_nothing_to_draw_is_said() -> None:
    empty = space("none", [instance("load", "load1")], ())
    with pytest.raises((ValueError, IndexError)):
        fresh(empty, random.Random(1))
