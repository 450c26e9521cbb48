"""Descriptors of RabbitMQ brokers that this project did not deploy, from what the tools of 3.10.8 print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.describe import rabbitmq
from brokerdrill.describe.found import DescribeOptions, Found, with_drill_addresses
from brokerdrill.inventory.descriptors import parse
from brokerdrill.products.rabbitmq import RabbitDescriptor
from brokerdrill.products.registry import DESCRIPTORS

BROKER, LISTENERS, CLUSTER, QUEUES, POLICIES = rabbitmq.COMMANDS
NONE = DescribeOptions()
WORDS = ("broker", "listeners", "cluster", "queues", "policies")


def found(number: int = 1, **changes: Any) -> Found:
    """What a host of a cluster of two tells; `changes` are what it tells else, by word."""
    node = f"rabbit@mq{number}"
    told: dict[str, Any] = {
        "broker": {"node": node, "result": "ok", "value": [node, 60, "pause_minority", 5000]},
        "listeners": {
            "listeners": [
                {"interface": "[::]", "node": node, "port": 15672, "protocol": "http", "purpose": "HTTP API"},
                {"interface": "[::]", "node": node, "port": 25672, "protocol": "clustering", "purpose": "inter-node"},
                {"interface": "10.0.0.1", "node": node, "port": 5671, "protocol": "amqp/ssl", "purpose": "AMQP"},
            ]
        },
        "cluster": {"disk_nodes": ["rabbit@mq1", "rabbit@mq2"], "running_nodes": [node]},
        "queues": [
            {
                "name": "drill.q0",
                "type": "quorum",
                "arguments": [
                    ["x-dead-letter-exchange", "longstr", ""],
                    ["x-dead-letter-routing-key", "longstr", "drill.DLQ"],
                ],
            },
            {"name": "drill.DLQ", "type": "classic", "arguments": [], "policy": ""},
        ],
        "policies": [],
        **changes,
    }
    texts = {
        command: json.dumps(told[word])
        for command, word in zip(rabbitmq.COMMANDS, WORDS, strict=True)
        if told[word] is not None
    }
    unit = "rabbitmq-server.service"
    return Found(f"mq{number}", f"10.0.0.{number}", unit, 10.0, ("/bin/sh", "rabbitmq-server"), texts)


def test_a_broker_of_a_cluster() -> None:
    (parsed,) = parse("mq1", {"mq1.json": json.dumps(rabbitmq.describe(found(), NONE))}, DESCRIPTORS)
    assert isinstance(parsed, RabbitDescriptor)
    assert parsed.management
    assert (parsed.management.url, parsed.management.node) == ("http://10.0.0.1:15672", "rabbit@mq1")
    assert parsed.management.members == ["rabbit@mq1", "rabbit@mq2"]
    assert [(one.name, str(one), one.protocol, one.tls) for one in parsed.listeners] == [
        ("http", "10.0.0.1:15672", "http", False),
        ("amqp-ssl", "10.0.0.1:5671", "amqp091", True),
    ]
    assert {one.name: one.dead_letter for one in parsed.addresses} == {"drill.q0": "drill.DLQ", "drill.DLQ": None}
    assert (parsed.settings.net_ticktime_ms, parsed.settings.restart_delay_s) == (60_000, 10)
    assert parsed.features == ["cluster", "pause_minority", "classic_queues", "quorum_queues"]


def test_members_know_each_other_by_name() -> None:
    one, two = rabbitmq.joined([rabbitmq.describe(found(number), NONE) for number in (1, 2)])
    assert {(item["to"], item["address"], item["port"]) for item in one["dials"]} == {
        ("mq2", "10.0.0.2", 4369),
        ("mq2", "10.0.0.2", 25672),
    }
    assert {item["to"] for item in two["dials"]} == {"mq1"}
    (alone,) = rabbitmq.joined([rabbitmq.describe(found(), NONE)])
    assert {(item["to"], item["address"]) for item in alone["dials"]} == {("rabbit@mq2", "mq2")}


def test_queues_with_mirrors() -> None:
    queues = [{"name": "drill.q0", "type": "classic", "arguments": [], "policy": "mirrors"}]
    mirrors = {"vhost": "/", "name": "mirrors", "definition": '{"ha-mode":"all"}'}
    lazy = {"vhost": "/", "name": "mirrors", "definition": '{"queue-mode":"lazy"}'}
    for policy, expected in ((mirrors, ["classic_queues", "mirrored_queues"]), (lazy, ["classic_queues"])):
        told = rabbitmq.describe(found(queues=queues, policies=[policy]), NONE)
        assert told["features"] == ["cluster", "pause_minority", *expected]


def test_a_broker_alone() -> None:
    told = rabbitmq.describe(found(cluster={"disk_nodes": ["rabbit@mq1"]}), NONE)
    assert (told["dials"], told["features"]) == ([], ["classic_queues", "quorum_queues"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"broker": None}, "rabbitmq-server.service does not answer /usr/sbin/rabbitmqctl -q eval"),
        ({"listeners": {"listeners": []}}, "has no management: enable its plugin rabbitmq_management"),
        (
            {"listeners": {"listeners": [{"interface": "127.0.0.1", "port": 15672, "protocol": "http"}]}},
            "the console listens on 127.0.0.1 alone",
        ),
        (
            {"listeners": {"listeners": [{"interface": "[::]", "port": 15671, "protocol": "https"}]}},
            "is TLS: say by --ca which file",
        ),
    ],
)
def test_what_cannot_be_known_ends_with_one_sentence(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        rabbitmq.describe(found(**changes), NONE)
    assert str(caught.value).startswith("host mq1: ")
    assert "\n" not in str(caught.value)


def test_an_address_is_a_drills_only_where_that_was_said() -> None:
    described = rabbitmq.describe(found(), NONE)
    for names in ((), ("drill.q0",)):
        marked = with_drill_addresses(described, names)
        (parsed,) = parse("mq1", {"mq1.json": json.dumps(marked)}, DESCRIPTORS)
        assert [one.name for one in parsed.addresses if one.drill] == [*names]
    with pytest.raises(UsageError, match=r"mq1 has no address drill\.q9; make it first"):
        with_drill_addresses(described, ["drill.q0", "drill.q9"])
