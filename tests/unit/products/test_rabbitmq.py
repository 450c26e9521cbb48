"""RabbitMQ: what its answers and log lines amount to."""

from __future__ import annotations

from typing import Any

import pytest

from brokerdrill.products.health.rabbitmq import state_of, whole
from brokerdrill.products.logs import role_changes
from brokerdrill.products.rabbitmq import RabbitMq, counts_of, led_by

NODES = [{"name": f"rabbit@10.0.0.{number}", "running": True, "partitions": []} for number in (1, 2, 3)]
MEMBERS = [str(node["name"]) for node in NODES]


@pytest.mark.parametrize(("status", "role"), [(200, "active"), (503, "starting")])
def test_an_answer_becomes_a_role(status: int, role: str) -> None:
    assert state_of(status, NODES, MEMBERS[0]) == role


def test_a_broker_that_runs_apart_from_others_is_not_in_sync() -> None:
    apart = [*NODES[:2], {**NODES[2], "partitions": MEMBERS[:2]}]
    assert [state_of(200, apart, name) for name in MEMBERS] == ["active", "active", "syncing"]
    assert state_of(200, [], MEMBERS[0]) == "active"


@pytest.mark.parametrize(
    ("nodes", "complete"),
    [
        (NODES, True),
        (NODES[:2], False),
        ([*NODES[:2], {**NODES[2], "running": False}], False),
        ([*NODES[:2], {**NODES[2], "partitions": [MEMBERS[0]]}], False),
        ([*NODES, {"name": "rabbit@10.0.0.4", "running": False}], True),
        ([], False),
    ],
)
def test_a_cluster_is_whole_when_all_members_run_and_see_each_other(
    nodes: list[dict[str, Any]], complete: bool
) -> None:
    assert whole(nodes, MEMBERS) is complete


def test_what_is_handed_out_is_counted_once() -> None:
    queue = {"messages": 5, "messages_unacknowledged": 2, "message_stats": {"publish": 9}}
    counts = counts_of(queue)
    assert (counts.messages, counts.delivering, counts.scheduled, counts.added) == (3, 2, 0, 9)
    assert not counts_of({"messages": 2, "messages_unacknowledged": 2}).empty
    assert counts_of({"messages": 0, "messages_unacknowledged": 0}).empty


def test_a_queue_is_counted_where_it_is_led() -> None:
    assert led_by({"node": MEMBERS[0], "leader": MEMBERS[1]}) == MEMBERS[1]
    assert led_by({"node": MEMBERS[0]}) == MEMBERS[0]


LOG = [
    (1, " Starting RabbitMQ 3.10.8 on Erlang 25.2.3 [jit]"),
    (2, "2026-11-23 08:32:11.551438+00:00 [info] <0.583.0> Server startup complete; 3 plugins started."),
    (3, "2026-11-23 08:43:22.067118+00:00 [info] <0.979.0> queue 'drill.DLQ' in vhost '/': Leader monitor down"),
    (4, "rabbitmq-server.service: Main process exited, code=killed, status=9/KILL"),
    (5, "rabbitmq-server.service: Failed with result 'signal'."),
]


def test_the_log_of_a_start_and_a_kill_gives_its_roles_in_order() -> None:
    changes = [(change.t_ns, change.role) for change in role_changes(LOG, RabbitMq().log_reader)]
    assert changes == [(1, "starting"), (2, "active"), (4, "down")]
