"""OpenWire and STOMP clients in worker processes against a real ActiveMQ Classic, from the role's archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.workload import header
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
from tests.workload.conftest import specs
from tests.workload.standalone_broker import QUEUES
from tests.workload.standalone_classic import Classic, unpack
from tests.workload.worker_process import WorkerProcess, judge, merged, rows_of

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("classic"))


@pytest.fixture
def classic(home: Path, tmp_path: Path) -> Iterator[Classic]:
    made = Classic(home, tmp_path / "broker")
    made.start()
    yield made
    made.kill()


def config_for(broker: Classic, client: str, spool: Path, **changes: Any) -> WorkerConfig:
    values: dict[str, Any] = {
        "run_id": "test",
        "worker": "w0",
        "clock": "w0",
        "client": client,
        "endpoints": (BrokerEndpoint("127.0.0.1", broker.ports[client], "c1", "h1"),),
        "credentials": ClientAccount("drill", "unchecked"),
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
    one.finish(looks=[{"address": "ActiveMQ.DLQ", "instance": "c1", "drills": True}])
    return merged(rows_of(spool))


def lost(ops: list[dict[str, Any]]) -> set[str]:
    """Messages that were acknowledged and have not been delivered."""
    delivered = {op["message_id"] for op in ops if op["op"] == "receive" and op["outcome"] == "ok"}
    return {op["message_id"] for op in ops if op["op"] == "send" and op["outcome"] == "ok"} - delivered


@pytest.mark.long
@pytest.mark.parametrize("transaction", [0, 10])
@pytest.mark.parametrize("client", ["openwire", "stomp"])
def test_worker_writes_a_whole_ledger(
    classic: Classic, tmp_path: Path, worker: StartWorker, client: str, transaction: int
) -> None:
    spool = tmp_path / "w0.spool"
    one = worker(config_for(classic, client, spool, transaction=transaction, payload_bytes=(0, 3000), keys=2))
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 100)
    ops = end_drained(one, spool)
    sends = [op for op in ops if op["op"] == "send"]
    received = [op for op in ops if op["op"] == "receive" and op["outcome"] == "ok"]
    assert {(op["instance"], op["protocol"], op["outcome"]) for op in sends} == {("c1", client, "ok")}
    assert sorted((op["message_id"], op["payload_sha"], op.get("key")) for op in received) == sorted(
        (op["message_id"], op["payload_sha"], op.get("key")) for op in sends
    )
    assert {op["outcome"] for op in ops if op["op"] in ("connect", "close", "commit", "ack")} == {"ok"}


@pytest.mark.long
@pytest.mark.parametrize(("client", "transaction"), [("openwire", 0), ("openwire", 10), ("stomp", 10)])
def test_broker_killed_under_load(
    classic: Classic, tmp_path: Path, worker: StartWorker, client: str, transaction: int
) -> None:
    spool = tmp_path / "w0.spool"
    one = worker(config_for(classic, client, spool, transaction=transaction))
    one.begin()
    one.until_status(lambda status: status["received"] >= 100)
    classic.kill()
    classic.start()
    behind = one.status["sent_ok"]
    one.until_status(lambda status: status["sent_ok"] >= behind + 100)
    ops = end_drained(one, spool)
    for name in ("producer-0", "consumer-0"):
        connects = [op for op in ops if op["client"] == name and op["op"] == "connect" and op["outcome"] == "ok"]
        assert len(connects) >= 2, f"{name} has noticed the kill"
    assert not lost(ops)
    if transaction:
        said = judge(rows_of(spool))
        assert not said.phantoms
    elif client == "openwire":
        # What the transport sends again has its own message id, which the broker knows.
        message = {op["delivery"]: op["message_id"] for op in ops if op["op"] == "receive" and op["outcome"] == "ok"}
        taken = [message[op["delivery"]] for op in ops if op["op"] == "ack" and op["outcome"] == "ok"]
        assert len(taken) >= 200
        assert len(taken) == len(set(taken))


def resident_kib(pid: int) -> int:
    """The process's memory in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1])


@pytest.mark.long
def test_a_message_leaves_nothing_in_memory(classic: Classic, tmp_path: Path, worker: StartWorker) -> None:
    """A listener in Python that the library calls with each message cost 800 bytes each, and the worker its life."""
    # A heap that cannot grow: what does is not Java's.
    whole = {"jvm_options": ("-Xms128m",)}
    settings = config_for(classic, "openwire", tmp_path / "w0.spool", transaction=100, rate=None, **whole)
    one = worker(settings)
    one.begin()
    one.until_status(lambda status: status["received"] >= 30_000)
    before, received = resident_kib(one.process.pid), one.status["received"]
    one.until_status(lambda status: status["received"] >= received + 40_000)
    assert resident_kib(one.process.pid) < before + 40_000 * 0.3


@pytest.mark.long
def test_a_look_sees_all_of_a_queue_and_whose_it_is(classic: Classic, tmp_path: Path, worker: StartWorker) -> None:
    """With several of the broker's pages (200) in it; more than is there is never seen."""
    silent: dict[str, Any] = {"consumers": (), "rate": None, "transaction": 100}
    other = worker(config_for(classic, "openwire", tmp_path / "w0.spool", run_id="other", **silent))
    other.begin()
    other.until_status(lambda status: status["sent_ok"] >= 600)
    sent = other.finish()["sent_ok"]
    own = worker(config_for(classic, "openwire", tmp_path / "w1.spool", **silent))
    look = {"address": QUEUES[0], "instance": "c1", "own": True}
    own.until("ready")
    own.tell("look", looks=[{**look, "messages": sent}, {**look, "messages": sent + 1}])
    whole, short = own.until("looked")["seen"]
    assert whole["by_run"] == short["by_run"] == {header.tag_of("other"): sent}
    assert whole["error"] is None
    assert short["error"] == f"the broker shows {sent} of the {sent + 1} messages that it counts there"
    own.finish()
