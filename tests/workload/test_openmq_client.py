"""Open MQ clients in worker processes against a real Open MQ broker, from the role's archive."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base import java, paths
from brokerdrill.workload.config import Credentials, Endpoint, WorkerConfig
from tests.free_ports import free_port
from tests.roles.test_plugins import cached
from tests.workload.conftest import specs
from tests.workload.standalone_broker import QUEUES
from tests.workload.test_classic_clients import lost
from tests.workload.worker_process import WorkerProcess, judge, merged, rows_of

StartWorker = Callable[..., WorkerProcess]
VERSION = "6.5.1"
ARCHIVE = {
    "coordinate": f"org.glassfish.mq:mq-distribution:{VERSION}:zip",
    "sha256": "ad040a8b84e694e0ddabd12b9698ea0e5807be16c74a0c99143aa3f16678f446",
}
START_DEADLINE_S = 120
USER, PASSWORD = "drill", "a password of this test"
ACCESS = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
queue.*.produce.allow.user=*
queue.*.consume.allow.user=*
queue.*.browse.allow.user=*
queue.create.allow.user=*
topic.*.produce.allow.user=*
topic.*.consume.allow.user=*
topic.create.allow.user=*
"""


class OpenMq:
    """One broker without a cluster, with its data in `directory`; made at once, started by `start`."""

    def __init__(self, home: Path, directory: Path) -> None:
        self.home = home
        self.port = free_port()
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        # The product's own form: a signed number in hexadecimal digits.
        digest = hashlib.md5(f"{USER}:{PASSWORD}".encode(), usedforsecurity=False).digest()
        hashed = format(int.from_bytes(digest, "big", signed=True), "x")
        (directory / "passwd").write_text(f"{USER}:{hashed}:user:1\n")
        (directory / "accesscontrol.properties").write_text(ACCESS)
        properties = {
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": free_port(),
            "imq.service.activelist": "jms",
            "imq.jms.tcp.port": self.port,
            "imq.user_repository.file.dirpath": directory,
            "imq.user_repository.file.filename": "passwd",
            "imq.accesscontrol.file.dirpath": directory,
            "imq.accesscontrol.file.filename": "accesscontrol.properties",
            "imq.jmx.connector.activelist": "",
            "imq.log.file.output": "NONE",
            "imq.log.console.output": "ALL",
        }
        places = {"home": home, "varhome": directory, "etchome": home / "etc", "libhome": home / "lib"}
        self._command = [
            Path(java.home()) / "bin" / "java",
            *("-Xmx192m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"),
            *(f"-Dimq.{name}={place}" for name, place in places.items()),
            *("-cp", f"{home}/lib/imqbroker.jar:{home}/lib/imqutil.jar", "com.sun.messaging.jmq.jmsserver.Broker"),
            *("-varhome", str(directory), "-name", "m1"),
            *(f"-D{name}={value}" for name, value in properties.items()),
        ]

    def start(self) -> None:
        """Start and wait until its log says that it is ready."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + START_DEADLINE_S
        while b"[B1039]" not in self._log.read_bytes():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait(30)
            self._process = None


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = cached.keep(paths.cache() / "archives", f"mq-distribution-{VERSION}.zip", "maven", [ARCHIVE])
    into = tmp_path_factory.mktemp("openmq")
    with zipfile.ZipFile(kept["path"]) as content:
        content.extractall(into)
    return into / "mq"


@pytest.fixture
def broker(home: Path, tmp_path: Path) -> Iterator[OpenMq]:
    directory = tmp_path / "broker"
    directory.mkdir()
    made = OpenMq(home, directory)
    made.start()
    yield made
    made.kill()


def config_for(broker: OpenMq, spool: Path, **changes: Any) -> WorkerConfig:
    values: dict[str, Any] = {
        "run_id": f"test-{os.getpid()}",
        "worker": "w0",
        "clock": "w0",
        "client": "openmq",
        "endpoints": (Endpoint("127.0.0.1", broker.port, "m1", "h1"),),
        "credentials": Credentials(USER, PASSWORD),
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
    one.finish(browse=["mq.sys.dmq"])
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
    one = worker(config_for(broker, spool, credentials=Credentials(USER, "wrong"), consumers=()))
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
