"""Preflight: each rule by the smallest inventory that breaks it, and each in one sentence."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.roles.conftest import ROOT

_spec = importlib.util.spec_from_file_location("preflight", ROOT / "plugins" / "filter" / "preflight.py")
assert _spec
assert _spec.loader
preflight = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(preflight)


def ensemble(count: int, **more: Any) -> dict[str, Any]:
    return {f"zk{number}": {"id": number, "tick_ms": 500, **more} for number in range(1, count + 1)}


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_sound_ensemble_passes(count: int) -> None:
    assert preflight.zookeeper_problems(ensemble(count)) == []


@pytest.mark.parametrize(
    ("count", "words"), [(1, "at least 3"), (2, "at least 3"), (4, "no more failures than one of 3")]
)
def test_an_ensemble_too_small_or_even_is_refused(count: int, words: str) -> None:
    assert any(words in problem for problem in preflight.zookeeper_problems(ensemble(count)))


def test_a_drill_may_ask_for_one_member() -> None:
    assert preflight.zookeeper_problems(ensemble(1), allow_small=True) == []


def test_members_with_one_id_or_other_ticks_are_refused() -> None:
    members = ensemble(3)
    members["zk3"] = {"id": 1, "tick_ms": 2000}
    assert preflight.zookeeper_problems(members) == [
        "zk1 and zk3 share the zookeeper_id 1",
        "the members of the ensemble have different zookeeper_tick_time_ms: [500, 2000]",
    ]


def cluster(**change: Any) -> dict[str, Any]:
    member = {"pair": "p1", "cluster_user": "c", "cluster_password": "s"}
    return {
        "policy": "replication_quorum",
        "members": {"a1": {**member, "role": "primary"}, "a2": {**member, "role": "backup"}},
        "zookeeper_servers": [{}, {}, {}],
        "session_ms": 4000,
        "tick_ms": 500,
        **change,
    }


def test_a_sound_pair_passes() -> None:
    assert preflight.artemis_problems(cluster()) == []


@pytest.mark.parametrize("session", [1000, 10000])
def test_two_and_twenty_ticks_are_inside(session: int) -> None:
    assert preflight.artemis_problems(cluster(session_ms=session)) == []


@pytest.mark.parametrize("session", [999, 10001])
def test_a_session_outside_its_ticks_is_refused(session: int) -> None:
    (problem,) = preflight.artemis_problems(cluster(session_ms=session))
    assert f"session_ms {session} is outside 1000 to 10000" in problem


def test_a_pair_is_one_primary_and_backups() -> None:
    config = cluster()
    config["members"]["a2"]["role"] = "primary"
    assert preflight.artemis_problems(config) == [
        "pair p1 needs exactly one primary and has 2 (a1 and a2)",
        "pair p1 has no backup: give a second host of it artemis_ha_role: backup",
    ]
    config["members"]["a1"]["role"] = "master"
    assert "a1 has the artemis_ha_role 'master': it must be primary or backup" in preflight.artemis_problems(config)


def test_two_backups_are_allowed() -> None:
    config = cluster()
    config["members"]["a3"] = dict(config["members"]["a2"])
    assert preflight.artemis_problems(config) == []


def test_few_zookeeper_servers_are_refused_unless_asked_for() -> None:
    assert "3 or more" in preflight.artemis_problems(cluster(zookeeper_servers=[{}]))[0]
    assert preflight.artemis_problems(cluster(zookeeper_servers=[{}], allow_small=True)) == []


def test_members_of_a_cluster_have_one_credential() -> None:
    config = cluster()
    config["members"]["a2"]["cluster_password"] = "other"
    (problem,) = preflight.artemis_problems(config)
    assert problem == "a1 and a2 have different cluster credentials: the members of a cluster need the same"
    assert "other" not in problem


def test_an_unknown_policy_names_the_known_ones() -> None:
    (problem,) = preflight.artemis_problems(cluster(policy="raft"))
    assert problem == "artemis_ha_policy 'raft' is unknown; there are: primary_only, replication_quorum"


def test_primary_only_has_no_backup() -> None:
    assert "a2 is a backup" in preflight.artemis_problems(cluster(policy="primary_only"))[0]


@pytest.mark.parametrize(
    ("states", "good"),
    [
        ({"a1": "active", "a2": "passive"}, True),
        ({"a1": "passive", "a2": "active"}, True),
        ({"a1": "active", "a2": "active"}, False),
        ({"a1": "passive", "a2": "passive"}, False),
        ({"a1": "active", "a2": "syncing"}, False),
        ({"a1": "active"}, False),
    ],
)
def test_a_pair_is_healthy_with_one_active_and_passive_copies(states: dict[str, str], good: bool) -> None:
    assert (preflight.pair_problems(states, {"p1": ["a1", "a2"]}) == []) is good
