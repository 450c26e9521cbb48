"""What the role artemis derives from the inventory, without Ansible."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from brokerdrill.workload.config import STOMP_PREFIX
from tests.roles.test_plugins import plugin

topology = plugin("filter", "artemis_topology")
zookeeper = plugin("filter", "zookeeper")
pairs = plugin("filter", "pairs")

DEFAULTS = {
    "acceptors": [{"name": "core", "port": 61616}],
    "jgroups_port": 7800,
    "journal_file_size": "10M",
}


def members(**hosts: dict[str, Any]) -> dict[str, Any]:
    hostvars = {host: {"artemis_cluster": "c", **own} for host, own in hosts.items()}
    return topology.artemis_members(list(hosts), hostvars, "c", DEFAULTS)


def test_a_member_is_what_its_inventory_says_else_what_the_role_gives() -> None:
    found = members(b={}, a={"artemis_pair": "p", "artemis_instance": "one", "artemis_ha_role": "slave"})
    assert list(found) == ["a", "b"], "sorted, whatever the order of the group"
    assert found["b"] == {
        "instance": "b",
        "pair": "b",
        "group": "b",
        "role": "primary",
        "policy": None,
        "address": "b",
        "port": 61616,
        "tls": True,
        "jgroups_port": 7800,
        "store_dir": "/var/lib/artemis/b/data",
        "journal": "10M",
        "coordination_id": "b",
        "cluster_user": "made",
        "cluster_password": "made",
        "request_backup": True,
    }
    assert (found["a"]["role"], found["a"]["coordination_id"]) == ("backup", "p")
    assert found["a"]["store_dir"] == "/var/lib/artemis/one/data"


def test_a_members_policy_is_the_one_that_its_inventory_says() -> None:
    found = members(a={"artemis_ha_policy": "live-only"}, b={"artemis_ha_policy": "shared_store"}, c={})
    assert [member["policy"] for member in found.values()] == ["primary_only", "shared_store", None]


def test_a_members_address_is_its_own_then_ansibles() -> None:
    found = members(a={"ansible_host": "192.0.2.1"}, b={"ansible_host": "192.0.2.2", "artemis_address": "b.example"})
    assert [member["address"] for member in found.values()] == ["192.0.2.1", "b.example"]


def test_a_member_serves_the_cluster_at_its_first_acceptor_with_a_port() -> None:
    acceptors = [{"type": "vm", "server_id": 0}, {"port": 61617}, {"port": 5672}]
    assert members(a={"artemis_acceptors": acceptors})["a"]["port"] == 61617
    assert members(a={"artemis_acceptors": acceptors[:1]})["a"]["port"] == 0, "preflight refuses it"


def test_a_members_group_is_its_pair_unless_it_says_so() -> None:
    found = members(a={"artemis_pair": "p"}, b={"artemis_group_name": "fish"}, c={"artemis_group_name": None})
    assert [member["group"] for member in found.values()] == ["p", "fish", "c"]


def test_whether_a_member_asks_for_a_backup() -> None:
    found = members(a={"artemis_request_backup": "false"}, b={})
    assert [member["request_backup"] for member in found.values()] == [False, True]


def test_other_clusters_are_not_members() -> None:
    hostvars: dict[str, Any] = {"a": {"artemis_cluster": "c"}, "b": {"artemis_cluster": "d"}, "c": {}}
    assert list(topology.artemis_members(list(hostvars), hostvars, "c", DEFAULTS)) == ["a", "c"], (
        "a host without cluster and pair is a cluster of its own name"
    )


def test_connectors_lead_to_who_is_announced_and_to_others() -> None:
    cluster = members(a={}, b={})
    more = [
        {"name": "afar", "address": "192.0.2.9", "port": "61000", "parameters": {"x": "1"}},
        {"name": "within", "type": "vm", "server_id": "3"},
    ]
    tcp = {"type": "tcp", "server_id": None}
    assert topology.artemis_connectors(cluster, ["b"], {"sslEnabled": "true"}, more) == {
        "b": {**tcp, "address": "b", "port": 61616, "parameters": {"sslEnabled": "true"}},
        "afar": {**tcp, "address": "192.0.2.9", "port": 61000, "parameters": {"sslEnabled": "true", "x": "1"}},
        "within": {"type": "vm", "address": None, "port": None, "server_id": 3, "parameters": {}},
    }


@pytest.mark.parametrize("said", ["false", False, "no"])
def test_a_connector_speaks_tls_where_the_acceptor_that_it_leads_to_does(said: object) -> None:
    plain = {"name": "all", "port": 61616, "protocols": ["CORE"], "parameters": {"sslEnabled": said}}
    admin = {"name": "admin", "port": 61617, "protocols": ["CORE"]}
    cluster = members(a={"artemis_acceptors": [plain, admin]}, b={"artemis_acceptors": [admin, plain]})
    found = topology.artemis_connectors(cluster, ["a", "b"], {"sslEnabled": "true"}, [])
    assert {name: one["parameters"] for name, one in found.items()} == {
        "a": {"sslEnabled": "false"},
        "b": {"sslEnabled": "true"},
    }
    listeners = topology.artemis_listeners([plain, admin], "a", 8443, [])
    assert [(one["name"], one["tls"]) for one in listeners] == [("all", False), ("admin", True), ("console", True)]


def test_acceptors_have_tls_and_protocols_where_they_have_a_port() -> None:
    given = [
        {"name": "all", "port": "61617", "protocols": ["AMQP", "CORE"], "parameters": {"amqpCredits": 10}},
        {"name": "within", "type": "vm", "server_id": 0},
    ]
    one, two = topology.artemis_acceptors(given, "192.0.2.1", {"sslEnabled": "true"})
    assert (one["name"], one["address"], one["port"]) == ("all", "192.0.2.1", 61617)
    assert list(one["parameters"].items()) == [("sslEnabled", "true"), ("amqpCredits", 10), ("protocols", "AMQP,CORE")]
    assert (two["type"], two["server_id"], two["parameters"]) == ("vm", 0, {})


@pytest.mark.parametrize(
    ("entry", "lacks"),
    [
        ({"port": 1}, "x, of type tcp, needs protocols"),
        ({"protocols": ["CORE"]}, "x, of type tcp, needs port"),
        ({"type": "vm"}, "x, of type vm, needs server_id"),
    ],
)
def test_an_acceptor_that_lacks_something_is_refused(entry: dict[str, Any], lacks: str) -> None:
    with pytest.raises(AnsibleFilterError, match=lacks):
        topology.artemis_acceptors([{"name": "x", **entry}], "192.0.2.1", {})


@pytest.mark.parametrize(
    ("entry", "lacks"),
    [
        ({"port": 1}, "x, of type tcp, needs address"),
        ({"address": "a"}, "x, of type tcp, needs port"),
        ({"type": "vm"}, "x, of type vm, needs server_id"),
    ],
)
def test_a_connector_that_lacks_something_is_refused(entry: dict[str, Any], lacks: str) -> None:
    with pytest.raises(AnsibleFilterError, match=lacks):
        topology.artemis_connectors({}, [], {}, [{"name": "x", **entry}])


@pytest.mark.parametrize(
    ("given", "group", "change"),
    [
        ({}, None, {"connectors": ["b"]}),
        ({}, "brokers", {"discovery_group": "brokers"}),
        ({"connectors": ["afar"]}, "brokers", {"connectors": ["afar"]}),
        ({"discovery_group": "own"}, "brokers", {"discovery_group": "own"}),
        ({"enabled": False, "connectors": None}, None, {"enabled": False, "connectors": ["b"]}),
        (
            {"group_name": "g", "commit_interval": 9},
            None,
            {"group_name": "g", "commit_interval": 9, "connectors": ["b"]},
        ),
    ],
)
def test_scale_down_is_filled_in(given: dict[str, Any], group: str | None, change: dict[str, Any]) -> None:
    none = {"enabled": True, "group_name": None, "discovery_group": None, "connectors": [], "commit_interval": None}
    assert topology.artemis_scale_down(given, group, ["b"]) == {**none, **change}


def test_listeners_are_the_acceptors_and_the_console() -> None:
    acceptors = [
        {"name": "all", "port": "61617", "protocols": ["AMQP", "CORE"]},
        {"name": "within", "type": "vm", "server_id": 0},
        {"name": "told", "port": "61618", "protocols": ["CORE"], "parameters": {"autoStart": False}},
    ]
    found = topology.artemis_listeners(acceptors, "192.0.2.1", "8161", [])
    assert found == [
        {"name": "all", "address": "192.0.2.1", "port": 61617, "protocol": "amqp", "tls": True},
        {"name": "all", "address": "192.0.2.1", "port": 61617, "protocol": "core", "tls": True},
        {"name": "console", "address": "192.0.2.1", "port": 8161, "protocol": "https", "tls": True},
    ]
    assert [item["port"] for item in topology.artemis_moved_listeners(found, "10")] == [61627, 61627, 8161]


@pytest.mark.parametrize(("parameters", "dialled"), [({}, False), ({"anycastPrefix": STOMP_PREFIX}, True)])
def test_stomp_clients_dial_who_takes_off_what_they_write_before_a_name(
    parameters: dict[str, Any], dialled: bool
) -> None:
    acceptor = {"name": "all", "port": 61617, "protocols": ["CORE", "STOMP"], "parameters": parameters}
    core, stomp, _ = topology.artemis_listeners([acceptor], "192.0.2.1", 8161, [])
    assert "clients" not in core and stomp.get("clients", True) == dialled
    assert topology.STOMP_PREFIX == STOMP_PREFIX


def test_a_listener_with_a_router_says_its_key() -> None:
    routers = [
        {"name": "parts", "key_type": "SNI_HOST", "key_filter": "[0-9]$"},
        {"name": "whole", "key_type": "CLIENT_ID", "key_filter": None},
    ]
    acceptors = [{"name": name, "port": 1, "protocols": ["CORE"], "router": name} for name in ("parts", "whole")]
    found = topology.artemis_listeners(acceptors, "192.0.2.1", "8161", routers)
    assert [(item.get("router"), item.get("key"), item.get("key_filter")) for item in found] == [
        ("parts", "SNI_HOST", "[0-9]$"),
        ("whole", "CLIENT_ID", None),
        (None, None, None),
    ]


def test_a_broker_dials_its_cluster_and_zookeeper() -> None:
    cluster = members(
        a={"artemis_pair": "p"},
        b={"artemis_pair": "p", "artemis_ha_role": "backup", "artemis_instance": "two"},
        c={},
    )
    servers = [{"host": "zk1", "address": "192.0.2.9", "port": 2281}]
    assert topology.artemis_dials(cluster, "a", servers) == [
        {"link": "backup", "to": "two", "address": "b", "port": 61616},
        {"link": "broker", "to": "c", "address": "c", "port": 61616},
        {"link": "zookeeper", "to": "zk1", "address": "192.0.2.9", "port": 2281},
    ]
    assert topology.artemis_dials(cluster, "b", [])[0]["link"] == "primary"


@pytest.mark.parametrize(
    ("address", "settings", "letter"),
    [
        ({"name": "q"}, {"dead-letter-address": "DLQ"}, "DLQ"),
        ({"name": "q", "dead_letter": "own"}, {"dead-letter-address": "DLQ"}, "own"),
        ({"name": "q"}, {}, None),
        ({"name": "DLQ"}, {"dead-letter-address": "DLQ"}, None),
        ({"name": "ExpiryQueue"}, {"dead-letter-address": "DLQ"}, None),
    ],
)
def test_where_an_addresss_dead_letters_go(
    address: dict[str, Any], settings: dict[str, Any], letter: str | None
) -> None:
    more = [{"match": "q", "settings": {"dead-letter-address": "no"}}, {"match": "#", "settings": settings}]
    (found,) = topology.artemis_described_addresses([{"routing": "anycast", **address}], more)
    assert found == {"name": address["name"], "routing": "anycast", "dead_letter": letter}


def test_without_a_catch_all_there_is_no_dead_letter_address() -> None:
    (found,) = topology.artemis_described_addresses([{"name": "q", "routing": "anycast"}], [])
    assert found["dead_letter"] is None


def test_the_ring_goes_round() -> None:
    cluster = members(a={}, b={}, c={"artemis_instance": "last"})
    following = [topology.artemis_next_in_ring(cluster, name)["instance"] for name in ("a", "b", "last")]
    assert following == ["b", "last", "a"]


ENSEMBLE = {"client_port": 2281, "quorum_port": 2888, "election_port": 3888, "tick_time_ms": 500}


def test_an_ensembles_members_have_their_own_ids() -> None:
    hostvars: dict[str, Any] = {
        "zk2": {"zookeeper_id": "9", "ansible_host": "192.0.2.2", "zookeeper_quorum_port": "1"},
        "zk1": {"zookeeper_tick_time_ms": "600"},
    }
    found = zookeeper.zookeeper_members(list(hostvars), hostvars, ENSEMBLE)
    assert found == {
        "zk1": {
            "id": 1,
            "address": "zk1",
            "client_port": 2281,
            "quorum_port": 2888,
            "election_port": 3888,
            "tick_ms": 600,
        },
        "zk2": {
            "id": 9,
            "address": "192.0.2.2",
            "client_port": 2281,
            "quorum_port": 1,
            "election_port": 3888,
            "tick_ms": 500,
        },
    }
    assert zookeeper.zookeeper_dials(found, {"zk2": {"zookeeper_instance": "two"}}, "zk1") == [
        {"link": "zookeeper", "to": "two", "address": "192.0.2.2", "port": 1},
        {"link": "zookeeper", "to": "two", "address": "192.0.2.2", "port": 3888},
    ]


def test_clients_of_an_ensemble_are_told_its_servers() -> None:
    hostvars: dict[str, Any] = {
        "zk2": {"zookeeper_instance": "two", "zookeeper_client_port": "2182"},
        "zk1": {"zookeeper_address": "192.0.2.1", "ansible_host": "192.0.2.77"},
    }
    found = zookeeper.zookeeper_servers(list(hostvars), hostvars, 2281)
    assert found == [
        {"host": "zk1", "address": "192.0.2.1", "port": 2281},
        {"host": "two", "address": "zk2", "port": 2182},
    ]
    assert zookeeper.zookeeper_connect_string(found) == "192.0.2.1:2281,zk2:2182"


TOLD = '[{"nodeID": "1", "live": "192.0.2.1:61616", "primary": "192.0.2.1:61616", "backup": "192.0.2.22:61616"}]'


@pytest.mark.parametrize(
    ("told", "addresses", "known"),
    [
        (TOLD, {"a": "192.0.2.1", "b": "192.0.2.22"}, ["a", "b"]),
        # A part of another one's address
        (TOLD, {"a": "192.0.2.1", "b": "192.0.2.2", "c": "2.0.2.22"}, ["a"]),
        (TOLD.replace("192.0.2.22", "[2001:db8::2]"), {"b": "2001:db8::2", "c": "2001:db8::22"}, ["b"]),
        (TOLD.replace("192.0.2.22", "2001:db8::2"), {"b": "2001:db8::2"}, ["b"]),
        (TOLD.replace("22:61616", "22:61617"), {"b": "192.0.2.22"}, []),
        (json.loads(TOLD), {"b": "192.0.2.22"}, ["b"]),  # Ansible may have read it already
        ("[]", {"a": "192.0.2.1"}, []),
        ("", {"a": "192.0.2.1"}, []),
        (None, {"a": "192.0.2.1"}, []),
    ],
)
def test_whom_a_broker_knows(told: Any, addresses: dict[str, str], known: list[str]) -> None:
    members = {name: {"address": address, "port": 61616} for name, address in addresses.items()}
    assert topology.artemis_known(told, members) == known


def test_who_was_not_asked_is_unknown() -> None:
    hostvars: dict[str, Any] = {"a": {"asked": {"state": "active"}}, "b": {"asked": {}}, "c": {}}
    found = pairs.health_states(["a", "b", "c"], hostvars, "asked")
    assert found == {"a": "active", "b": "unknown", "c": "unknown"}
