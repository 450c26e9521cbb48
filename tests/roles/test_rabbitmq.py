"""What the role rabbitmq renders, and what it refuses."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.brokerdrill.ha.plugins.filter import rabbitmq as filters

from tests.roles.conftest import render_all

HOSTS = """
all:
  children:
    rabbitmq:
      hosts:
        rabbit1: {ansible_host: 172.30.60.21}
        rabbit2: {ansible_host: 172.30.60.22}
        rabbit3: {ansible_host: 172.30.60.23}
        far1: {ansible_host: 172.30.60.24, rabbitmq_cluster: far}
"""
FILES = {"conf": "rabbitmq.conf.j2", "env": "rabbitmq-env.conf.j2"}
VARIABLES = ["__rabbitmq_descriptor", "__rabbitmq_users", "__rabbitmq_queues"]


def rendered(work: Path, **extra: Any) -> dict[str, dict[str, Any]]:
    inventory = work / "inventory"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(HOSTS)
    return render_all(work, "rabbitmq", "rabbitmq", FILES, VARIABLES, inventory=inventory, **extra)


def settings(text: str) -> dict[str, str]:
    pairs = (line.partition(" = ") for line in text.splitlines() if " = " in line)
    return {name: value for name, _, value in pairs}


def nodes(text: str) -> list[str]:
    return [value for name, value in settings(text).items() if name.startswith("cluster_formation.classic_config")]


def test_a_broker_finds_those_of_its_own_cluster(tmp_path: Path) -> None:
    hosts = rendered(tmp_path, drill_allowed=True)
    assert nodes(hosts["rabbit2"]["files"]["conf"]) == [f"rabbit@172.30.60.2{number}" for number in (1, 2, 3)]
    assert nodes(hosts["far1"]["files"]["conf"]) == ["rabbit@172.30.60.24"]
    near, far = (hosts[name]["variables"]["__rabbitmq_descriptor"] for name in ("rabbit1", "far1"))
    assert {dial["to"] for dial in near["dials"]} == {"rabbit2", "rabbit3"}
    assert far["dials"] == []
    assert near["features"] == ["cluster", "pause_minority", "quorum_queues"]
    assert far["features"] == ["quorum_queues"]
    assert "NODENAME=rabbit@172.30.60.21\nUSE_LONGNAME=true\n" in hosts["rabbit1"]["files"]["env"]


def test_tls_is_all_there_is_unless_told_otherwise(tmp_path: Path) -> None:
    host = rendered(tmp_path)["rabbit1"]
    found = settings(host["files"]["conf"])
    assert (found["listeners.tcp"], found["listeners.ssl.1"]) == ("none", "172.30.60.21:5671")
    assert found["auth_mechanisms.1"] == "PLAIN" and "auth_mechanisms.2" not in found
    listeners = host["variables"]["__rabbitmq_descriptor"]["listeners"]
    assert [(one["port"], one["tls"]) for one in listeners] == [(5671, True), (15671, True)]


def test_clients_with_certificates_are_asked_for_them(tmp_path: Path) -> None:
    found = settings(rendered(tmp_path, rabbitmq_client_certificates=True)["rabbit1"]["files"]["conf"])
    assert found["ssl_options.verify"] == "verify_peer"
    assert found["ssl_options.fail_if_no_peer_cert"] == "true"
    assert found["auth_mechanisms.2"] == "EXTERNAL"


def test_without_tls_it_is_one_plain_port(tmp_path: Path) -> None:
    found = settings(rendered(tmp_path, rabbitmq_tls=False)["rabbit1"]["files"]["conf"])
    assert found["listeners.tcp.1"] == "172.30.60.21:5672"
    assert not [name for name in found if name.startswith(("listeners.ssl", "ssl_options"))]


def test_only_a_drilled_broker_has_the_drills_account_and_queues(tmp_path: Path) -> None:
    host = rendered(tmp_path)["rabbit1"]["variables"]
    assert [user["name"] for user in host["__rabbitmq_users"]] == ["admin", "monitor"]
    assert host["__rabbitmq_queues"] == [] and host["__rabbitmq_descriptor"]["addresses"] == []


def test_the_drills_account_reaches_nothing_but_its_queues(tmp_path: Path) -> None:
    host = rendered(tmp_path, drill_allowed=True)["rabbit1"]["variables"]
    (drill,) = [user for user in host["__rabbitmq_users"] if user["name"] == "drill"]
    assert drill["permissions"] == {
        "/": {
            "configure": "^$",
            "write": "^amq[.]default$",
            "read": r"^(drill\.q0|drill\.q1|drill\.q2|drill\.q3|drill\.DLQ)$",
        }
    }
    addresses = {item["name"]: item.get("dead_letter") for item in host["__rabbitmq_descriptor"]["addresses"]}
    assert addresses == {f"drill.q{number}": "drill.DLQ" for number in range(4)} | {"drill.DLQ": None}


MIRRORS = {"name": "mirrors", "pattern": "^drill", "definition": {"ha-mode": "all"}}


def test_policies_are_loaded_and_tell_of_mirrors(tmp_path: Path) -> None:
    (policy,) = filters.rabbitmq_definitions([], ["/"], [MIRRORS])["policies"]
    assert policy == {"vhost": "/", "apply-to": "queues", "priority": 0, **MIRRORS}
    far = rendered(tmp_path, drill_allowed=True, rabbitmq_drill_queue_type="classic", rabbitmq_policies=[MIRRORS])
    assert far["far1"]["variables"]["__rabbitmq_descriptor"]["features"] == ["classic_queues", "mirrored_queues"]


@pytest.mark.parametrize(
    ("policy", "queue", "found"),
    [
        (MIRRORS, {"name": "drill.q0", "type": "classic"}, ["classic_queues", "mirrored_queues"]),
        (MIRRORS, {"name": "drill.q0"}, ["quorum_queues"]),
        (MIRRORS, {"name": "my.drill", "type": "classic"}, ["classic_queues"]),
        (MIRRORS, {"name": "drill.q0", "type": "classic", "vhost": "x"}, ["classic_queues"]),
        (
            {**MIRRORS, "definition": {"queue-mode": "lazy"}},
            {"name": "drill.q0", "type": "classic"},
            ["classic_queues"],
        ),
    ],
)
def test_which_queues_have_mirrors(policy: dict[str, Any], queue: dict[str, Any], found: list[str]) -> None:
    assert filters.rabbitmq_queue_features([queue], [policy]) == found


def test_no_password_is_in_what_the_brokers_load() -> None:
    users = [{"name": "a", "password": "secret", "tags": ["monitoring"], "permissions": {"/": {"read": ".*"}}}]
    found = filters.rabbitmq_definitions(users, ["/"])
    assert "secret" not in json.dumps(found)
    assert found == filters.rabbitmq_definitions(users, ["/"]), "the same every time"
    raw = base64.b64decode(found["users"][0]["password_hash"])
    assert raw[4:] == hashlib.sha256(raw[:4] + b"secret").digest()
    assert found["permissions"] == [{"user": "a", "vhost": "/", "read": ".*"}]


def test_queues_are_declared_with_copies_and_spread() -> None:
    quorum, classic = filters.rabbitmq_declarations(
        [{"name": "q", "dead_letter": "d"}, {"name": "c", "type": "classic", "arguments": {"x-max-length": 5}}], 3
    )
    assert quorum["arguments"] == {
        "x-queue-type": "quorum",
        "x-quorum-initial-group-size": 3,
        "x-queue-leader-locator": "balanced",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "d",
    }
    assert classic["arguments"] == {
        "x-queue-type": "classic",
        "x-queue-master-locator": "min-masters",
        "x-max-length": 5,
    }
    assert filters.rabbitmq_declarations([{"name": "q"}], 7)[0]["arguments"]["x-quorum-initial-group-size"] == 5


def cluster(size: int, **last: Any) -> dict[str, dict[str, Any]]:
    members = {
        f"r{number}": {"partition_handling": "pause_minority", "net_ticktime_s": 60} for number in range(1, size + 1)
    }
    members[f"r{size}"] |= last
    return members


@pytest.mark.parametrize(
    ("members", "queues", "changes", "words"),
    [
        (cluster(3), [{"name": "q"}], {}, ""),
        (cluster(1), [{"name": "q"}], {}, ""),
        (cluster(4), [], {}, "pause_minority with 4 brokers"),
        (cluster(4), [], {"allow": ["even_cluster"]}, ""),
        (
            cluster(4, partition_handling="ignore"),
            [],
            {"allow": ["even_cluster"]},
            "differ in rabbitmq_partition_handling",
        ),
        (cluster(3, net_ticktime_s=5), [], {}, "differ in rabbitmq_net_ticktime_s"),
        (cluster(2), [{"name": "q"}], {"allow": ["even_cluster"]}, "quorum queues (q) in a cluster of 2"),
        (cluster(2), [{"name": "q", "type": "classic"}], {"allow": ["even_cluster"]}, ""),
        (cluster(3), [{"name": "q"}, {"name": "q"}], {}, "two queues of vhost / are called q"),
        (cluster(3), [{"name": "q", "vhost": "x"}], {}, "vhost x, which is none of /"),
        (cluster(3), [], {"policies": [{**MIRRORS, "vhost": "x"}]}, "policy mirrors is of vhost x, which is none of /"),
        (cluster(3), [], {"memory": "40"}, "no part of the host's memory"),
        (cluster(3), [], {"allow": ["all"]}, "all is no rule"),
    ],
)
def test_preflight(members: dict[str, Any], queues: list[Any], changes: dict[str, Any], words: str) -> None:
    config = {
        "members": members, "queues": queues, "vhosts": ["/"], "policies": [], "users": [], "more": {},
        "memory": "0.4", "allow": [], **changes
    }  # fmt: skip
    problems = filters.rabbitmq_problems(config)
    assert len(problems) == bool(words)
    assert words in "".join(problems)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policies": [{"name": "p", "pattern": "a"}, {"name": "p", "pattern": "b"}]},
         "policy p of vhost / is there 2 times"),
        ({"vhosts": ["/", "b"], "policies": [{"name": "p", "pattern": "a", "vhost": vhost} for vhost in "/b"]}, ""),
        ({"users": [{"name": "bob"}, {"name": "amy"}, {"name": "bob"}]}, "user bob is there 2 times"),
        ({"vhosts": ["/", "b", "b"]}, "vhost b is there 2 times"),
        ({"users": [{"name": "bob", "permissions": {"/": {}, "nowhere": {}}}]},
         "a permission of user bob is of vhost nowhere, which is none of /"),
        ({"policies": [{"name": "p", "pattern": "a", "vhost": "nowhere"}]},
         "policy p is of vhost nowhere, which is none of /"),
    ],
)  # fmt: skip
def test_definitions_that_contradict_themselves_are_refused(changes: dict[str, Any], words: str) -> None:
    config = {
        "members": {}, "queues": [], "vhosts": ["/"], "policies": [], "users": [], "more": {},
        "memory": "0.4", "allow": [], **changes,
    }  # fmt: skip
    assert filters.rabbitmq_problems(config) == ([words] if words else [])


@pytest.mark.parametrize(
    ("pattern", "mirrored"),
    [("(?<team>orders)[.]", True), ("^(?|a|b)", False), ("^orders", True), (r"\Aorders\R?", False), ("(", False)],
)
def test_a_pattern_of_pcre_is_no_traceback(pattern: str, mirrored: bool) -> None:
    policies = [{"name": "p", "pattern": pattern, "definition": {"ha-mode": "all"}}]
    found = filters.rabbitmq_queue_features([{"name": "orders.q", "type": "classic"}], policies)
    assert ("mirrored_queues" in found) is mirrored


MOVING = {
    "rabbit1": {"ansible_host": "172.30.60.21"},
    "rabbit2": {"ansible_host": "172.30.60.22"},
    "far2": {"ansible_host": "172.30.60.25", "rabbitmq_cluster": "far"},
    "far1": {"rabbitmq_address": "fd00::4", "rabbitmq_port": 5673, "rabbitmq_cluster": "far"},
}


def test_one_broker_of_each_other_cluster_is_asked_for_what_it_has() -> None:
    assert filters.rabbitmq_other_clusters([*MOVING], MOVING, "far1") == ["rabbit1"]
    assert filters.rabbitmq_other_clusters([*MOVING], MOVING, "rabbit2") == ["far1"]


def test_what_moves_is_what_has_messages_and_needs_a_queue() -> None:
    def listed(host: str, **messages: int) -> dict[str, str]:
        rows = [{"name": name, "messages": number} for name, number in messages.items()]
        return {"item": host, "stdout": json.dumps(rows)}

    sources = [listed("rabbit1", a=2, b=0, c=1), listed("rabbit9", a=0)]
    found = filters.rabbitmq_left_behind(sources, listed("far1", a=0, b=0))
    assert found == {
        "moving": [{"host": "rabbit1", "queue": "a"}, {"host": "rabbit1", "queue": "c"}],
        "missing": ["c"],
    }


@pytest.mark.parametrize(
    ("tls", "near", "far"),
    [
        (False, "amqp://admin:p%40ss%2F@172.30.60.21:5672/%2F", "amqp://admin:p%40ss%2F@[fd00::4]:5673/%2F"),
        (
            True,
            "amqps://admin:p%40ss%2F@172.30.60.21:5672/%2F?verify=verify_peer&cacertfile=/ca.pem",
            "amqps://admin:p%40ss%2F@[fd00::4]:5673/%2F?verify=verify_peer&cacertfile=/ca.pem",
        ),
    ],
)
def test_how_a_shovel_connects(tls: bool, near: str, far: str) -> None:
    config = {"port": 5672, "tls": tls, "ca": "/ca.pem", "vhost": "/", "user": "admin", "password": "p@ss/"}
    assert filters.rabbitmq_uris(["rabbit1", "far1"], MOVING, config) == {"rabbit1": near, "far1": far}
