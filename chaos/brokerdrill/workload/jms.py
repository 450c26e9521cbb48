"""What all JMS clients have in common: a broker's own JMS client jars in one JVM a process, under JPype.

A product's client is a subclass of `JmsClient` that says how a connection is made, what an exception proves, and which
broker serves. The JVM starts in the main thread; one connection and session a thread.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import quote

import jpype

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload import header, jvm
from brokerdrill.workload.client import (
    DONE,
    FAIL,
    SELECTS,
    UNKNOWN,
    Browsing,
    ClientError,
    Delivery,
    Message,
    Outcome,
    Reconnect,
)
from brokerdrill.workload.config import BrokerEndpoint, WorkerConfig
from brokerdrill.workload.jms_batch import BatchSend
from brokerdrill.workload.jms_ends import JmsEnds
from brokerdrill.workload.jms_messages import JmsMessages
from brokerdrill.workload.jvm import described
from brokerdrill.workload.outage import Outage

Operation = Literal["send", "commit", "rollback", "ack"]


def host_of(address: str) -> str:
    """Return the address as a URL has it."""
    return f"[{address}]" if ":" in address else address


def query(params: Mapping[str, str]) -> str:
    """Return the parameters as a URL has them, without the question mark."""
    return "&".join(f"{name}={quote(value, safe='/')}" for name, value in params.items())


class JmsClient:
    """One JMS connection and session. See the client protocol for what each method promises."""

    protocol: ClassVar[str]
    browsing: ClassVar[Browsing] = "selects"
    # The beginnings of the names of the client's jars among the distribution's.
    jars: ClassVar[tuple[str, ...]]
    # The package of the JMS interfaces: javax.jms, or jakarta.jms since JMS 3.
    api: ClassVar[str] = "javax.jms"
    # Whether the library needs message ids and time stamps in what it sends.
    message_ids: ClassVar[bool] = True

    # --- what a product's client says -------------------------------------------------------------------------------

    @classmethod
    def _jvm_options(cls, config: WorkerConfig) -> Sequence[str]:
        """The JVM's options, beside those of all clients."""
        return ()

    @classmethod
    def _prepare_process(cls, config: WorkerConfig) -> None:
        """Called once when the JVM has started."""

    def _factory(self, dialled: Sequence[BrokerEndpoint]) -> Any:
        """Make the product's connection factory for whom is `dialled`."""
        raise NotImplementedError

    def _connect(self) -> Any:
        """Make the connection, closed again where that fails. Raises Java's throwables, and ClientError."""
        return self._connect_to(self._config.endpoints)

    def _connect_to(self, dialled: Sequence[BrokerEndpoint]) -> Any:
        """Make the connection to one of those; raises what `_connect` does."""
        return self._made_by(self._factory(dialled))

    def _connected(self, connection: Any) -> None:
        """Called with the connection before it has a session: to listen to it, or to start it first."""

    def _opened(self, connection: Any, session: Any) -> None:
        """Called with connection and session, before the consumers get their first message."""

    def _described(self, error: Any) -> str:
        """The ledger's `error` of a throwable."""
        return described(error)

    def _outcome(self, error: Any, operation: Operation) -> Outcome:
        """What the throwable proves of the operation that ended with it."""
        raise NotImplementedError

    def _commit_outcome(self, error: Any, *, resent: bool) -> Outcome:
        """What the throwable proves of a commit; `resent` as of `commit`."""
        return self._outcome(error, "commit")

    def _marks(self, batch: Sequence[Message]) -> Mapping[str, Sequence[str]]:
        """The product's own string properties of messages to be sent, and their values message by message."""
        return {}

    def _succeeded(self) -> None:
        """Called after each send and commit that was ok."""

    def _connections_lost(self) -> int:
        """How many connections were lost so far whose deliveries can no longer be acknowledged."""
        return 0

    def _ended(self) -> str | None:
        """Why nothing can be received any more, None while something can."""
        return None

    def connection_id(self) -> int:
        raise NotImplementedError

    def served_by(self) -> BrokerEndpoint | None:
        raise NotImplementedError

    # --- what is the same for all -----------------------------------------------------------------------------------

    @classmethod
    def start_process(cls, config: WorkerConfig) -> None:
        """Start the process's JVM with the client's jars. Raises InfrastructureError."""
        if not config.jars:
            raise InfrastructureError(f"the client {cls.protocol} needs the directory of the broker's jars")
        paths = jvm.class_path(Path(config.jars), cls.jars)
        jvm.start(paths, jvm.jvm_options(config, cls._jvm_options(config)))
        cls._prepare_process(config)

    def __init__(self, config: WorkerConfig, name: str) -> None:
        self._config = config
        self._name = name
        self._tag = header.tag_of(config.run_id)
        self._connection: Any = None
        self._session: Any = None
        self._producers: dict[str, Any] = {}
        self._consumers: list[tuple[str, Any]] = []
        self._lock = threading.Lock()
        self._outage = Outage()
        self._subscribes = False
        self._ends = JmsEnds(config, self.api, message_ids=self.message_ids)
        self._messages = JmsMessages(self.api, self._tag)
        self._batch_send = BatchSend.of(self.api)
        self._throwable = jpype.JClass("java.lang.Throwable")

    @classmethod
    def stacks(cls) -> Mapping[str, Sequence[str]]:
        return jvm.stacks()

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        # By which `stacks` finds it.
        jpype.JClass("java.lang.Thread").currentThread().setName(self._name)
        connection = None
        self._subscribes = self._config.subscriptions and bool(receives_from)
        try:
            connection = self._connect()
            session = self._ends.session(connection, transacted=transacted)
            producers = {address: self._ends.producer(session, address) for address in sends_to}
            consumers = [(name, self._ends.consumer(session, name)) for name in receives_from]
            connection.start()
            self._opened(connection, session)
        except self._throwable as error:
            if connection is not None:
                self._close(connection)
            raise ClientError(self._described(error)) from None
        with self._lock:
            self._connection = connection
        self._session = session
        self._producers = producers
        self._consumers = consumers
        self._outage.forget()

    def _made_by(self, factory: Any) -> Any:
        """Return a connection of that factory; raises what `_connect` does."""
        credentials = self._config.credentials
        connection = factory.createConnection(credentials.username, credentials.password)
        try:
            if self._subscribes:
                # Before anything else. A durable subscription has the name of its topic, within this.
                connection.setClientID(f"brokerdrill-{self._name}")
            self._connected(connection)
        except self._throwable:
            self._close(connection)
            raise
        return connection

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        return self.send_batch(address, [message], attempt)[0]

    def send_batch(self, address: str, batch: Sequence[Message], attempt: int) -> tuple[Outcome, list[int]]:
        ends = self._batch_send.times(len(batch))
        bodies = [message.payload for message in batch]
        properties = {**self._messages.properties(batch, attempt), **self._marks(batch)}
        outcome = DONE
        try:
            self._batch_send.send(self._session, self._producers[address], bodies, properties, ends)
        except self._throwable as error:
            outcome = self._outcome(error, "send")
        else:
            self._succeeded()
        done = [end for end in array("q", memoryview(ends).tobytes()) if end]
        return outcome, done if outcome is DONE else [*done, time.monotonic_ns()]

    def commit(self, *, resent: bool) -> Outcome:
        try:
            self._session.commit()
        except self._throwable as error:
            return self._commit_outcome(error, resent=resent)
        self._succeeded()
        return DONE

    def rollback(self) -> Outcome:
        try:
            self._session.rollback()
        except self._throwable as error:
            return self._outcome(error, "rollback")
        return DONE

    def receive(self, timeout_s: float) -> Delivery | None:
        each_ms = max(1, int(timeout_s * 1000 / len(self._consumers)))
        try:
            for address, consumer in self._consumers:
                lost = self._connections_lost()
                java = consumer.receive(each_ms)
                if java is not None:
                    return self._messages.delivery(address, java, handle=(java, lost))
            ended = self._ended()
        except self._throwable as error:
            raise ClientError(self._described(error)) from None
        if ended:
            raise ClientError(ended)
        return None

    def ack(self, delivery: Delivery) -> Outcome:
        java, lost = delivery.handle
        # A library may forget what an old connection delivered: it would send nothing for it, and say that all is well.
        if lost != self._connections_lost():
            return Outcome(FAIL, "the connection was replaced", usable=False)
        try:
            java.acknowledge()
        except self._throwable as error:
            return self._outcome(error, "ack")
        if lost != self._connections_lost():
            return Outcome(UNKNOWN, "the connection was replaced", usable=False)
        return DONE

    def browse(self, address: str, *, own: bool = False) -> Iterable[Delivery]:
        # None chooses all.
        chosen = header.selector(self._tag) if own and self.browsing == SELECTS else None
        try:
            browser = self._session.createBrowser(self._session.createQueue(address), chosen)
            try:
                return list(self._browsed(address, browser.getEnumeration()))
            finally:
                browser.close()
        except self._throwable as error:
            raise ClientError(self._described(error)) from None

    def _browsed(self, address: str, messages: Any) -> Iterator[Delivery]:
        while messages.hasMoreElements():
            java = messages.nextElement()
            yield self._messages.delivery(address, java, handle=(java, self._connections_lost()))

    def unsubscribe(self, address: str) -> Outcome:
        try:
            for name, consumer in self._consumers:
                if name == address:
                    consumer.close()
            self._session.unsubscribe(address)
        except self._throwable as error:
            return Outcome(UNKNOWN, self._described(error), usable=False)
        return DONE

    def reconnect(self) -> Reconnect | None:
        return self._outage.take()

    def close(self) -> Outcome:
        with self._lock:
            connection, self._connection = self._connection, None
        return DONE if connection is None else self._close(connection)

    def _close(self, connection: Any) -> Outcome:
        try:
            connection.close()
        except self._throwable as error:
            return Outcome(UNKNOWN, self._described(error))
        return DONE
