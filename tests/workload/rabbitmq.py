"""A real RabbitMQ of the distribution's package for clients of AMQP 0-9-1, and what their tests ask of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pika

from brokerdrill.workload import header
from brokerdrill.workload.amqp091 import Amqp091
from brokerdrill.workload.client import Delivery, Message
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
from tests.roles.conftest import ROOT
from tests.workload.standalone_broker import QUEUES
from tests.workload.worker_process import WorkerProcess, merged, rows_of

sys.path.append(str(ROOT / "router" / "tests"))

from router_support import PASSWORD, USER, Broker

__all__ = ["WAIT_S", "Broker", "config_for", "declare", "message", "settled", "taken"]

WAIT_S = 10.0


def declare(broker: Broker, *queues: str, make: bool = True, **arguments: Any) -> None:
    """Make the queues anew, with these arguments, or only take them away."""
    place = pika.ConnectionParameters("127.0.0.1", broker.port, "/", pika.PlainCredentials(USER, PASSWORD))
    connection = pika.BlockingConnection(place)
    channel = connection.channel()
    for queue in queues:
        channel.queue_delete(queue)
        if make:
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum", **arguments})
    connection.close()


def config_for(broker: Broker, **changes: Any) -> WorkerConfig:
    values: dict[str, Any] = {
        "run_id": "test",
        "worker": "w0",
        "clock": "w0",
        "client": "amqp091",
        "endpoints": (BrokerEndpoint("127.0.0.1", broker.port, "r1", "h1"),),
        "credentials": ClientAccount(USER, PASSWORD),
        "addresses": (QUEUES[0],),
        "transaction": 0,
    }
    return WorkerConfig(**{**values, **changes})


def message(number: int) -> Message:
    body = b"body %d" % number
    return Message(f"m-{number}", number, "k" if number % 2 else None, body, header.sha(body))


def taken(client: Amqp091) -> Delivery:
    found = client.receive(WAIT_S)
    assert found is not None
    return found


def settled(worker: WorkerProcess, spool: Path) -> list[dict[str, Any]]:
    """Stop the producers, wait until all that was confirmed has come, stop; return the merged operations."""
    worker.tell("stop_producers")
    worker.until("producers_stopped")
    worker.until_status(lambda _: not missing(merged(rows_of(spool))))
    worker.finish()
    return merged(rows_of(spool))


def missing(ops: list[dict[str, Any]]) -> set[str]:
    """Messages that were confirmed and have not come."""
    come = {op["message_id"] for op in ops if op["op"] == "receive" and op["outcome"] == "ok"}
    return {op["message_id"] for op in ops if op["op"] == "send" and op["outcome"] == "ok"} - come
