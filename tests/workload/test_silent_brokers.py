"""What clients say of sends and acknowledgements outside transactions while the broker stands still, which answers
nobody: not that they are done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
from tests.pausing import pause
from tests.workload import standalone_classic, standalone_openmq
from tests.workload.conftest import config_for, specs
from tests.workload.standalone_broker import QUEUES, Broker
from tests.workload.worker_process import WorkerProcess, merged, rows_of

# About one a second: longer than a call may take, shorter than it takes some libraries to give a silent broker up.
LOOKS = 8
BACKLOG = 2000
StartWorker = Callable[..., WorkerProcess]


def silent(worker: StartWorker, config: WorkerConfig, pid: int) -> list[dict[str, Any]]:
    """Pause the broker's process while a producer sends, until a send is given up, or long enough; return the sends
    that began since."""
    spool = Path(config.spool)
    one = worker(config)
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 20)
    pause(pid)
    before = [op for op in merged(rows_of(spool)) if op["op"] == "send" and op.get("end_ns") is not None]
    looks = iter(range(LOOKS))
    one.until_status(lambda status: status["sent_unknown"] + status["sent_fail"] >= 1 or next(looks, None) is None)
    one.kill()
    # The first may have been answered before.
    return [op for op in merged(rows_of(spool)) if op["op"] == "send"][len(before) + 1 :]


def silent_acks(worker: StartWorker, config: WorkerConfig, pid: int) -> list[dict[str, Any]]:
    """Pause the broker's process while a consumer takes a backlog, of which its library has some already; return the
    acknowledgements that began since, and the last one."""
    one = worker(replace(config, consumers=specs("consumer", 1), backlog=True, rate=None))
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= BACKLOG)
    one.tell("start_consumers")
    one.until_status(lambda status: status["received"] >= 1)
    pause(pid)
    one.tell("ping", n=1)
    paused = one.until("pong")["clock_ns"]
    looks = iter(range(LOOKS))
    one.until_status(lambda _: next(looks, None) is None)
    one.kill()
    acks = [op for op in merged(rows_of(Path(config.spool))) if op["op"] == "ack"]
    return [acks[-1], *(op for op in acks if op["start_ns"] > paused)]


def own(spool: Path, durable: bool, **changes: Any) -> dict[str, Any]:
    load = {"producers": specs("producer", 1), "transaction": 0, "rate": 50.0, "call_timeout_ms": 2000}
    return {"spool": str(spool), "durable": durable, "consumers": (), "resend": False, **load, **changes}


def assert_none_is_done(ops: list[dict[str, Any]]) -> None:
    assert not [op for op in ops if op.get("outcome") == "ok"]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("protocol", ["core", "amqp"])
def test_artemis(broker: Broker, tmp_path: Path, worker: StartWorker, protocol: str, durable: bool) -> None:
    config = config_for(broker, client=protocol, **own(tmp_path / "w0.spool", durable))
    assert_none_is_done(silent(worker, config, broker.pid))


@pytest.mark.parametrize("protocol", ["core", "amqp"])
def test_artemis_and_acknowledgements(broker: Broker, tmp_path: Path, worker: StartWorker, protocol: str) -> None:
    config = config_for(broker, client=protocol, **own(tmp_path / "w0.spool", True))
    assert_none_is_done(silent_acks(worker, config, broker.pid))


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("protocol", ["core", "amqp"])
def test_artemis_with_several_in_flight(
    broker: Broker, tmp_path: Path, worker: StartWorker, protocol: str, durable: bool
) -> None:
    config = config_for(broker, client=protocol, **own(tmp_path / "w0.spool", durable, window=30))
    assert_none_is_done(silent(worker, config, broker.pid))


def elsewhere(home: Path, port: int, user: str, password: str, **values: Any) -> WorkerConfig:
    return WorkerConfig(
        run_id="silent",
        worker="w0",
        clock="w0",
        endpoints=(BrokerEndpoint("127.0.0.1", port, "b1", "h1"),),
        credentials=ClientAccount(user, password),
        addresses=(QUEUES[0],),
        jars=str(home / "lib"),
        **values,
    )


Ask = Callable[[StartWorker, WorkerConfig, int], list[dict[str, Any]]]
ASKED = [(silent, True), (silent, False), (silent_acks, True)]


@pytest.mark.long
@pytest.mark.parametrize(("ask", "durable"), ASKED)
@pytest.mark.parametrize("protocol", ["openwire", "stomp"])
def test_activemq_classic(tmp_path: Path, worker: StartWorker, protocol: str, ask: Ask, durable: bool) -> None:
    home = standalone_classic.unpack(tmp_path / "home")
    broker = standalone_classic.Classic(home, tmp_path / "broker")
    broker.start()
    try:
        values = own(tmp_path / "w0.spool", durable, client=protocol)
        config = elsewhere(home, broker.ports[protocol], "drill", "unchecked", **values)
        assert_none_is_done(ask(worker, config, broker.pid))
    finally:
        broker.kill()


@pytest.mark.long
@pytest.mark.parametrize(("ask", "durable"), ASKED)
def test_open_mq(tmp_path: Path, worker: StartWorker, ask: Ask, durable: bool) -> None:
    home = standalone_openmq.unpack(tmp_path / "home")
    broker = standalone_openmq.OpenMq(home, tmp_path / "broker")
    broker.start()
    try:
        values = own(tmp_path / "w0.spool", durable, client="openmq")
        config = elsewhere(home, broker.port, standalone_openmq.USER, standalone_openmq.PASSWORD, **values)
        assert_none_is_done(ask(worker, config, broker.pid))
    finally:
        broker.kill()
