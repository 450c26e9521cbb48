"""Partition policies: what each prefers, in series, and a user's own by entry point."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from amqp_session_router.base.errors import UsageError
from amqp_session_router.base.model import Backend
from amqp_session_router.selection import partitions, plugins, selectors
from amqp_session_router.selection.markers import Markers
from amqp_session_router.selection.partitions import Group, Surroundings

FRA1 = Backend("fra1", "h", datacenter="fra")
FRA2 = Backend("fra2", "h", datacenter="fra")
AMS1 = Backend("ams1", "h", datacenter="ams")
HERE = Backend("here", "h", datacenter="ams", local=True)
ALL = [AMS1, FRA1, HERE, FRA2]


def names(policies: Sequence[str], sick: Sequence[str] = ()) -> list[list[str]]:
    markers = Markers()
    for name in sick:
        markers.checked(name, False, "refused")
    found = [partitions.policy_named(name) for name in policies]
    return [[b.name for b in group] for group in partitions.apply(ALL, found, Surroundings("fra", markers))]


def test_without_a_policy_all_are_equal() -> None:
    assert names([]) == [["ams1", "fra1", "here", "fra2"]]


def test_datacenter_affinity() -> None:
    assert names(["datacenter-affinity"]) == [["fra1", "fra2"], ["ams1", "here"]]


def test_local_first() -> None:
    assert names(["local-first"]) == [["here"], ["ams1", "fra1", "fra2"]]


def test_they_compose_in_their_order() -> None:
    assert names(["datacenter-affinity", "local-first"]) == [["fra1", "fra2"], ["here"], ["ams1"]]
    assert names(["local-first", "datacenter-affinity"]) == [["here"], ["fra1", "fra2"], ["ams1"]]


def test_health_puts_every_sick_backend_behind_every_healthy_one_wherever_it_stands() -> None:
    expected = [["fra2"], ["ams1", "here"], ["fra1"]]
    assert names(["health", "datacenter-affinity"], sick=["fra1"]) == expected
    assert names(["datacenter-affinity", "health"], sick=["fra1"]) == expected


def test_no_backends() -> None:
    policies = [*partitions.OWN.values()]
    assert partitions.apply([], policies, Surroundings("fra", Markers())) == []


def _hostile(groups: Sequence[Group], around: Surroundings) -> list[list[Backend]]:
    return [[], [Backend("stranger", "x")], [FRA1, FRA1]]


def _raises(groups: Sequence[Group], around: Surroundings) -> list[list[Backend]]:
    raise RuntimeError("a user's policy")


def test_a_users_policy_can_reorder_but_neither_lose_nor_add() -> None:
    found = partitions.apply(ALL, [_hostile], Surroundings("fra", Markers()))
    assert [[b.name for b in group] for group in found] == [["fra1"], ["ams1", "here", "fra2"]]
    assert partitions.apply(ALL, [_raises], Surroundings("fra", Markers())) == [tuple(ALL)]


class Backwards:
    """A user's policy as a class: made once, without arguments."""

    def __call__(self, groups: Sequence[Group], around: Surroundings) -> list[list[Backend]]:
        return [[b] for group in groups for b in reversed(group)]


def test_a_users_own_come_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    here = f"{__name__}:Backwards"
    points = {
        "backwards": EntryPoint("backwards", here, partitions.ENTRY_POINTS),
        "broken": EntryPoint("broken", "no_such_module:thing", partitions.ENTRY_POINTS),
    }
    monkeypatch.setattr(plugins, "_entry_points", lambda group: points if group == partitions.ENTRY_POINTS else {})
    found = partitions.apply(ALL, [partitions.policy_named("backwards")], Surroundings("", Markers()))
    assert [group[0].name for group in found] == ["fra2", "here", "fra1", "ams1"]
    with pytest.raises(UsageError, match=r"the partition policy 'broken' .* does not load"):
        partitions.policy_named("broken")
    with pytest.raises(UsageError, match="did you mean 'backwards'"):
        partitions.policy_named("backward")


def test_a_users_selector_comes_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = SimpleNamespace(name="mine", value="x:y", load=lambda: selectors.first)
    monkeypatch.setattr(
        plugins, "_entry_points", lambda group: {"mine": point} if group == selectors.ENTRY_POINTS else {}
    )
    assert selectors.selector_named("mine") is selectors.first
    with pytest.raises(UsageError, match="no backend selector is called 'min'; did you mean 'mine'"):
        selectors.selector_named("min")
