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

# Four a second: longer than a call may take, shorter than it takes some libraries to give a silent broker up.
LOOKS = 16
BACKLOG = 2000
StartWorker = Callable[..., WorkerProcess]


def silent(worker: StartWorker, config: WorkerConfig, pid: int) -> list[dict[str, Any]]:
    """Pause the broker's process while a producer sends; return what `since` says of its sends."""
    one = worker(config)
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 20)
    return since(one, config, pid, "send")


def silent_acks(worker: StartWorker, config: WorkerConfig, pid: int) -> list[dict[str, Any]]:
    """Pause the broker's process while a consumer takes a backlog, of which its library has some already; return what
    `since` says of its acknowledgements."""
    one = worker(replace(config, consumers=specs("consumer", 1), backlog=True, rate=None))
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= BACKLOG)
    one.tell("start_consumers")
    one.until_status(lambda status: status["received"] >= 1)
    return since(one, config, pid, "ack")


def since(one: WorkerProcess, config: WorkerConfig, pid: int, op: str) -> list[dict[str, Any]]:
    """Pause the broker's process, wait and kill the worker; return its last operation of the kind, and those that
    began since."""
    pause(pid)
    one.tell("ping", n=1)
    paused = one.until("pong")["clock_ns"]
    looks = iter(range(LOOKS))
    one.until_status(lambda _: next(looks, None) is None)
    one.kill()
    ops = [row for row in merged(rows_of(Path(config.spool))) if row["op"] == op]
    return [ops[-1], *(row for row in ops if row["start_ns"] > paused)]


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


@pytest.fixture(scope="module")
def classic_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standalone_classic.unpack(tmp_path_factory.mktemp("classic"))


@pytest.fixture(scope="module")
def openmq_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standalone_openmq.unpack(tmp_path_factory.mktemp("openmq"))


@pytest.mark.long
@pytest.mark.parametrize(("ask", "durable"), ASKED)
@pytest.mark.parametrize("protocol", ["openwire", "stomp"])
def test_activemq_classic(
    classic_home: Path, tmp_path: Path, worker: StartWorker, protocol: str, ask: Ask, durable: bool
) -> None:
    broker = standalone_classic.Classic(classic_home, tmp_path / "broker")
    broker.start()
    try:
        values = own(tmp_path / "w0.spool", durable, client=protocol)
        config = elsewhere(classic_home, broker.ports[protocol], "drill", "unchecked", **values)
        assert_none_is_done(ask(worker, config, broker.pid))
    finally:
        broker.kill()


@pytest.mark.long
@pytest.mark.parametrize(("ask", "durable"), ASKED)
def test_open_mq(openmq_home: Path, tmp_path: Path, worker: StartWorker, ask: Ask, durable: bool) -> None:
    broker = standalone_openmq.OpenMq(openmq_home, tmp_path / "broker")
    broker.start()
    try:
        values = own(tmp_path / "w0.spool", durable, client="openmq")
        config = elsewhere(openmq_home, broker.port, standalone_openmq.USER, standalone_openmq.PASSWORD, **values)
        assert_none_is_done(ask(worker, config, broker.pid))
    finally:
        broker.kill()
