"""What a deployment left of RabbitMQ, seen from inside after a drill."""

from __future__ import annotations

import json
from typing import Any

from conftest import Instance, listening

CTL = "rabbitmqctl --quiet --formatter json"


def ask(host: Any, what: str) -> Any:
    return json.loads(host.check_output(f"{CTL} {what}"))


def test_the_cluster_is_whole(instance: Instance, host: Any) -> None:
    status = ask(host, "cluster_status")
    members = instance["management"]["members"]
    assert sorted(status["running_nodes"]) == members
    assert sorted(status["disk_nodes"]) == members
    assert not status["partitions"]


def test_every_quorum_queue_has_a_copy_on_each_broker(instance: Instance, host: Any) -> None:
    queues = {queue["name"]: queue for queue in ask(host, "list_queues name type members")}
    assert set(queues) >= {address["name"] for address in instance["addresses"]}
    for queue in queues.values():
        if queue["type"] == "quorum":
            assert sorted(queue["members"]) == instance["management"]["members"]


def test_nobody_has_a_well_known_password(host: Any, instance: Instance) -> None:
    users = {user["user"] for user in ask(host, "list_users")}
    assert "guest" not in users and "drill" in users


def test_management_is_reached_with_tls_only_and_clients_in_one_way(instance: Instance, host: Any) -> None:
    tls = {listener["name"]: listener["tls"] for listener in instance["listeners"]}
    assert tls["management"]
    open_ports = {place.rpartition(":")[2] for place in listening(host)}
    assert open_ports.isdisjoint({"15672", "5672" if tls["amqp"] else "5671"})


def test_what_holds_secrets_is_private(instance: Instance, host: Any) -> None:
    cookie = host.file(f"{instance['data_dir']}/.erlang.cookie")
    assert (cookie.user, cookie.mode) == ("rabbitmq", 0o400)
    assert cookie.content_string not in host.check_output("ps axww -o args")
    assert host.file(f"{instance['config_dir']}/definitions.json").mode == 0o640
