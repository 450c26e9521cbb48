"""What the roles activemq_classic and lease_db derive from the inventory, without Ansible."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.test_plugins import plugin

classic = plugin("filter", "activemq_classic_topology")
database = plugin("filter", "lease_db")
urls = plugin("filter", "activemq_classic")

DEFAULTS = {"persistence_adapter": "kahadb", "locker": "default", "lock_acquire_sleep_interval_ms": 1000}


def members(**hosts: dict[str, Any]) -> dict[str, Any]:
    return classic.activemq_classic_members(list(hosts), hosts, DEFAULTS)


def test_a_broker_is_what_its_inventory_says_else_what_the_role_gives() -> None:
    found = members(b={}, a={"activemq_classic_instance": "one", "activemq_classic_pair": "p"})
    assert list(found) == ["a", "b"], "sorted, whatever the order of the group"
    assert found["b"] == {
        "instance": "b",
        "pair": "b",
        "broker_name": "b",
        "holder": "b",
        "store_dir": "/var/lib/activemq-classic/b/kahadb",
        "adapter": "kahadb",
        "locker": "default",
        "sleep_ms": 1000,
    }
    assert (found["a"]["pair"], found["a"]["broker_name"], found["a"]["holder"]) == ("p", "one", "one")
    assert found["a"]["store_dir"] == "/var/lib/activemq-classic/one/kahadb"


def test_a_lease_is_held_under_its_own_name_where_there_is_one() -> None:
    named = members(a={"activemq_classic_broker_name": "n", "activemq_classic_lease_holder_id": "h"})
    unnamed = members(a={"activemq_classic_broker_name": "n", "activemq_classic_lease_holder_id": None})
    assert (named["a"]["holder"], unnamed["a"]["holder"]) == ("h", "n")


def test_groups_list_their_users_in_order() -> None:
    users = [{"name": "b", "groups": ["x", "y"]}, {"name": "a", "groups": ["x"]}]
    assert classic.activemq_classic_groups(users) == {"x": ["b", "a"], "y": ["b"]}


def test_a_descriptor_says_connectors_by_their_protocols_and_management_last() -> None:
    connectors = [{"name": "o", "scheme": "ssl", "port": "61617"}, {"name": "s", "scheme": "stomp+ssl", "port": 61612}]
    found = classic.activemq_classic_listeners(connectors, "192.0.2.1", 8162)
    assert [(item["name"], item["port"], item["protocol"]) for item in found] == [
        ("o", 61617, "openwire"),
        ("s", 61612, "stomp"),
        ("management", 8162, "https"),
    ]
    assert all(item["tls"] and item["address"] == "192.0.2.1" for item in found)


def test_a_descriptor_says_where_dead_letters_go() -> None:
    found = classic.activemq_classic_addresses(["q"], ["t"], "DLQ")
    assert found == [
        {"name": "q", "routing": "anycast", "dead_letter": "DLQ"},
        {"name": "DLQ", "routing": "anycast", "dead_letter": None},
        {"name": "t", "routing": "multicast", "dead_letter": "DLQ"},
    ]


def test_a_host_whose_clock_was_not_asked_is_left_out() -> None:
    hostvars = {"a": {"clock": {"offset_ms": 1.0}}, "b": {}, "c": {"clock": {"unreachable": True}}}
    assert classic.clocks_of(["a", "b", "c"], hostvars, "clock") == {"a": {"offset_ms": 1.0}}


HOSTVARS: dict[str, dict[str, Any]] = {
    "db2": {"ansible_host": "192.0.2.2", "lease_db_port": "6000"},
    "db1": {"ansible_host": "192.0.2.9", "lease_db_address": "2001:db8::1", "lease_db_instance": "one"},
    "app": {"ansible_host": "app.example"},
}


def databases() -> dict[str, Any]:
    return database.lease_db_members(["db2", "db1"], HOSTVARS, {"port": 5432, "rest_port": 8008})


def test_a_database_is_what_its_inventory_says_else_what_the_role_gives() -> None:
    assert databases() == {
        "db1": {"instance": "one", "address": "2001:db8::1", "port": 5432, "rest_port": 8008},
        "db2": {"instance": "db2", "address": "192.0.2.2", "port": 6000, "rest_port": 8008},
    }
    assert classic.activemq_classic_dials(list(databases().values()))[1] == {
        "link": "database",
        "to": "db2",
        "address": "192.0.2.2",
        "port": 6000,
    }


def test_clients_are_let_in_one_by_one() -> None:
    networks = database.lease_db_networks(["db2", "app", "db1", "db2"], HOSTVARS)
    assert networks == ["app.example", "2001:db8::1/128", "192.0.2.2/32"]
    lines = database.lease_db_hba(databases(), ["192.0.2.7/32"], "broker", "user")
    assert lines[0] == "local all postgres peer"
    assert "hostssl replication replication 2001:db8::1/128 scram-sha-256" in lines
    assert lines[-1] == 'hostssl "broker" "user" 192.0.2.7/32 scram-sha-256'
    assert len(lines) == 6


def test_a_member_dials_the_ensemble_and_every_other_member() -> None:
    servers = [{"host": "zk1", "address": "192.0.2.11", "port": "2281"}]
    found = database.lease_db_dials(databases(), "db1", servers)
    assert [(item["link"], item["to"], item["port"]) for item in found] == [
        ("zookeeper", "zk1", 2281),
        ("database", "db2", 6000),
        ("database", "db2", 8008),
    ]


def test_a_query_for_evidence_is_one_word_of_the_command() -> None:
    found = database.lease_db_evidence({"locks": "select 'x y'"}, "/bin/psql -At", "postgres")
    assert found == {"locks": "runuser -u postgres -- /bin/psql -At --command='select '\"'\"'x y'\"'\"''"}


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("jdbc:postgresql://db:5432/broker", True),
        ("jdbc:mysql://db/broker", False),
        ("jdbc:mariadb://db/broker", False),
        ("jdbc:sqlserver://db;databaseName=broker", False),
        ("jdbc:oracle:thin:@//db:1521/broker", False),
    ],
)
def test_options_of_postgresql_go_to_its_driver_alone(url: str, kept: bool) -> None:
    given = {"socketTimeout": 5, "options": "-c lock_timeout=4000"}
    found = urls.with_query(url, urls.postgresql_options(url, given))
    assert found == (f"{url}?socketTimeout=5&options=-c%20lock_timeout%3D4000" if kept else url)
