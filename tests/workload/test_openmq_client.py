"""Open MQ clients in worker processes against a real Open MQ broker, from the role's archive."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
from tests.workload.conftest import specs
from tests.workload.standalone_broker import QUEUES
from tests.workload.standalone_openmq import PASSWORD, USER, OpenMq, unpack
from tests.workload.test_classic_clients import lost
from tests.workload.worker_process import WorkerProcess, judge, merged, rows_of

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("openmq"))


@pytest.fixture
def broker(home: Path, tmp_path: Path) -> Iterator[OpenMq]:
    made = OpenMq(home, tmp_path / "broker")
    made.start()
    yield made
    made.kill()


def config_for(broker: OpenMq, spool: Path, **changes: Any) -> WorkerConfig:
    values: dict[str, Any] = {
        "run_id": f"test-{os.getpid()}",
        "worker": "w0",
        "clock": "w0",
        "client": "openmq",
        "endpoints": (BrokerEndpoint("127.0.0.1", broker.port, "m1", "h1"),),
        "credentials": ClientAccount(USER, PASSWORD),
        "addresses": (QUEUES[0],),
        "jars": str(broker.home / "lib"),
        "producers": specs("producer", 2),
        "consumers": specs("consumer", 2),
        "spool": str(spool),
        "rate": 100.0,
    }
    return WorkerConfig(**{**values, **changes})


def end_drained(one: WorkerProcess, spool: Path) -> list[dict[str, Any]]:
    """Stop the producers, wait until all that is acknowledged was delivered, stop; return the merged operations."""
    one.tell("stop_producers")
    one.until("producers_stopped")
    one.until_status(lambda status: not lost(merged(rows_of(spool))))
    one.finish(looks=[{"address": "mq.sys.dmq", "instance": ""}])
    return merged(rows_of(spool))


@pytest.mark.long
@pytest.mark.parametrize("transaction", [0, 10])
def test_worker_writes_a_whole_ledger(broker: OpenMq, tmp_path: Path, worker: StartWorker, transaction: int) -> None:
    spool = tmp_path / "w0.spool"
    one = worker(config_for(broker, spool, transaction=transaction, payload_bytes=(0, 3000), keys=2))
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 100)
    ops = end_drained(one, spool)
    sends = [op for op in ops if op["op"] == "send"]
    received = [op for op in ops if op["op"] == "receive" and op["outcome"] == "ok"]
    assert {(op["instance"], op["protocol"], op["outcome"]) for op in sends} == {("m1", "openmq", "ok")}
    assert sorted((op["message_id"], op["payload_sha"], op.get("key")) for op in received) == sorted(
        (op["message_id"], op["payload_sha"], op.get("key")) for op in sends
    )
    assert {op["outcome"] for op in ops if op["op"] in ("connect", "close", "commit", "ack")} == {"ok"}


@pytest.mark.long
def test_a_wrong_password_is_told(broker: OpenMq, tmp_path: Path, worker: StartWorker) -> None:
    spool = tmp_path / "w0.spool"
    one = worker(config_for(broker, spool, credentials=ClientAccount(USER, "wrong"), consumers=()))
    one.begin()
    one.until_status(lambda status: any(row.get("error") for row in rows_of(spool)))
    one.finish()
    connects = [op for op in merged(rows_of(spool)) if op["op"] == "connect"]
    assert {op["outcome"] for op in connects} == {"fail"}
    assert any("JMSSecurityException" in op["error"] for op in connects)


@pytest.mark.long
@pytest.mark.parametrize("transaction", [0, 10])
def test_broker_killed_under_load(broker: OpenMq, tmp_path: Path, worker: StartWorker, transaction: int) -> None:
    spool = tmp_path / "w0.spool"
    one = worker(config_for(broker, spool, transaction=transaction))
    one.begin()
    one.until_status(lambda status: status["received"] >= 100)
    broker.kill()
    broker.start()
    behind = one.status["sent_ok"]
    one.until_status(lambda status: status["sent_ok"] >= behind + 100)
    ops = end_drained(one, spool)
    for name in ("producer-0", "consumer-0"):
        connects = [op for op in ops if op["client"] == name and op["op"] == "connect" and op["outcome"] == "ok"]
        assert len(connects) >= 2, f"{name} has noticed the kill"
    assert not lost(ops)
    if transaction:
        assert not judge(rows_of(spool)).phantoms


@pytest.mark.long
def test_a_subscription_outlives_its_consumer_and_its_broker(
    broker: OpenMq, tmp_path: Path, worker: StartWorker
) -> None:
    load: dict[str, Any] = {"addresses": ("t",), "subscriptions": True, "consumers": specs("consumer", 2, "t")}
    first = worker(config_for(broker, tmp_path / "w0.spool", **load, producers=()))
    first.tell("start")
    first.until("subscribed")
    first.kill()  # told to stop it would end the subscriptions
    # Nobody reads while it is sent, and the broker dies with it.
    second = worker(config_for(broker, tmp_path / "w1.spool", **load | {"consumers": ()}, producers=specs("p", 2, "t")))
    second.tell("start")
    second.until("subscribed")
    second.tell("start_producers")
    second.until_status(lambda status: status["sent_ok"] >= 100)
    second.tell("stop_producers")
    second.until("producers_stopped")
    sent = second.finish()["sent_ok"]
    broker.kill()
    broker.start()
    third = worker(config_for(broker, tmp_path / "w2.spool", **load, producers=()))
    third.tell("start")
    third.until_status(lambda status: status["received"] == 2 * sent)
    third.finish()
    ops = merged(rows_of(tmp_path / "w2.spool"))
    assert not lost([*merged(rows_of(tmp_path / "w1.spool")), *ops])
    taken = Counter(op["subscription"] for op in ops if op["op"] == "receive" and op["outcome"] == "ok")
    assert taken == {"consumer-0": sent, "consumer-1": sent}
    assert [op["outcome"] for op in ops if op["op"] == "unsubscribe"] == ["ok", "ok"]
