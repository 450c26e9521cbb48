"""AMQP 0-9-1 clients, alone and in worker processes, against a real RabbitMQ of the distribution's package."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pika.adapters.select_connection import SelectConnection
from pika.exceptions import ConnectionWrongStateError

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.amqp091 import PREFETCH, Amqp091, place
from brokerdrill.workload.client import ClientError
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
from tests.workload.conftest import QUEUES, specs
from tests.workload.rabbitmq import WAIT_S, Broker, config_for, declare, message, settled, taken
from tests.workload.worker_process import WorkerProcess, merged, rows_of

StartWorker = Callable[..., WorkerProcess]


@pytest.mark.long
def test_who_waits_for_its_next_message_answers_heartbeats(rabbit: Broker, tmp_path: Path, worker: StartWorker) -> None:
    """A message in 20 s, five heartbeats: the broker drops who is silent for two."""
    spool = tmp_path / "w0.spool"
    one = worker(config_for(rabbit, producers=specs("producer", 1), rate=0.05, spool=str(spool)))
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 2)
    one.tell("stop_producers")
    one.until("producers_stopped")
    one.finish()
    ops = merged(rows_of(spool))
    assert [op["outcome"] for op in ops if op["op"] == "send"] == ["ok", "ok"]
    assert [op["session"] for op in ops if op["op"] == "connect"] == [0]


def test_transactions_are_refused() -> None:
    with pytest.raises(InfrastructureError, match=r"load\.transaction"):
        Amqp091.start_process(WorkerConfig("r", "w", "w", "amqp091", (), ClientAccount("", ""), ("q",), transaction=1))


def test_what_is_confirmed_comes_as_it_was_sent(rabbit: Broker) -> None:
    client = Amqp091(config_for(rabbit), "both")
    client.open(QUEUES[:1], QUEUES[:1], transacted=False)
    for number in range(3):
        assert client.send(QUEUES[0], message(number), 0).result == "ok"
    for number in range(3):
        found = taken(client)
        sent = message(number)
        assert (found.message_id, found.seq, found.key, found.sha) == (sent.message_id, number, sent.key, sent.sha)
        assert client.ack(found).result == "unknown"
    assert client.receive(0.1) is None
    assert client.close().result == "ok"
    assert client.close().result == "ok"


def test_a_message_that_no_queue_takes_certainly_failed(rabbit: Broker) -> None:
    client = Amqp091(config_for(rabbit), "producer")
    client.open(["no.such.queue"], (), transacted=False)
    outcome = client.send("no.such.queue", message(0), 0)
    assert (outcome.result, outcome.error, outcome.usable) == ("fail", "returned: 312 NO_ROUTE", True)
    assert client.send(QUEUES[0], message(1), 0).result == "ok"
    client.close()


def test_without_confirms_what_is_written_counts_as_sent(rabbit: Broker) -> None:
    client = Amqp091(config_for(rabbit, confirms=False), "producer")
    client.open(["no.such.queue"], (), transacted=False)
    assert client.send("no.such.queue", message(0), 0).result == "ok"
    assert client.send(QUEUES[0], message(1), 0).result == "ok"
    # Before the producer does anything more: a close would write what is left.
    other = Amqp091(config_for(rabbit), "consumer")
    other.open((), QUEUES[:1], transacted=False)
    found = taken(other)
    assert found.message_id == message(1).message_id
    other.ack(found)
    other.close()
    client.close()


def test_a_queue_with_a_full_prefetch_proves_nothing_until_it_is_acknowledged(rabbit: Broker) -> None:
    sender = Amqp091(config_for(rabbit), "producer")
    sender.open(QUEUES[:1], (), transacted=False)
    for number in range(2 * PREFETCH):
        assert sender.send(QUEUES[0], message(number), 0).result == "ok"
    sender.close()
    client = Amqp091(config_for(rabbit), "consumer")
    client.open((), QUEUES[:1], transacted=False)
    first = [taken(client) for _ in range(PREFETCH)]
    assert client.receive(1.0) is None
    assert not any(found.proves for found in first)
    for found in first:
        client.ack(found)
    assert [taken(client).proves for _ in range(PREFETCH)] == [1] * PREFETCH
    client.close()
    again = Amqp091(config_for(rabbit), "consumer")
    again.open((), QUEUES[:1], transacted=False)
    second = [taken(again) for _ in range(PREFETCH)]
    assert [found.seq for found in second] == list(range(PREFETCH, 2 * PREFETCH))
    assert all(found.redelivered for found in second)
    again.close()


def test_a_browser_takes_nothing(rabbit: Broker) -> None:
    client = Amqp091(config_for(rabbit), "browser")
    client.open(QUEUES[:1], (), transacted=False)
    for number in range(3):
        client.send(QUEUES[0], message(number), 0)
    assert [found.message_id for found in client.browse(QUEUES[0])] == ["m-0", "m-1", "m-2"]
    client.close()
    client.open((), QUEUES[:1], transacted=False)
    assert taken(client).message_id == "m-0"
    client.close()


def test_a_consumer_of_a_queue_that_goes_is_told(rabbit: Broker) -> None:
    client = Amqp091(config_for(rabbit), "consumer")
    client.open((), QUEUES[:1], transacted=False)
    declare(rabbit, QUEUES[0], make=False)
    with pytest.raises(ClientError, match="cancelled"):
        client.receive(WAIT_S)
    assert client.close().result == "unknown"


def test_nobody_there_is_a_client_error(rabbit: Broker) -> None:
    nowhere = BrokerEndpoint("127.0.0.1", 9, "nobody", "h2")
    client = Amqp091(config_for(rabbit, endpoints=(nowhere,)), "producer")
    with pytest.raises(ClientError, match="nobody: AMQPConnect"):
        client.open(QUEUES[:1], (), transacted=False)
    assert [place(name) for name in ("producer-0", "consumer-3", "consumer-3.1", "worker-0-browser")] == [0, 3, 3, 0]
    both = config_for(rabbit, endpoints=(nowhere, config_for(rabbit).endpoints[0]))
    reached = Amqp091(both, "producer")
    reached.open(QUEUES[:1], (), transacted=False)
    found = reached.served_by()
    assert found is not None and found.instance == "r1"
    reached.close()


def test_a_peer_that_is_gone_before_it_was_looked_at_is_a_client_error(
    rabbit: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: socket.socket) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    client = Amqp091(config_for(rabbit), "producer")
    monkeypatch.setattr(socket.socket, "getpeername", gone)
    with pytest.raises(ClientError, match="r1: ValueError: Expected connected socket"):
        client.open(QUEUES[:1], (), transacted=False)


def test_a_connection_that_is_closed_as_soon_as_it_is_open_is_a_client_error(
    rabbit: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: Any, **__: Any) -> None:
        raise ConnectionWrongStateError("Channel allocation requires an open connection")

    client = Amqp091(config_for(rabbit), "producer")
    monkeypatch.setattr(SelectConnection, "channel", closed)
    with pytest.raises(ClientError, match="r1: ConnectionWrongStateError"):
        client.open(QUEUES[:1], (), transacted=False)


@pytest.mark.long
def test_broker_killed_under_load(rabbit: Broker, tmp_path: Path, worker: StartWorker) -> None:
    spool = tmp_path / "w0.spool"
    load = {"producers": specs("producer", 2), "consumers": specs("consumer", 2), "rate": 100.0}
    one = worker(config_for(rabbit, spool=str(spool), resend=False, **load))
    one.begin()
    one.until_status(lambda status: status["received"] >= 100)
    rabbit.kill()
    rabbit.start()
    behind = one.status["sent_ok"]
    one.until_status(lambda status: status["sent_ok"] >= behind + 100)
    ops = settled(one, spool)
    assert {op["attempt"] for op in ops if op["op"] == "send" and op["outcome"] != "fail"} >= {0}
    assert not [op for op in ops if op["op"] == "send" and op["attempt"] > 0 and op["outcome"] == "unknown"]
    message_of = {op["delivery"]: op["message_id"] for op in ops if op["op"] == "receive" and op["outcome"] == "ok"}
    proven = [message_of[op["delivery"]] for op in ops if op["op"] == "ack" and op["outcome"] == "ok"]
    assert len(proven) >= 100
    assert len(proven) == len(set(proven)), "what is proven to be settled never comes again"
