"""Preflight of an ensemble: each rule by the smallest inventory that breaks it, and each in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.test_plugins import plugin

zookeeper = plugin("filter", "zookeeper")


def ensemble(count: int, **more: Any) -> dict[str, Any]:
    return {f"zk{number}": {"id": number, "tick_ms": 500, **more} for number in range(1, count + 1)}


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_sound_ensemble_passes(count: int) -> None:
    assert zookeeper.zookeeper_problems(ensemble(count)) == []


@pytest.mark.parametrize(
    ("count", "words"), [(1, "at least 3"), (2, "at least 3"), (4, "no more failures than one of 3")]
)
def test_an_ensemble_too_small_or_even_is_refused(count: int, words: str) -> None:
    assert any(words in problem for problem in zookeeper.zookeeper_problems(ensemble(count)))


def test_a_drill_may_ask_for_one_member() -> None:
    assert zookeeper.zookeeper_problems(ensemble(1), allow_small=True) == []


def test_members_with_one_id_or_other_ticks_are_refused() -> None:
    members = ensemble(3)
    members["zk3"] = {"id": 1, "tick_ms": 2000}
    assert zookeeper.zookeeper_problems(members) == [
        "zk1 and zk3 share the zookeeper_id 1",
        "the members of the ensemble have different zookeeper_tick_time_ms: [500, 2000]",
    ]
