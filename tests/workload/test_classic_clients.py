"""OpenWire and STOMP clients in worker processes against a real ActiveMQ Classic, from the role's archive."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base import java, paths
from brokerdrill.workload import header
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
from tests.free_ports import free_port
from tests.roles.conftest import ROOT, load
from tests.roles.test_plugins import cached
from tests.unpacking import unpack
from tests.workload.conftest import specs
from tests.workload.standalone_broker import QUEUES, SHORT_LIVED
from tests.workload.worker_process import WorkerProcess, judge, merged, rows_of

StartWorker = Callable[..., WorkerProcess]
ARCHIVE = load(ROOT / "roles" / "activemq_classic" / "vars" / "main" / "archive.yml")["__activemq_classic_archives"][
    "5.18.3"
]
START_DEADLINE_S = 90
XML = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="c1" dataDirectory="{data}" useJmx="false">
    <persistenceAdapter><kahaDB directory="{data}/kahadb"/></persistenceAdapter>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:{openwire}"/>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{stomp}"/>
    </transportConnectors>
  </broker>
</beans>
"""


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


class Classic:
    """One broker in `directory`; `ports` by protocol."""

    def __init__(self, home: Path, directory: Path) -> None:
        self.home = home
        self.ports = {"openwire": free_port(), "stomp": free_port()}
        self._directory = directory
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "activemq.xml").write_text(XML.format(data=directory, **self.ports))

    def start(self) -> None:
        """Start and wait until the connectors listen."""
        where = [f"-Dactivemq.{name}={self._directory}" for name in ("base", "conf", "data")]
        command = [Path(java.home()) / "bin" / "java", "-Xmx192m", *SHORT_LIVED.split(), f"-Dactivemq.home={self.home}"]
        program = ["-jar", self.home / "bin" / "activemq.jar", "start", f"xbean:file:{self._directory}/activemq.xml"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, *where, *program], stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + START_DEADLINE_S
        while not all(listens(port) for port in self.ports.values()):
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
    kept = cached.keep(paths.cache() / "archives", "apache-activemq-5.18.3-bin.tar.gz", "maven", [ARCHIVE])
    into = tmp_path_factory.mktemp("classic")
    unpack(kept["path"], into)
    (found,) = into.iterdir()
    return found


@pytest.fixture
def classic(home: Path, tmp_path: Path) -> Iterator[Classic]:
    (tmp_path / "broker").mkdir()
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
