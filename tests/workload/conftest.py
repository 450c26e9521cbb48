"""A real broker for each test module's session, and the JVM of the clients that live in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jpype
import pytest

from brokerdrill.base import java
from brokerdrill.workload import jvm
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, ClientSpec, WorkerConfig
from brokerdrill.workload.core_jms import CoreJms
from tests.workload import rabbitmq
from tests.workload.certificate import make_certificate
from tests.workload.own_postgres import Postgres
from tests.workload.standalone_broker import QUEUES, USER, Broker, Relay, unpack
from tests.workload.worker_process import WorkerProcess

if TYPE_CHECKING:
    from tests.workload.ha_members import Members

_numbers = iter(range(1_000_000))
SWITCH_INTERVAL_S = sys.getswitchinterval()


@pytest.fixture(scope="module", autouse=True)
def _busy_threads_let_others_run_again() -> Iterator[None]:
    """The JMS clients let Python's threads change at their calls only (`jvm.SWITCH_INTERVAL_S`). In other files a
    thread may be busy without any: it would keep the test that is to stop it waiting, and fill the memory meanwhile."""
    yield
    sys.setswitchinterval(SWITCH_INTERVAL_S)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL of the test module's own."""
    made = Postgres()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of an unpacked Artemis."""
    return unpack(tmp_path_factory.mktemp("artemis"))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The certificate and bundle of all brokers that clients of this process reach by TLS: its JVM trusts one."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session")
def one_broker(distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of all tests, not started."""
    made = Broker(distribution, tmp_path_factory.mktemp("broker") / "a1", QUEUES)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def broker(one_broker: Broker) -> Iterator[Broker]:
    """A running broker with empty queues, which the test may kill or stop."""
    if not one_broker.running():
        one_broker.start()
    config = config_for(one_broker)
    start_jvm(config)
    left = CoreJms(config, "purge")
    left.open([], QUEUES, transacted=True)
    while left.receive(0.1 * len(QUEUES)):
        pass
    assert left.commit(resent=False).result == "ok"
    left.close()
    yield one_broker
    if one_broker.stopped():
        one_broker.kill()


@pytest.fixture
def relay(broker: Broker) -> Iterator[Relay]:
    """A relay to the broker."""
    made = Relay(broker.port)
    yield made
    made.close()


@pytest.fixture(scope="module")
def made_members(
    request: pytest.FixtureRequest, distribution: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Members]:
    from tests.workload import ha_members  # which takes from here what it starts clients by

    console = getattr(request.module, "WITH_CONSOLE", False)
    made = ha_members.Members(distribution, tmp_path_factory.mktemp("members"), request.module.MEMBERS, console=console)
    yield made
    made.clear()


@pytest.fixture
def members(made_members: Members) -> Iterator[Members]:
    """The brokers that the module names (MEMBERS; with a console: WITH_CONSOLE), without data and processes."""
    yield made_members
    made_members.clear()


@pytest.fixture(scope="module")
def one_rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rabbitmq.Broker]:
    """A RabbitMQ of the module's tests."""
    found = rabbitmq.Broker(tmp_path_factory.mktemp("rabbitmq"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def rabbit(one_rabbit: rabbitmq.Broker) -> rabbitmq.Broker:
    """A running RabbitMQ with empty queues."""
    rabbitmq.declare(one_rabbit, *QUEUES)
    return one_rabbit


def config_for(broker: Broker, **changes: Any) -> WorkerConfig:
    """The configuration of a worker of that broker, with a run of its own."""
    values: dict[str, Any] = {
        "run_id": f"test-{os.getpid()}-{next(_numbers)}",
        "worker": "w0",
        "clock": "w0",
        "client": "core",
        "endpoints": (BrokerEndpoint("127.0.0.1", broker.port, "a1", "h1"),),
        "credentials": ClientAccount(USER, broker.password),
        "addresses": ("drill.q0",),
        "jars": str(broker.home / "lib"),
    }
    return WorkerConfig(**{**values, **changes})


def start_jvm(config: WorkerConfig) -> None:
    """Start this process's one JVM, if it is not there yet."""
    if not jpype.isJVMStarted():
        os.environ["JAVA_HOME"] = str(java.home())
        CoreJms.start_process(config)
    sys.setswitchinterval(jvm.SWITCH_INTERVAL_S)


def specs(kind: str, count: int, address: str = "drill.q0") -> tuple[ClientSpec, ...]:
    return tuple(ClientSpec(f"{kind}-{i}", (address,)) for i in range(count))


@pytest.fixture
def worker() -> Iterator[Callable[..., WorkerProcess]]:
    """Start worker processes; none outlives the test."""
    started: list[WorkerProcess] = []

    def start(config: WorkerConfig, **popen: Any) -> WorkerProcess:
        started.append(WorkerProcess(config.to_json(), env={"JAVA_HOME": str(java.home())}, **popen))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def client(broker: Broker) -> Iterator[Callable[..., CoreJms]]:
    """Open clients in this process; all are closed in the end."""
    made: list[CoreJms] = []

    def open_client(
        config: WorkerConfig, sends_to: list[str] | None = None, receives_from: list[str] | None = None, **how: Any
    ) -> CoreJms:
        start_jvm(config)
        one = CoreJms(config, "test")
        made.append(one)
        one.open(sends_to or [], receives_from or [], transacted=how.get("transacted", True))
        return one

    yield open_client
    for one in made:
        one.close()
