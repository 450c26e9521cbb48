"""Open MQ clients in a process of their own, whose one Java machine has this product's jars.

Each function is called there, one after the other; clients, places and transactions stay there and have names.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from typing import Any, ParamSpec, TypeVar

import jpype

from brokerdrill.base import java
from brokerdrill.workload.client import ClientError, Message, Outcome
from brokerdrill.workload.config import WorkerConfig
from brokerdrill.workload.openmq_jms import OpenMqJms

P = ParamSpec("P")
R = TypeVar("R")

_clients: dict[str, OpenMqJms] = {}
_places: dict[str, Any] = {}
_numbers = iter(range(1_000_000))
# Of an XA transaction's parts; any will do.
FORMAT = 7


class Clients:
    """The process. Raises what its functions raise."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self._pid = self(os.getpid)

    def __call__(self, function: Callable[P, R], *words: P.args, **named: P.kwargs) -> R:
        return self._pool.submit(function, *words, **named).result(120)

    def kill(self) -> None:
        """SIGKILL: no client says goodbye."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


@contextmanager
def clients(config: WorkerConfig) -> Iterator[Clients]:
    """A process for clients like that. It is killed in the end: Java's threads would keep it."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        made = Clients(pool)
        try:
            made(_start, config)
            yield made
        finally:
            made.kill()


def _start(config: WorkerConfig) -> None:
    os.environ["JAVA_HOME"] = str(java.home())
    OpenMqJms.start_process(config)


def open_client(config: WorkerConfig, name: str, sends_to: list[str], receives_from: list[str]) -> None:
    """Connect the client `name`, outside transactions. Raises ClientError."""
    one = OpenMqJms(config, name)
    one.open(sends_to, receives_from, transacted=False)
    _clients[name] = one


def send(name: str, address: str, count: int = 1, size: int = 10, text: bytes = b"") -> list[str]:
    """Send messages of `text` and `size` bytes more; return each one's result, with its error."""
    outcomes = [_clients[name].send(address, _message(size, text), 1) for _ in range(count)]
    return [f"{one.result} {one.error or ''}".strip() for one in outcomes]


def receive(name: str, count: int, timeout_s: float) -> int:
    """Receive and acknowledge up to `count` messages; return how many came."""
    end = time.monotonic() + timeout_s
    came = 0
    while came < count and time.monotonic() < end:
        found = _clients[name].receive(0.2)
        if found is not None:
            assert _clients[name].ack(found).result == "ok"
            came += 1
    return came


def sequence(name: str, count: int, timeout_s: float) -> list[int | None]:
    """Receive and acknowledge up to `count` messages; return their numbers, which rise in the order in which this
    process has sent them, in the order in which they came."""
    end = time.monotonic() + timeout_s
    came: list[int | None] = []
    while len(came) < count and time.monotonic() < end:
        found = _clients[name].receive(0.2)
        if found is not None:
            assert _clients[name].ack(found).result == "ok"
            came.append(found.seq)
    return came


def port_of(name: str) -> int:
    """Return the port of the service that a client is connected to now, at whatever broker, of its list or not."""
    # HOST:PORT, or HOST:MAPPER(PORT) where the port mapper was asked.
    return int(re.findall(r"\d+", str(_clients[name]._connection.getBrokerAddress()))[-1])


def served_by(name: str) -> str | None:
    """Return the broker that a client is connected to now, by its own library."""
    found = _clients[name].served_by()
    return found.instance if found else None


def unsubscribe(name: str, address: str) -> Outcome:
    return _clients[name].unsubscribe(address)


def close(name: str) -> None:
    _clients.pop(name).close()


def close_all() -> None:
    for name in list(_clients):
        close(name)


def make_temporary(name: str, place: str) -> str:
    """Make a temporary queue, which is then known as `place`, with a consumer; return its own name."""
    session = _clients[name]._session
    _places[place] = session.createTemporaryQueue()
    _clients[name]._consumers.append((place, session.createConsumer(_places[place])))
    return str(_places[place].getQueueName())


def read_topic(name: str, topic: str) -> None:
    """Add a consumer of a topic, with no durable subscription."""
    session = _clients[name]._session
    _clients[name]._consumers.append((topic, session.createConsumer(session.createTopic(topic))))


def reply(name: str, place: str) -> None:
    """Send a message to a temporary queue that another client has made. Raises Java's throwables."""
    session = _clients[name]._session
    session.createProducer(_places[place]).send(session.createBytesMessage())


def prepare(config: WorkerConfig, address: str, number: int) -> None:
    """Send a message in an XA transaction, and prepare that. The connection is closed."""
    with _resource(config) as (session, resource):
        resource.start(_xid(number), resource.TMNOFLAGS)
        session.createProducer(session.createQueue(address)).send(session.createBytesMessage())
        resource.end(_xid(number), resource.TMSUCCESS)
        assert resource.prepare(_xid(number)) == resource.XA_OK


def prepared(config: WorkerConfig) -> set[int]:
    """Return the numbers of the transactions that wait for their end."""
    with _resource(config) as (_, resource):
        found = resource.recover(resource.TMSTARTRSCAN | resource.TMENDRSCAN)
        return {int.from_bytes(bytes(one.getGlobalTransactionId()), "big") for one in found}


def commit_prepared(config: WorkerConfig, number: int) -> None:
    with _resource(config) as (_, resource):
        resource.commit(_xid(number), False)


def roll_back_prepared(config: WorkerConfig, number: int) -> None:
    with _resource(config) as (_, resource):
        resource.rollback(_xid(number))


@contextmanager
def _resource(config: WorkerConfig) -> Iterator[tuple[Any, Any]]:
    """A session and its XA resource. Raises ClientError: Java's throwables do not leave the process."""
    factory = jpype.JClass("com.sun.messaging.XAConnectionFactory")()
    (endpoint, *_) = config.endpoints
    scheme, service = ("mqssl", "ssljms") if config.tls_ca else ("mqtcp", "jms")
    factory.setProperty("imqAddressList", f"{scheme}://{endpoint.address}:{endpoint.port}/{service}")
    factory.setProperty("imqSSLIsHostTrusted", "false")
    try:
        connection = factory.createXAConnection(config.credentials.username, config.credentials.password)
        try:
            connection.start()
            session = connection.createXASession()
            yield session, session.getXAResource()
        finally:
            connection.close()
    except jpype.JException as error:
        raise ClientError(str(error)) from None


def _xid(number: int) -> Any:
    array = jpype.JArray(jpype.JByte)
    parts = {
        "getFormatId": lambda: FORMAT,
        "getGlobalTransactionId": lambda: array(list(number.to_bytes(4, "big"))),
        "getBranchQualifier": lambda: array([1]),
    }
    return jpype.JProxy("javax.transaction.xa.Xid", dict=parts)


def _message(size: int, text: bytes = b"") -> Message:
    number = next(_numbers)
    return Message(f"m{number}", number, None, text + bytes(size), "-")
