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


def member(role: str = "primary", pair: str = "p1", **change: Any) -> dict[str, Any]:
    same = {"cluster_user": "c", "cluster_password": "s", "journal": "10M", "store_dir": f"/srv/{pair}"}
    return {"pair": pair, "role": role, "coordination_id": pair, **same, **change}


def cluster(**change: Any) -> dict[str, Any]:
    return {
        "policy": "replication_quorum",
        "version": "2.56.0",
        "archive": {"coordinate": "g:a:v", "sha256": "0"},
        "members": {"a1": member(), "a2": member("backup")},
        "optional": {"artemis_vote_retries": None, "artemis_check_for_active_server": None},
        "zookeeper_servers": [{}, {}, {}],
        "session_ms": 4000,
        "tick_ms": 500,
        "allow_failback": True,
        "check_for_active": True,
        "discovery": "static",
        "discovery_group": "brokers",
        "colocated_store": "replication",
        "own": "a1",
        "connectors": ["a1", "a2"],
        "excludes": ["a2"],
        "scale_down": None,
        **change,
    }


def peers(**change: Any) -> dict[str, Any]:
    return cluster(policy="peers", members={"a1": member(), "a2": member()}, **change)


def each_its_pair(policy: str, **change: Any) -> dict[str, Any]:
    return cluster(policy=policy, **{"members": {"a1": member(), "a2": member(pair="p2")}, **change})


@pytest.mark.parametrize(
    ("pairs", "size", "sound"),
    [
        (3, None, True),
        (3, -1, True),
        (3, 3, True),
        (3, 2, False),
        (3, 1, False),
        (2, 2, True),
        (2, 1, False),
        (5, 5, True),
        (5, 3, False),
        (1, 2, True),
    ],
)
def test_a_vote_needs_most_of_the_other_pairs(pairs: int, size: int | None, sound: bool) -> None:
    roles = ("primary", "backup")
    members = {f"a{pair}{role}": member(role, pair=f"p{pair}") for pair in range(pairs) for role in roles}
    config = cluster(policy="replication", members=members, optional={"artemis_quorum_size": size})
    problems = preflight.artemis_problems(config)
    assert problems == [] if sound else len(problems) == 1 and f"artemis_quorum_size {size} asks for" in problems[0]


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
    assert problem == (
        "artemis_ha_policy 'raft' is unknown; there are: colocated, peers, primary_only, replication, "
        "replication_quorum, scale_down, shared_store"
    )


def test_primary_only_has_no_backup() -> None:
    assert "a2 is a backup" in preflight.artemis_problems(cluster(policy="primary_only"))[0]


def target(**change: Any) -> dict[str, Any]:
    return {"enabled": True, "group_name": None, "discovery_group": None, "connectors": ["a2"], **change}


@pytest.mark.parametrize(
    "sound",
    [
        peers(),
        cluster(policy="shared_store"),
        cluster(policy="replication"),
        cluster(policy="replication", check_for_active=False, allow_failback=False),
        cluster(policy="replication", check_for_active=False, allow_unchecked_failback=True),
        cluster(policy="replication", optional={"artemis_vote_retries": 3}),
        each_its_pair("colocated"),
        each_its_pair("colocated", colocated_store="shared_store", discovery="udp", connectors=["a1"], excludes=[]),
        each_its_pair("scale_down", scale_down=target()),
        each_its_pair("scale_down", scale_down=target(discovery_group="brokers", connectors=[]), discovery="udp"),
        each_its_pair("scale_down", scale_down=target(enabled=False, connectors=[])),
    ],
)
def test_what_is_sound_passes(sound: dict[str, Any]) -> None:
    assert preflight.artemis_problems(sound) == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        # classic: a primary that returns and does not look
        (cluster(policy="replication", check_for_active=False), "would serve everything a second time"),
        (each_its_pair("colocated", check_for_active=False), "would serve everything a second time"),
        # journals of a pair
        (
            cluster(policy="shared_store", members={"a1": member(), "a2": member("backup", store_dir="/elsewhere")}),
            "a1 and a2 have different artemis_store_dir",
        ),
        (
            cluster(policy="replication", members={"a1": member(), "a2": member("backup", journal="1M")}),
            "a1 and a2 have different artemis_journal_file_size",
        ),
        # settings that nobody hears
        (cluster(optional={"artemis_vote_on_replication_failure": False}), "replication_quorum ignores it"),
        (cluster(optional={"artemis_quorum_vote_wait_s": 1}), "artemis_quorum_vote_wait_s is set"),
        (cluster(optional={"artemis_vote_retries": 0}), "artemis_vote_retries is set"),
        (cluster(optional={"artemis_vote_retry_wait_ms": 1}), "artemis_vote_retry_wait_ms is set"),
        (cluster(optional={"artemis_check_for_active_server": True}), "artemis_check_for_active_server is set"),
        (peers(optional={"artemis_check_for_live_server": True}), "but peers ignores it"),
        (cluster(policy="shared_store", optional={"artemis_group_name": "fish"}), "but shared_store ignores it"),
        # peers
        (peers() | {"members": {"a1": member(), "a2": member("backup")}}, "a2 is a backup, but peers have none"),
        (peers() | {"members": {"a1": member()}}, "pair p1 has one peer only"),
        (
            peers() | {"members": {"a1": member(), "a2": member(coordination_id="other")}},
            "a1 and a2 have different artemis_coordination_id",
        ),
        (
            peers()
            | {"members": {f"a{number}": member(pair=f"a-very-long-pair-{number // 2}") for number in range(4)}},
            "are the same within 16 characters",
        ),
        (peers(zookeeper_servers=[{}]), "peers with 1 ZooKeeper servers cannot stand a partition"),
        (peers(session_ms=100), "session_ms 100 is outside"),
        # colocated
        (each_its_pair("colocated", excludes=[]), "artemis_colocated_excludes lacks a2"),
        (
            each_its_pair("colocated", connectors=["a1", "a2", "afar"], excludes=["a2"]),
            "artemis_colocated_excludes lacks afar",
        ),
        (each_its_pair("colocated", colocated_store="shared_store", excludes=[]), "set artemis_discovery to udp"),
        (cluster(policy="colocated"), "a1 and a2 are one pair p1"),
        (cluster(policy="colocated", members={"a1": member()}), "no other to run its backup"),
        # scale-down
        (each_its_pair("scale_down", scale_down=target(connectors=[])), "nobody to hand messages to"),
        (each_its_pair("scale_down", scale_down=target(connectors=["x"])), "connectors x, which there are not"),
        (each_its_pair("scale_down", scale_down=target(discovery_group="brokers")), "artemis_discovery is static"),
        (
            each_its_pair("scale_down", discovery="udp", scale_down=target(discovery_group="wahey")),
            "which is not artemis_discovery_group",
        ),
        (cluster(policy="scale_down", scale_down=target()), "a2 is a backup, but artemis_ha_policy scale_down"),
        # a version of which nothing is known
        (cluster(version="3.0.0", archive=None), "artemis_version 3.0.0 is not known"),
    ],
)
def test_what_the_documents_warn_of_is_refused(config: dict[str, Any], said: str) -> None:
    assert any(said in problem for problem in preflight.artemis_problems(config))


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
