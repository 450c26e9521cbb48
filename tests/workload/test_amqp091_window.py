"""AMQP 0-9-1 producers with several messages in flight, in worker processes, against a real RabbitMQ."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerdrill.workload.amqp091 import Amqp091
from brokerdrill.workload.client import Answer, ClientError
from tests.workload.conftest import QUEUES, specs
from tests.workload.in_flight import most_in_flight, unanswered
from tests.workload.rabbitmq import WAIT_S, Broker, config_for, declare, message, settled
from tests.workload.worker_process import WorkerProcess, merged, rows_of

StartWorker = Callable[..., WorkerProcess]


def all_answers(client: Amqp091, count: int) -> list[Answer]:
    found: list[Answer] = []
    while len(found) < count:
        new = client.answers(WAIT_S)
        assert new, f"{len(found)} answers"
        found += new
    return found


def test_each_message_has_its_own_answer(rabbit: Broker) -> None:
    client = Amqp091(config_for(rabbit, window=100), "producer")
    client.open(QUEUES[:1], (), transacted=False)
    for number in range(100):
        to = "no.such.queue" if number == 50 else QUEUES[0]
        assert client.hand_over(to, message(number), 0).result == "ok"
    answers = {answer.message_id: answer for answer in all_answers(client, 100)}
    assert answers.pop("m-50").outcome == ("fail", "returned: 312 NO_ROUTE", True)
    assert {answer.outcome.result for answer in answers.values()} == {"ok"} and len(answers) == 99
    assert client.answers(0.1) == []
    client.close()
    with pytest.raises(ClientError, match="not connected"):
        client.answers(0.1)


@pytest.mark.long
def test_what_a_full_queue_refuses_is_in_doubt_and_sent_again(
    rabbit: Broker, tmp_path: Path, worker: StartWorker
) -> None:
    declare(rabbit, QUEUES[0], **{"x-max-length": 20, "x-overflow": "reject-publish"})
    spool = tmp_path / "w0.spool"
    load = {"producers": specs("producer", 1), "consumers": specs("consumer", 1), "backlog": True}
    one = worker(config_for(rabbit, spool=str(spool), window=50, **load))
    one.begin()
    one.until_status(lambda status: status["sent_unknown"] >= 10)
    one.tell("start_consumers")
    one.until_status(lambda status: status["sent_ok"] >= 200)
    ops = settled(one, spool)
    sends = [op for op in ops if op["op"] == "send"]
    nacked = {op["message_id"] for op in sends if op.get("error") == "nack"}
    assert len(nacked) >= 10
    assert most_in_flight(sends) == 50
    assert {op["message_id"] for op in sends if op["outcome"] == "ok" and op["attempt"] > 0} >= nacked


@pytest.mark.long
def test_a_lost_connection_leaves_all_in_flight_in_doubt(rabbit: Broker, tmp_path: Path, worker: StartWorker) -> None:
    spool = tmp_path / "w0.spool"
    load = {"producers": specs("producer", 1), "consumers": specs("consumer", 1), "rate": 500.0}
    one = worker(config_for(rabbit, spool=str(spool), window=200, **load))
    one.begin()
    one.until_status(lambda status: status["received"] >= 100)
    assert rabbit.process is not None
    os.killpg(rabbit.process.pid, signal.SIGSTOP)
    one.until_status(lambda _: unanswered(merged(rows_of(spool))) == 200)
    rabbit.kill()
    rabbit.start()
    behind = one.status["sent_ok"]
    one.until_status(lambda status: status["sent_ok"] >= behind + 500)
    ops = settled(one, spool)
    sends = [op for op in ops if op["op"] == "send"]
    first = [op for op in sends if op["session"] == 0]
    doubtful = [op["message_id"] for op in first if op["outcome"] == "unknown"]
    assert len(doubtful) == 200 == most_in_flight(first)
    again = [op for op in sends if op["session"] == 1][:200]
    assert [op["message_id"] for op in again] == doubtful, "in their order, before anything new"
    assert [op["attempt"] for op in again] == [1] * 200
    closed = [op for op in ops if op["op"] == "connect" and op["client"] == "producer-0" and op["session"] == 1]
    assert all(op["end_ns"] < closed[0]["start_ns"] for op in first), "before the next session begins"
    numbers = sorted(op["op_id"] for op in ops if op["client"] == "producer-0")
    assert numbers == list(range(len(numbers)))


def test_a_window_is_full(rabbit: Broker, tmp_path: Path, worker: StartWorker) -> None:
    spool = tmp_path / "w0.spool"
    load = {"producers": specs("producer", 1), "consumers": specs("consumer", 1)}
    one = worker(config_for(rabbit, spool=str(spool), window=32, **load))
    one.begin()
    one.until_status(lambda status: status["received"] >= 1000)
    ops = settled(one, spool)
    sends = [op for op in ops if op["op"] == "send"]
    assert {op["outcome"] for op in sends} == {"ok"}
    assert most_in_flight(sends) == 32
    seqs = [op["producer_seq"] for op in ops if op["op"] == "receive" and op["outcome"] == "ok"]
    assert seqs == sorted(seqs)
    assert len(merged(rows_of(spool))) == len(ops)
