"""Preflight of Artemis: each rule by the smallest inventory that breaks it, and each in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.test_plugins import plugin

preflight = plugin("filter", "artemis_preflight")


def member(role: str = "primary", pair: str = "p1", **change: Any) -> dict[str, Any]:
    same = {"policy": None, "cluster_user": "c", "cluster_password": "s", "journal": "10M", "store_dir": f"/srv/{pair}"}
    return {"pair": pair, "group": pair, "role": role, "coordination_id": pair, **same, **change}


def tcp(name: str) -> dict[str, Any]:
    return {"name": name, "type": "tcp", "address": name, "port": 61616, "server_id": None, "parameters": {}}


def within(name: str, server_id: int = 0) -> dict[str, Any]:
    return {"name": name, "type": "vm", "address": None, "port": None, "server_id": server_id, "parameters": {}}


def connectors(*names: str, **more: dict[str, Any]) -> dict[str, Any]:
    return {name: tcp(name) for name in names} | more


def connection(name: str = "c", ttl_ms: int = 4000, **change: Any) -> dict[str, Any]:
    found = {"name": name, "connector": "a1", "elements": {"connection-ttl": ttl_ms}}
    return {**found, "discovery_group": None, "static_connectors": ["a2"], **change}


def group(name: str = "brokers", *announced: str) -> dict[str, Any]:
    return {"name": name, "type": "udp", "elements": {}, "connectors": list(announced)}


def discovered(**change: Any) -> dict[str, Any]:
    """Brokers that find each other by multicast."""
    found = {"discovery_groups": [group()], "broadcast_groups": [group("brokers", "a1")]}
    connections = [connection(discovery_group="brokers", static_connectors=[])]
    return {**found, "cluster_connections": connections, "connectors": connectors("a1"), "excludes": [], **change}


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
        "allow_small": False,
        "allow_several_backups": False,
        "allow_unchecked_failback": False,
        "allow_failback": True,
        "check_for_active": True,
        "discovery_groups": [],
        "broadcast_groups": [],
        "cluster_connections": [connection()],
        "replication_cluster_names": [],
        "max_backups": None,
        "acceptors": [tcp("core")],
        "colocated_store": "replication",
        "own": "a1",
        "connectors": connectors("a1", "a2"),
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
    assert preflight.artemis_problems(cluster(session_ms=session, cluster_connections=[connection(ttl_ms=10000)])) == []


def test_a_lock_manager_without_sessions_has_none_to_look_at() -> None:
    assert preflight.artemis_problems(cluster(session_ms=None, cluster_connections=[connection(ttl_ms=1)])) == []


@pytest.mark.parametrize(("ttl", "sound"), [(3999, False), (4000, True), (60000, True)])
def test_a_connection_lives_at_least_as_long_as_a_session(ttl: int, sound: bool) -> None:
    assert (preflight.artemis_problems(cluster(cluster_connections=[connection(ttl_ms=ttl)])) == []) is sound
    assert preflight.artemis_problems(cluster(policy="replication", cluster_connections=[connection(ttl_ms=1)])) == []


@pytest.mark.parametrize("session", [999, 10001])
def test_a_session_outside_its_ticks_is_refused(session: int) -> None:
    config = cluster(session_ms=session, cluster_connections=[connection(ttl_ms=session)])
    (problem,) = preflight.artemis_problems(config)
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


def test_who_follow_one_anothers_leader_are_refused() -> None:
    """None of them would ever be active, or each would copy what is another pair's."""
    backups = {"a1": member("backup"), "a2": member("backup")}
    for policy in ("shared_store", "replication", "replication_quorum"):
        problems = preflight.artemis_problems(cluster(policy=policy, members=backups))
        assert "pair p1 needs exactly one primary and has 0 (none)" in problems, policy
    crossed = {
        "a1": member(group="x"), "b1": member("backup", group="y"),
        "a2": member(pair="p2", group="y"), "b2": member("backup", "p2", group="x"),
    }  # fmt: skip
    problems = preflight.artemis_problems(cluster(members=crossed))
    assert [problem.partition(":")[0] for problem in problems] == [
        f"artemis_group_name {name} is that of the pairs p1 and p2" for name in "xy"
    ]


