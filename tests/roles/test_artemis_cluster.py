"""How brokers find each other: what the lists of an inventory amount to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.test_plugins import plugin

cluster = plugin("filter", "artemis_cluster")

GROUPS = {
    "local_bind_address": "192.0.2.1",
    "udp_group_address": "231.7.7.7",
    "udp_group_port": 9876,
    "jgroups_channel": "orders",
    "refresh_timeout_ms": 10000,
    "initial_wait_timeout_ms": 5000,
    "broadcast_period_ms": 2000,
    "connectors": ["a"],
}
CONNECTION = {
    "connector": "a",
    "check_period_ms": 1000,
    "connection_ttl_ms": 4000,
    "call_timeout_ms": 5000,
    "retry_interval_ms": 200,
    "message_load_balancing": "ON_DEMAND",
    "max_hops": 1,
    "discovery_group": None,
    "static_connectors": ["b"],
}


def test_groups_side_by_side_take_what_they_leave_out_from_the_role() -> None:
    given = [
        {"name": "one", "type": "udp"},
        {"name": "two", "type": "udp", "udp_group_address": "231.7.7.8", "udp_group_port": 1, "refresh_timeout_ms": 2},
        {"name": "three", "type": "jgroups", "jgroups_channel": "own"},
    ]
    one, two, three = cluster.artemis_discovery_groups(given, GROUPS)
    timeouts = {"refresh-timeout": 10000, "initial-wait-timeout": 5000}
    assert one["elements"] == {
        "local-bind-address": "192.0.2.1",
        "group-address": "231.7.7.7",
        "group-port": 9876,
        **timeouts,
    }
    assert (two["elements"]["group-address"], two["elements"]["group-port"]) == ("231.7.7.8", 1)
    assert two["elements"]["refresh-timeout"] == 2
    assert three["elements"] == {"jgroups-file": "jgroups.xml", "jgroups-channel": "own", **timeouts}
    assert [group["name"] for group in (one, two, three)] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        ({"type": "udp"}, ["local-bind-address", "group-address", "group-port", "broadcast-period"]),
        ({"type": "jgroups"}, ["broadcast-period", "jgroups-file", "jgroups-channel"]),
    ],
)
def test_broadcast_groups_announce_connectors(entry: dict[str, Any], names: list[str]) -> None:
    (own,) = cluster.artemis_broadcast_groups([{"name": "one", **entry}], GROUPS)
    assert list(own["elements"]) == names, "in the order of the schema"
    assert (own["elements"]["broadcast-period"], own["connectors"]) == (2000, ["a"])
    (more,) = cluster.artemis_broadcast_groups(
        [{"name": "one", "connectors": ["b", "c"], "broadcast_period_ms": 7, **entry}], GROUPS
    )
    assert (more["elements"]["broadcast-period"], more["connectors"]) == (7, ["b", "c"])


def test_a_cluster_connection_has_the_roles_times_and_peers() -> None:
    (found,) = cluster.artemis_cluster_connections([{"name": "orders"}], CONNECTION)
    assert list(found["elements"].items()) == [
        ("check-period", 1000),
        ("connection-ttl", 4000),
        ("call-timeout", 5000),
        ("retry-interval", 200),
        ("message-load-balancing", "ON_DEMAND"),
        ("max-hops", 1),
    ]
    assert (found["connector"], found["discovery_group"], found["static_connectors"]) == ("a", None, ["b"])


@pytest.mark.parametrize(
    ("entry", "group", "connectors"),
    [
        ({}, "brokers", []),
        ({"discovery_group": "own"}, "own", []),
        ({"static_connectors": ["c"]}, None, ["c"]),
        ({"static_connectors": []}, None, []),
    ],
)
def test_a_cluster_connection_finds_others_its_own_way(
    entry: dict[str, Any], group: str | None, connectors: list[str]
) -> None:
    settings = {**CONNECTION, "discovery_group": "brokers", "static_connectors": []}
    (found,) = cluster.artemis_cluster_connections([{"name": "orders", **entry}], settings)
    assert (found["discovery_group"], found["static_connectors"]) == (group, connectors)


def test_a_cluster_connection_with_settings_of_its_own() -> None:
    entry = {
        "name": "billing",
        "address": "billing",
        "connector": "other",
        "connection_ttl_ms": 9,
        "message_load_balancing": "STRICT",
        "max_hops": 2,
    }
    (found,) = cluster.artemis_cluster_connections([entry], CONNECTION)
    assert (found["connector"], found["elements"]["address"]) == ("other", "billing")
    elements = found["elements"]
    assert (elements["connection-ttl"], elements["message-load-balancing"], elements["max-hops"]) == (9, "STRICT", 2)
