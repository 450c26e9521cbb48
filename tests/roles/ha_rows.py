"""Every row of Artemis' own tables of HA settings, as one cluster each.

A row names what it sets and what must then be in the file. Hosts of a row are `ROW-HOST` in a cluster of its name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Vars = dict[str, Any]


class Row(NamedTuple):
    """Variables of all hosts of the row, each host's own, and for a host: path below ha-policy → text, or None where
    the element must not be there."""

    shared: Vars
    hosts: dict[str, Vars]
    expected: dict[str, dict[str, str | None]]


PAIR: dict[str, Vars] = {
    "a": {"artemis_pair": "p1", "artemis_ha_role": "primary"},
    "b": {"artemis_pair": "p1", "artemis_ha_role": "backup"},
}
PEERS: dict[str, Vars] = {"a": {"artemis_pair": "p1"}, "b": {"artemis_pair": "p1"}}
ALONE: dict[str, Vars] = {"a": {}, "b": {}}
# One of each pair stays behind: what a backup scales down to is another pair's.
TWO_PAIRS: dict[str, Vars] = PAIR | {
    "c": {"artemis_pair": "p2", "artemis_ha_role": "primary"},
    "d": {"artemis_pair": "p2", "artemis_ha_role": "backup"},
}


def classic(**settings: Any) -> Vars:
    return {"artemis_ha_policy": "replication", **settings}


def both(path: str, text: str | None) -> dict[str, dict[str, str | None]]:
    """The same element in the primary and in the backup of a classic pair."""
    return {"a": {f"replication/primary/{path}": text}, "b": {f"replication/backup/{path}": text}}


def quorum(**settings: Any) -> Vars:
    return {"artemis_ha_policy": "replication_quorum", **settings}


def store(**settings: Any) -> Vars:
    return {"artemis_ha_policy": "shared_store", "artemis_store_dir": "/srv/shared/p1", **settings}


def colocated(**settings: Any) -> Vars:
    return {"artemis_ha_policy": "colocated", **settings}


def colocated_store(**settings: Any) -> Vars:
    shared = {"artemis_colocated_store": "shared_store", "artemis_discovery": "udp"}
    return {"artemis_ha_policy": "colocated", **shared, **settings}


def scale_down(**target: Any) -> Vars:
    return {"artemis_ha_policy": "scale_down", "artemis_scale_down": target or None}


MANAGER = "replication/primary/manager/properties/property[@key='{}']/@value"

ROWS: dict[str, Row] = {
    # primary-only, and its older name
    "primary_only": Row({"artemis_ha_policy": "primary_only"}, {"a": {}}, {"a": {"primary-only": ""}}),
    "live_only": Row({"artemis_ha_policy": "live-only"}, {"a": {}}, {"a": {"primary-only": "", "live-only": None}}),
    # classic replication
    "classic": Row(classic(), PAIR, both("group-name", "p1")),
    "older_roles": Row(
        classic(),
        {"a": {**PAIR["a"], "artemis_ha_role": "master"}, "b": {**PAIR["b"], "artemis_ha_role": "slave"}},
        both("initial-replication-sync-timeout", "10000"),
    ),
    "checked": Row(classic(), PAIR, {"a": {"replication/primary/check-for-active-server": "true"}}),
    "checked_older_name": Row(
        classic(artemis_check_for_live_server=False, artemis_allow_failback=False),
        PAIR,
        {
            "a": {
                "replication/primary/check-for-active-server": "false",
                "replication/primary/check-for-live-server": None,
            }
        },
    ),
    "unchecked": Row(
        classic(artemis_check_for_active_server=False, artemis_allow_unchecked_failback=True),
        PAIR,
        {"a": {"replication/primary/check-for-active-server": "false"}},
    ),
    "cluster_name": Row(
        classic(
            artemis_replication_cluster_name="cluster_name",
            artemis_cluster_connections=[{"name": "first"}, {"name": "cluster_name"}],
        ),
        PAIR,
        both("cluster-name", "cluster_name"),
    ),
    "group_name": Row(classic(artemis_group_name="fish"), PAIR, both("group-name", "fish")),
    "sync_timeout": Row(
        classic(artemis_initial_replication_sync_timeout_ms=9000),
        PAIR,
        both("initial-replication-sync-timeout", "9000"),
    ),
    "saved_journals": Row(
        classic(artemis_max_saved_replicated_journals=7), PAIR, both("max-saved-replicated-journals-size", "7")
    ),
    "no_failback": Row(
        classic(artemis_allow_failback=False), PAIR, {"b": {"replication/backup/allow-failback": "false"}}
    ),
    "restart_backup": Row(
        classic(artemis_restart_backup=True), PAIR, {"b": {"replication/backup/restart-backup": "true"}}
    ),
    "votes": Row(classic(artemis_vote_on_replication_failure=True), PAIR, both("vote-on-replication-failure", "true")),
    "quorum_size": Row(classic(artemis_quorum_size=2), PAIR, both("quorum-size", "2")),
    "vote_retries": Row(classic(artemis_vote_retries=5), PAIR, both("vote-retries", "5")),
    "vote_retry_wait": Row(classic(artemis_vote_retry_wait_ms=700), PAIR, both("vote-retry-wait", "700")),
    "quorum_vote_wait": Row(classic(artemis_quorum_vote_wait_s=9), PAIR, both("quorum-vote-wait", "9")),
    "retry_replication": Row(
        classic(artemis_retry_replication_wait_ms=800), PAIR, both("retry-replication-wait", "800")
    ),
    "own_defaults": Row(classic(), PAIR, both("vote-retries", None)),
    # replication with a lock manager
    "quorum": Row(
        quorum(),
        PAIR,
        {
            "a": {
                "replication/primary/manager/class-name": (
                    "org.apache.activemq.artemis.lockmanager.zookeeper.CuratorDistributedLockManager"
                ),
                MANAGER.format("connect-string"): "192.0.2.201:2281,192.0.2.202:2281,192.0.2.203:2281",
                MANAGER.format("namespace"): "artemis-quorum",
                MANAGER.format("session-ms"): "4000",
                MANAGER.format("session-percent"): "33",
                MANAGER.format("connection-ms"): "2000",
                MANAGER.format("retries"): "3",
                MANAGER.format("retries-ms"): "500",
                "replication/primary/check-for-active-server": None,
                "replication/primary/allow-failback": None,
            },
            "b": {"replication/backup/allow-failback": "true"},
        },
    ),
    "quorum_older_class": Row(
        quorum(
            artemis_quorum_class_name="org.apache.activemq.artemis.quorum.zookeeper.CuratorDistributedPrimitiveManager"
        ),
        PAIR,
        {
            "a": {
                "replication/primary/manager/class-name": (
                    "org.apache.activemq.artemis.lockmanager.zookeeper.CuratorDistributedLockManager"
                )
            }
        },
    ),
    "quorum_other_class": Row(
        quorum(
            artemis_quorum_class_name="org.apache.activemq.artemis.lockmanager.file.FileBasedLockManager",
            artemis_quorum_properties={"locks-folder": "/srv/locks"},
        ),
        PAIR,
        {"a": {MANAGER.format("locks-folder"): "/srv/locks", MANAGER.format("connect-string"): None}},
    ),
    "quorum_properties": Row(
        quorum(artemis_quorum_properties={"session-ms": 5000}, artemis_connection_ttl_ms=5000),
        PAIR,
        {"a": {MANAGER.format("session-ms"): "5000"}},
    ),
    "quorum_no_failback": Row(
        quorum(artemis_allow_failback=False), PAIR, {"b": {"replication/backup/allow-failback": "false"}}
    ),
    # peers
    "peers": Row(
        {"artemis_ha_policy": "peers"},
        PEERS,
        {
            "a": {"replication/primary/coordination-id": "p1", MANAGER.format("session-ms"): "4000"},
            "b": {"replication/primary/coordination-id": "p1", "replication/backup": None},
        },
    ),
    "coordination_id": Row(
        {"artemis_ha_policy": "peers", "artemis_coordination_id": "peer-journal-001"},
        PEERS,
        {"a": {"replication/primary/coordination-id": "peer-journal-001"}},
    ),
    # shared store
    "shared_store": Row(
        store(),
        PAIR,
        {
            "a": {
                "shared-store/primary/failover-on-shutdown": "true",
                "shared-store/primary/wait-for-activation": None,
            },
            "b": {"shared-store/backup/allow-failback": "true", "shared-store/backup/failover-on-shutdown": "true"},
        },
    ),
    "no_failover_on_shutdown": Row(
        store(artemis_failover_on_shutdown=False),
        PAIR,
        {
            "a": {"shared-store/primary/failover-on-shutdown": "false"},
            "b": {"shared-store/backup/failover-on-shutdown": "false"},
        },
    ),
    "wait_for_activation": Row(
        store(artemis_wait_for_activation=False), PAIR, {"a": {"shared-store/primary/wait-for-activation": "false"}}
    ),
    "store_no_failback": Row(
        store(artemis_allow_failback=False), PAIR, {"b": {"shared-store/backup/allow-failback": "false"}}
    ),
    "store_restart_backup": Row(
        store(artemis_restart_backup=True), PAIR, {"b": {"shared-store/backup/restart-backup": "true"}}
    ),
    # colocated, replication
    "colocated": Row(
        colocated(),
        ALONE,
        {
            "a": {
                "replication/colocated/request-backup": "true",
                "replication/colocated/backup-port-offset": "100",
                "replication/colocated/excludes/connector-ref": "colocated-b",
                "replication/colocated/primary/check-for-active-server": "true",
                "replication/colocated/primary/group-name": "colocated-a",
                "replication/colocated/backup/group-name": "colocated-b",
                "replication/colocated/backup/allow-failback": "true",
            },
            "b": {
                "replication/colocated/primary/group-name": "colocated-b",
                "replication/colocated/backup/group-name": "colocated-a",
            },
        },
    ),
    "colocated_ring": Row(
        colocated(),
        ALONE | {"c": {}},
        {
            "a": {"replication/colocated/backup/group-name": "colocated_ring-b"},
            "b": {"replication/colocated/backup/group-name": "colocated_ring-c"},
            "c": {"replication/colocated/backup/group-name": "colocated_ring-a"},
        },
    ),
    "colocated_one_group": Row(
        colocated(artemis_group_name="all"),
        ALONE,
        {
            "a": {
                "replication/colocated/primary/group-name": "all",
                "replication/colocated/backup/group-name": "all",
            }
        },
    ),
    "colocated_requests": Row(
        colocated(
            artemis_request_backup=False,
            artemis_backup_request_retries=44,
            artemis_backup_request_retry_interval_ms=33,
            artemis_max_backups=1,
            artemis_backup_port_offset=33,
        ),
        ALONE,
        {
            "a": {
                "replication/colocated/request-backup": "false",
                "replication/colocated/backup-request-retries": "44",
                "replication/colocated/backup-request-retry-interval": "33",
                "replication/colocated/max-backups": "1",
                "replication/colocated/backup-port-offset": "33",
            }
        },
    ),
    "colocated_excludes": Row(
        colocated(
            artemis_more_connectors=[{"name": "remote-connector", "address": "192.0.2.9", "port": 61616}],
            artemis_colocated_excludes=["remote-connector", "colocated_excludes-a", "colocated_excludes-b"],
        ),
        ALONE,
        {"a": {"replication/colocated/excludes/connector-ref[1]": "remote-connector"}},
    ),
    # The documents' own example of a colocated backup that scales down, with connections of those names. (A cluster
    # connection's name is an xsd:ID, which does not begin with a digit as theirs does.)
    "purple_and_tiddles": Row(
        colocated(
            artemis_discovery="udp",
            artemis_discovery_group="wahey",
            artemis_group_name="purple",
            artemis_replication_cluster_name="abcdefg",
            artemis_cluster_connections=[{"name": "abcdefg"}, {"name": "rrrrr33"}],
            artemis_restart_backup=False,
            artemis_colocated_backup={
                "group_name": "tiddles",
                "cluster_name": "rrrrr33",
                "max_saved_replicated_journals": 22,
            },
            artemis_scale_down={"group_name": "boo!", "discovery_group": "wahey"},
        ),
        ALONE,
        {
            "a": {
                "replication/colocated/primary/group-name": "purple",
                "replication/colocated/primary/cluster-name": "abcdefg",
                "replication/colocated/backup/group-name": "tiddles",
                "replication/colocated/backup/cluster-name": "rrrrr33",
                "replication/colocated/backup/max-saved-replicated-journals-size": "22",
                "replication/colocated/backup/restart-backup": "false",
                "replication/colocated/backup/scale-down/group-name": "boo!",
                "replication/colocated/backup/scale-down/discovery-group-ref/@discovery-group-name": "wahey",
            }
        },
    ),
    # colocated, shared store
    "colocated_store": Row(
        colocated_store(artemis_max_backups=1, artemis_wait_for_activation=False),
        ALONE,
        {
            "a": {
                "shared-store/colocated/request-backup": "true",
                "shared-store/colocated/max-backups": "1",
                "shared-store/colocated/primary/failover-on-shutdown": "true",
                "shared-store/colocated/primary/wait-for-activation": "false",
                "shared-store/colocated/backup/allow-failback": "true",
                "shared-store/colocated/excludes": None,
            }
        },
    ),
    # scale-down
    "scale_down": Row(
        scale_down(),
        ALONE,
        {
            "a": {
                "primary-only/scale-down/enabled": "true",
                "primary-only/scale-down/connectors/connector-ref": "scale_down-b",
            }
        },
    ),
    "scale_down_connectors": Row(
        scale_down(connectors=["server1-connector"])
        | {"artemis_more_connectors": [{"name": "server1-connector", "address": "192.0.2.9", "port": 61616}]},
        ALONE,
        {"a": {"primary-only/scale-down/connectors/connector-ref": "server1-connector"}},
    ),
    "scale_down_discovery": Row(
        scale_down(discovery_group="my-discovery-group")
        | {"artemis_discovery": "udp", "artemis_discovery_group": "my-discovery-group"},
        ALONE,
        {"a": {"primary-only/scale-down/discovery-group-ref/@discovery-group-name": "my-discovery-group"}},
    ),
    "scale_down_group": Row(
        scale_down(group_name="my-group", commit_interval=100),
        ALONE,
        {"a": {"primary-only/scale-down/group-name": "my-group", "primary-only/scale-down/commit-interval": "100"}},
    ),
    "scale_down_off": Row(
        scale_down(enabled=False, connectors=["scale_down_off-b"]),
        ALONE,
        {"a": {"primary-only/scale-down/enabled": "false"}},
    ),
    "backup_scales_down": Row(
        classic(artemis_scale_down={"group_name": "my-group"}),
        TWO_PAIRS,
        {
            "a": {"replication/primary/scale-down": None},
            "b": {
                "replication/backup/scale-down/group-name": "my-group",
                "replication/backup/scale-down/connectors/connector-ref[1]": "backup_scales_down-c",
                "replication/backup/scale-down/connectors/connector-ref[2]": "backup_scales_down-d",
            },
        },
    ),
    "store_scales_down": Row(
        {"artemis_ha_policy": "shared_store", "artemis_scale_down": {"enabled": True}},
        {name: {**host, "artemis_store_dir": f"/srv/{host['artemis_pair']}"} for name, host in TWO_PAIRS.items()},
        {"b": {"shared-store/backup/scale-down/connectors/connector-ref[1]": "store_scales_down-c"}},
    ),
}

# Found by announcements instead of the inventory: what a cluster connection refers to is looked at below.
ROWS["udp"] = Row(classic(artemis_discovery="udp", artemis_udp_group_port=9877), PAIR, both("group-name", "p1"))
ROWS["jgroups"] = Row(classic(artemis_discovery="jgroups"), PAIR, both("group-name", "p1"))

# Several ways to find each other side by side, and a broker in the same process.
ROWS["side_by_side"] = Row(
    classic(
        artemis_discovery_groups=[
            {"name": "near", "type": "udp"},
            {"name": "far", "type": "udp", "udp_group_address": "231.7.7.8", "udp_group_port": 9878},
            {"name": "named", "type": "jgroups", "jgroups_channel": "own"},
        ],
        artemis_broadcast_groups=[
            {"name": "tell-near", "type": "udp", "connectors": ["side_by_side-a", "side_by_side-b"]},
            {"name": "tell-named", "type": "jgroups", "broadcast_period_ms": 700},
        ],
        artemis_cluster_connections=[
            {"name": "first"},
            {"name": "second", "address": "billing", "discovery_group": "far", "max_hops": 2},
        ],
        artemis_replication_cluster_name="second",
        artemis_acceptors=[
            {"name": "within", "type": "vm", "server_id": 7},
            {"name": "core", "port": 61617, "protocols": ["CORE"]},
        ],
        artemis_more_connectors=[{"name": "within", "type": "vm", "server_id": 7}],
    ),
    PAIR,
    both("cluster-name", "second"),
)
# Only the second of two brokers asks for a backup: the first runs one, and nobody runs the first's.
ROWS["one_asks"] = Row(
    colocated(),
    {"a": {"artemis_request_backup": False}, "b": {}},
    {
        "a": {"replication/colocated/request-backup": "false"},
        "b": {"replication/colocated/request-backup": "true"},
    },
)

# Group names side by side: each pair has its own (one name for several is refused: test_preflight_artemis).
ROWS["fish_and_bird"] = Row(
    classic(),
    {name: {**host, "artemis_group_name": "fish" if name in "ab" else "bird"} for name, host in TWO_PAIRS.items()},
    {
        **both("group-name", "fish"),
        "c": {"replication/primary/group-name": "bird"},
        "d": {"replication/backup/group-name": "bird"},
    },
)