def test_brokers_with_another_policy_are_not_this_ones_to_judge() -> None:
    alone = member(pair="p2", policy="primary_only")
    pair = {"a1": member(policy="shared_store"), "a2": member("backup", policy="shared_store")}
    assert preflight.artemis_problems(cluster(policy="shared_store", members=pair | {"b1": alone})) == []
    assert preflight.artemis_problems(cluster(policy="primary_only", members=pair | {"b1": alone})) == []
    pair["a2"]["policy"] = "primary_only"
    assert preflight.artemis_problems(cluster(policy="shared_store", members=pair)) == [
        "pair p1 has no backup: give a second host of it artemis_ha_role: backup"
    ]


def test_a_shared_store_has_one_backup_unless_a_drill_wants_several() -> None:
    config = cluster(policy="shared_store")
    config["members"]["a3"] = dict(config["members"]["a2"])
    (problem,) = preflight.artemis_problems(config)
    assert problem.startswith("pair p1 has 2 backups (a2 and a3): a primary that takes its store back does not learn")
    assert preflight.artemis_problems(config | {"allow_several_backups": True}) == []


@pytest.mark.parametrize("config", [cluster(), cluster(policy="replication"), peers()])
def test_replication_has_one_copy(config: dict[str, Any]) -> None:
    config["members"]["a3"] = dict(config["members"]["a2"])
    (problem,) = preflight.artemis_problems(config)
    assert problem.startswith("pair p1 has 3 members: with replication one of them copies the active one")


def test_the_documents_fish_and_birds_are_refused_in_one_sentence_a_group() -> None:
    """Five primaries and six backups, by two group names: one of the fish to spare."""
    pairs = {f"live{n}": member(pair=f"p{n}", group="fish" if n < 4 else "bird") for n in range(1, 6)}
    backups = {
        f"backup{n}": member("backup", f"p{min(n, 5)}", group="fish" if n < 5 else "bird") for n in (1, 2, 3, 4, 5)
    }
    found = preflight.artemis_problems(cluster(policy="replication", members=pairs | backups))
    assert [problem.partition(":")[0] for problem in found] == [
        "artemis_group_name bird is that of the pairs p4 and p5",
        "artemis_group_name fish is that of the pairs p1 and p2 and p3 and p4",
    ]


def test_a_group_name_of_one_pair_is_allowed() -> None:
    config = cluster(members={"a1": member(group="fish"), "a2": member("backup", group="fish")})
    assert preflight.artemis_problems(config) == []


