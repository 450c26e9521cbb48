"""What the role openmq renders for the brokers of each cluster model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.roles.conftest import render_all

HOSTS = """
all:
  children:
    openmq:
      hosts:
        openmq1: {ansible_host: 172.30.50.21}
        openmq2: {ansible_host: 172.30.50.22}
        openmq3: {ansible_host: 172.30.50.23}
"""
DATABASE = """
    lease_db:
      hosts:
        db1: {ansible_host: 172.30.50.15}
        db2: {ansible_host: 172.30.50.16}
"""
FILES = {
    "cluster": "cluster.properties.j2",
    "options": "java.options.j2",
    "jolokia": "jolokia.properties.j2",
    "access": "jolokia-access.xml.j2",
}
VARIABLES = ["__openmq_access_control", "__openmq_descriptor", "__openmq_pass_properties"]


def rendered(work: Path, model: str, **extra: Any) -> dict[str, dict[str, Any]]:
    """Return what each of three brokers gets in a cluster of that model."""
    inventory = work / "inventory"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(HOSTS + ("" if model == "conventional_master" else DATABASE))
    settings = {"openmq_cluster": model, "openmq_cluster_id": "drill", **extra}
    return render_all(work, "openmq", "openmq", FILES, VARIABLES, inventory=inventory, **settings)


def properties(text: str) -> dict[str, str]:
    lines = (line.removeprefix("-D") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


MASTER = {
    "imq.cluster.brokerlist": "mq://172.30.50.21:7676,mq://172.30.50.22:7676,mq://172.30.50.23:7676",
    "imq.cluster.masterbroker": "mq://172.30.50.21:7676",
    "imq.cluster.dynamicChangeMasterBrokerEnabled": "true",
    "imq.cluster.transport": "ssl",
}


def test_all_brokers_of_a_cluster_share_one_file(tmp_path: Path) -> None:
    hosts = rendered(tmp_path, "conventional_master")
    assert sorted(hosts) == ["openmq1", "openmq2", "openmq3"]
    assert len({host["files"]["cluster"] for host in hosts.values()}) == 1
    assert properties(hosts["openmq1"]["files"]["cluster"]) == MASTER
    described = {name: host["variables"]["__openmq_descriptor"] for name, host in hosts.items()}
    assert [name for name, one in described.items() if "master_broker" in one["features"]] == ["openmq1"]
    assert described["openmq2"]["control"].endswith(
        "-b 172.30.50.22:7676 -u admin -passfile /etc/openmq/openmq2/passfile -secure"
    )


@pytest.mark.parametrize(
    ("tls", "listener", "own"),
    [
        (True, "ssljms", {"imq.service.activelist": "ssljms,ssladmin", "imq.ssljms.tls.port": "7678"}),
        (False, "jms", {"imq.service.activelist": "jms,admin", "imq.jms.tcp.port": "7678"}),
    ],
)
def test_services_use_tls_unless_told_otherwise(tmp_path: Path, tls: bool, listener: str, own: dict[str, str]) -> None:
    host = rendered(tmp_path, "conventional_master", openmq_tls=tls)["openmq2"]
    found = properties(host["files"]["options"])
    assert {name: found[name] for name in own} == own
    assert found["imq.hostname"] == "172.30.50.22"
    descriptor = host["variables"]["__openmq_descriptor"]
    assert descriptor["management"]["service"] == listener
    assert {"name": listener, "address": "172.30.50.22", "port": 7678, "protocol": "openmq", "tls": tls} in descriptor[
        "listeners"
    ]
    assert [dial["to"] for dial in descriptor["dials"]] == ["openmq1", "openmq3"]


def test_peers_keep_the_change_record_in_the_database(tmp_path: Path) -> None:
    host = rendered(tmp_path, "conventional_peers")["openmq1"]
    found = properties(host["files"]["cluster"])
    assert found["imq.cluster.nomasterbroker"] == "true"
    assert found["imq.cluster.clusterid"] == "drill"
    assert found["imq.cluster.sharecc.persist.jdbc.dbVendor"] == "postgresql"
    assert "imq.cluster.ha" not in found and "imq.persist.store" not in found
    passwords = host["variables"]["__openmq_pass_properties"]
    assert "imq.cluster.sharecc.persist.jdbc.postgresql.password" in passwords


def test_an_enhanced_cluster_has_its_stores_in_the_database(tmp_path: Path) -> None:
    changes = {"openmq_heartbeat_interval_s": 4, "openmq_monitor_threshold": 5}
    hosts = rendered(tmp_path, "enhanced", **changes)
    found = properties(hosts["openmq3"]["files"]["cluster"])
    expected = {
        "imq.cluster.ha": "true",
        "imq.cluster.clusterid": "drill",
        "imq.cluster.heartbeat.interval": "4",
        "imq.cluster.heartbeat.threshold": "3",
        "imq.cluster.monitor.interval": "2",
        "imq.cluster.monitor.threshold": "5",
        "imq.persist.store": "jdbc",
        "imq.persist.storecreate.all": "false",
        "imq.persist.jdbc.postgresql.user": "broker",
        "imq.persist.jdbc.postgresql.needpassword": "true",
    }
    assert {name: found.get(name) for name in expected} == expected
    url = found["imq.persist.jdbc.postgresql.opendburl"]
    assert url.startswith("jdbc:postgresql://172.30.50.15:5432,172.30.50.16:5432/broker?targetServerType=primary")
    assert properties(hosts["openmq3"]["files"]["options"])["imq.brokerid"] == "openmq3"
    assert "imq.cluster.brokerlist" not in found
    descriptor = hosts["openmq3"]["variables"]["__openmq_descriptor"]
    assert [(dial["to"], dial["port"]) for dial in descriptor["dials"] if dial["link"] == "heartbeat"] == [
        ("openmq1", 7676),
        ("openmq2", 7676),
    ]
    assert {dial["link"] for dial in descriptor["dials"]} == {"cluster", "heartbeat", "database"}
    assert descriptor["features"] == ["cluster", "database_store", "store_takeover"]


@pytest.mark.parametrize("drills", [True, False])
def test_drills_may_use_and_empty_their_own_topics_alone(tmp_path: Path, drills: bool) -> None:
    host = rendered(tmp_path, "conventional_master", drill_allowed=drills, openmq_topics=["orders"])["openmq1"]
    rules = host["variables"]["__openmq_access_control"]
    assert ("topic.drill.t0.consume.allow.user" in rules) == drills
    assert not any(name.startswith("topic.orders") for name in rules)
    assert ('desttype=t,name="drill.t0"' in host["files"]["access"]) == drills
    assert "orders" not in host["files"]["access"]
    topics = [
        one["name"] for one in host["variables"]["__openmq_descriptor"]["addresses"] if one["routing"] == "multicast"
    ]
    assert topics == ["orders", *(f"drill.t{number}" for number in range(4) if drills)]


def test_no_password_is_where_all_can_read_it(tmp_path: Path) -> None:
    for host in rendered(tmp_path, "enhanced").values():
        passwords = host["variables"]["__openmq_pass_properties"].values()
        open_to_all = host["files"]["cluster"] + host["files"]["options"]
        open_to_all += json.dumps(host["variables"]["__openmq_descriptor"])
        assert all(len(password) >= 32 and password not in open_to_all for password in passwords)


def test_a_wrong_cluster_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="openmq_cluster_master is strange, which is none of the brokers"):
        rendered(tmp_path, "conventional_master", openmq_cluster_master="strange")


def test_who_leaves_is_not_in_the_list_of_brokers_any_more(tmp_path: Path) -> None:
    found = rendered(tmp_path, "conventional_master", openmq_leaving=["openmq3"])["openmq1"]
    assert properties(found["files"]["cluster"])["imq.cluster.brokerlist"] == (
        "mq://172.30.50.21:7676,mq://172.30.50.22:7676"
    )


def test_the_master_cannot_leave(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="openmq_cluster_master is openmq1, which leaves: make another broker"):
        rendered(tmp_path, "conventional_master", openmq_leaving=["openmq1"])


def test_another_master_is_in_the_file_of_all(tmp_path: Path) -> None:
    hosts = rendered(tmp_path, "conventional_master", openmq_cluster_master="openmq2")
    assert {properties(host["files"]["cluster"])["imq.cluster.masterbroker"] for host in hosts.values()} == {
        "mq://172.30.50.22:7676"
    }
