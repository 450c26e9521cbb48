"""JMS producers with several messages in flight, in worker processes, against a real Artemis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pausing import pause
from tests.workload.conftest import config_for, specs
from tests.workload.in_flight import most_in_flight, unanswered
from tests.workload.standalone_broker import Broker
from tests.workload.worker_process import WorkerProcess, merged, rows_of

StartWorker = Callable[..., WorkerProcess]

protocols = pytest.mark.parametrize("protocol", ["core", "amqp"])


@protocols
def test_a_window_is_full_and_in_order(broker: Broker, tmp_path: Path, worker: StartWorker, protocol: str) -> None:
    spool = tmp_path / "w0.spool"
    load = {"producers": specs("producer", 1), "consumers": specs("consumer", 1), "transaction": 0}
    one = worker(config_for(broker, client=protocol, spool=str(spool), window=32, **load))
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 100)
    one.tell("stop_producers")
    one.until("producers_stopped")
    one.until_status(lambda status: status["received"] >= 50)
    one.finish()
    ops = merged(rows_of(spool))
    sends = [op for op in ops if op["op"] == "send"]
    assert {op["outcome"] for op in sends} == {"ok"}
    assert 1 < most_in_flight(sends) <= 32
    seqs = [op["producer_seq"] for op in ops if op["op"] == "receive" and op["outcome"] == "ok"]
    assert seqs == sorted(seqs)


@pytest.mark.long
@protocols
def test_a_lost_connection_leaves_all_in_flight_in_doubt(
    broker: Broker, tmp_path: Path, worker: StartWorker, protocol: str
) -> None:
    spool = tmp_path / "w0.spool"
    # So few and small that a CORE producer's first credit (64 KiB) does not end within the window: it is none of ours.
    load = {"producers": specs("producer", 1), "consumers": specs("consumer", 1), "payload_bytes": (1,), "rate": 20.0}
    one = worker(
        config_for(broker, client=protocol, spool=str(spool), transaction=0, window=50, call_timeout_ms=20_000, **load)
    )
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 10)
    assert broker.running()
    pause(broker.pid)
    one.until_status(lambda _: unanswered(merged(rows_of(spool))) == 50)
    broker.kill()
    broker.start()
    before = one.status["sent_ok"]
    one.until_status(lambda status: status["sent_ok"] >= before + 60)
    one.tell("stop_producers")
    one.until("producers_stopped")
    one.finish()
    ops = merged(rows_of(spool))
    sends = [op for op in ops if op["op"] == "send"]
    assert most_in_flight(op for op in sends if op["session"] == 0) == 50
    doubtful = [op["message_id"] for op in sends if op["attempt"] == 0 and op["outcome"] == "unknown"]
    assert len(doubtful) == 50
    # The first of them may meet the end of the connection once more.
    again = [op for op in sends if op["attempt"] > 0 and op["outcome"] == "ok"]
    assert sorted(op["message_id"] for op in again) == sorted(doubtful)
    assert [op["producer_seq"] for op in again] == sorted(op["producer_seq"] for op in again), "in their order"
    numbers = sorted(op["op_id"] for op in ops if op["client"] == "producer-0")
    assert numbers == list(range(len(numbers)))