@pytest.mark.parametrize(("count", "sound"), [(2, True), (3, False)])
def test_colocated_brokers_share_a_group_only_as_two(count: int, sound: bool) -> None:
    members = {f"a{n}": member(pair=f"p{n}", group="all") for n in range(count)}
    problems = preflight.artemis_problems(cluster(policy="colocated", members=members))
    assert problems == [] if sound else "is that of the pairs p0 and p1 and p2" in problems[0]


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
        each_its_pair("colocated", colocated_store="shared_store", **discovered()),
        each_its_pair("colocated", max_backups=1),
        each_its_pair(
            "colocated",
            colocated_store="shared_store",
            **discovered(acceptors=[tcp("core"), within("vm")], connectors=connectors("a1", vm=within("vm"))),
        ),
        each_its_pair(
            "colocated",
            scale_down=target(connectors=["vm"]),
            acceptors=[tcp("core"), within("vm")],
            connectors=connectors("a1", "a2", vm=within("vm")),
        ),
        each_its_pair("scale_down", scale_down=target()),
        each_its_pair("scale_down", scale_down=target(discovery_group="brokers", connectors=[]), **discovered()),
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
            each_its_pair("colocated", connectors=connectors("a1", "a2", "afar"), excludes=["a2"]),
            "artemis_colocated_excludes lacks afar",
        ),
        (each_its_pair("colocated", colocated_store="shared_store", excludes=[]), "set artemis_discovery to udp"),
        (cluster(policy="colocated"), "a1 and a2 are one pair p1"),
        (cluster(policy="colocated", members={"a1": member()}), "no other to run its backup"),
        # scale-down
        (each_its_pair("scale_down", scale_down=target(connectors=[])), "nobody to hand messages to"),
        (each_its_pair("scale_down", scale_down=target(connectors=["x"])), "connectors x, which there are not"),
        (
            each_its_pair("scale_down", scale_down=target(discovery_group="brokers")),
            "scale-down refers to the discovery group brokers, which is not there; there are none",
        ),
        (
            each_its_pair("scale_down", scale_down=target(discovery_group="wahey"), **discovered()),
            "scale-down refers to the discovery group wahey, which is not there; there are: brokers",
        ),
        (
            each_its_pair(
                "scale_down",
                scale_down=target(connectors=["vm"]),
                acceptors=[tcp("core"), within("vm")],
                connectors=connectors("a1", "a2", vm=within("vm")),
            ),
            "scale-down by vm leads back to this broker",
        ),
        (cluster(policy="scale_down", scale_down=target()), "a2 is a backup, but artemis_ha_policy scale_down"),
        (each_its_pair("colocated", max_backups=2), "artemis_max_backups 2: whose backup is the second"),
        # sessions and connections
        (cluster(cluster_connections=[connection(ttl_ms=3999)]), "below the session of 4000 ms"),
        (peers(session_ms=5000), "set artemis_connection_ttl_ms to 5000 or more"),
        (
            cluster(
                cluster_connections=[connection(), connection("slow", ttl_ms=100)], replication_cluster_names=["slow"]
            ),
            "the cluster connection slow has a connection-ttl of 100 ms",
        ),
        # groups and connections that refer to each other
        (
            cluster(replication_cluster_names=["33rrrrr"]),
            "replication refers to the cluster connection (cluster-name) 33rrrrr, which is not there; there are: c",
        ),
        (cluster(cluster_connections=[]), "artemis_cluster_connections is empty, but the cluster has several brokers"),
        (cluster(cluster_connections=[connection(), connection()]), "two cluster connections are called c"),
        (cluster(discovery_groups=[group(), group()]), "two discovery groups are called brokers"),
        (cluster(broadcast_groups=[group(), group()]), "two broadcast groups are called brokers"),
        (
            cluster(cluster_connections=[connection(discovery_group="x", static_connectors=[])]),
            "cluster connection c refers to the discovery group x, which is not there",
        ),
        (
            cluster(discovery_groups=[group()], cluster_connections=[connection(discovery_group="brokers")]),
            "cluster connection c has a discovery group and static connectors",
        ),
        (
            cluster(cluster_connections=[connection(connector="x")]),
            "cluster connection c refers to the connector x, which is not there; there are: a1, a2",
        ),
        (cluster(cluster_connections=[connection(static_connectors=["x"])]), "refers to the connector x"),
        (
            cluster(broadcast_groups=[group("brokers", "x")]),
            "broadcast group brokers refers to the connector x, which is not there",
        ),
        (
            cluster(
                acceptors=[tcp("core"), within("vm")],
                connectors=connectors("a1", "a2", vm=within("vm")),
                broadcast_groups=[group("brokers", "vm")],
            ),
            "broadcast group brokers refers to the connector vm",
        ),
        # within the process
        (
            cluster(connectors=connectors("a1", "a2", vm=within("vm", 7)), acceptors=[tcp("core"), within("vm")]),
            "connector vm leads to vm://7, but no acceptor of type vm has that server_id",
        ),
        (cluster(acceptors=[within("vm")]), "artemis_acceptors has none with a port"),
        (cluster(acceptors=[tcp("core"), tcp("core")]), "two acceptors are called core"),
        # a version of which nothing is known
        (cluster(version="3.0.0", archive=None), "artemis_version 3.0.0 is not known"),
    ],
)
def test_what_the_documents_warn_of_is_refused(config: dict[str, Any], said: str) -> None:
    assert any(said in problem for problem in preflight.artemis_problems(config))
