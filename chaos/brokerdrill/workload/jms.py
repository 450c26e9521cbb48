"""What all JMS clients have in common: a broker's own JMS client jars in one JVM a process, under JPype.

A product's client is a subclass of `JmsClient` that says how a connection is made, what an exception proves, and which
broker serves. The JVM starts in the main thread; one connection and session a thread.
"""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import quote

import jpype

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload import header
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

# A heap that has at once what the clients' working set needs does not grow with each reconnection, as one of 32 MiB did
# for half an hour. WorkerConfig.jvm_options come after and win.
JVM_OPTIONS = (
    "-Xms64m",
    "-Xmx128m",
    "-XX:+AlwaysPreTouch",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xrs",  # signals are the worker's
    "-XX:+ErrorFileToStderr",  # the runner keeps it: a file would stay on the load host
)
# The first compiler alone costs a third less of the processor at a drill's rates. Whoever sends as fast as the replies
# come is past that after seconds, and has a fifth more of both compilers.
KEEPS_A_RATE = ("-XX:TieredStopAtLevel=1",)
# JPype 1.7.1 shows a Java class to all threads before it has the class's conversions, and a thread that converts to it
# in between ends the process. Nothing in between lets go of the interpreter, so that only a forced switch can come
# there; without any the threads still take turns, at each call into Java.
SWITCH_INTERVAL_S = 60.0
GROUP = "JMSXGroupID"

Operation = Literal["send", "commit", "rollback", "ack"]


def class_path(jars: Path, wanted: Sequence[str]) -> list[str]:
    """Return the directory's jars whose names begin as `wanted`. Raises InfrastructureError when one is missing."""
    found = sorted(str(path) for path in jars.glob("*.jar") if path.name.startswith(tuple(wanted)))
    missing = [name for name in wanted if not any(Path(path).name.startswith(name) for path in found)]
    if missing:
        raise InfrastructureError(f"{jars} lacks the client's jars {', '.join(name + '*.jar' for name in missing)}")
    return found


def jvm_options(config: WorkerConfig, own: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the options of the process's JVM; `own` are the client's."""
    as_fast_as_it_can = config.rate is None and bool(config.producers)
    return (*JVM_OPTIONS, *(() if as_fast_as_it_can else KEEPS_A_RATE), *own, *config.jvm_options)


def host_of(address: str) -> str:
    """Return the address as a URL has it."""
    return f"[{address}]" if ":" in address else address


def query(params: Mapping[str, str]) -> str:
    """Return the parameters as a URL has them, without the question mark."""
    return "&".join(f"{name}={quote(value, safe='/')}" for name, value in params.items())


def first_line(text: str) -> str:
    """Return the first line of a text, which may have none."""
    return text.splitlines()[0] if text else ""


def described(error: Any) -> str:
    """Return "class: first line of its message" of a Java throwable."""
    return f"{error.getClass().getSimpleName()}: {first_line(str(error.getMessage()))}"


def _described_call(call: Any) -> str:
    """Return "class.method:line" of an element of a Java stack."""
    return f"{call.getClassName()}.{call.getMethodName()}:{call.getLineNumber()}"


def trust_managers(ca_path: str) -> Any:
    """Return Java's trust managers for the PEM file at `ca_path`."""
    store = jpype.JClass("java.security.KeyStore").getInstance("PKCS12")
    store.load(None, None)
    files = jpype.JClass("java.nio.file.Files")
    stream = files.newInputStream(jpype.JClass("java.nio.file.Path").of(ca_path))
    try:
        for number, one in enumerate(
            jpype.JClass("java.security.cert.CertificateFactory").getInstance("X.509").generateCertificates(stream)
        ):
            store.setCertificateEntry(f"ca-{number}", one)
    finally:
        stream.close()
    kind = jpype.JClass("javax.net.ssl.TrustManagerFactory")
    factory = kind.getInstance(kind.getDefaultAlgorithm())
    factory.init(store)
    return factory.getTrustManagers()


def tls_context(ca_path: str) -> Any:
    """Return Java's TLS context that trusts the PEM file at `ca_path`."""
    context = jpype.JClass("javax.net.ssl.SSLContext").getInstance("TLS")
    context.init(None, trust_managers(ca_path), None)
    return context


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
        paths = class_path(Path(config.jars), cls.jars)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            jpype.startJVM(*jvm_options(config, cls._jvm_options(config)), classpath=paths, convertStrings=False)
        except (OSError, RuntimeError, jpype.JVMNotFoundException) as error:
            raise InfrastructureError(f"no Java virtual machine starts: {first_line(str(error))}") from None
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
        self._lost_ns: int | None = None
        self._reconnect: Reconnect | None = None
        self._subscribes = False
        self._batch_send = BatchSend.of(self.api)
        self._throwable = jpype.JClass("java.lang.Throwable")
        # What the load sends; another application may have sent another kind of message.
        self._bytes = jpype.JClass(f"{self.api}.BytesMessage")
        self._property = jpype.JString(header.PROPERTY)

    @classmethod
    def stacks(cls) -> Mapping[str, Sequence[str]]:
        threads = jpype.JClass("java.lang.Thread").getAllStackTraces().entrySet()
        return {str(one.getKey().getName()): [_described_call(call) for call in one.getValue()] for one in threads}

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        # By which `stacks` finds it.
        jpype.JClass("java.lang.Thread").currentThread().setName(self._name)
        connection = None
        self._subscribes = self._config.subscriptions and bool(receives_from)
        try:
            connection = self._connect()
            constants = jpype.JClass(f"{self.api}.Session")
            mode = constants.SESSION_TRANSACTED if transacted else constants.CLIENT_ACKNOWLEDGE
            session = connection.createSession(transacted, mode)
            producers = {address: self._producer(session, address) for address in sends_to}
            consumers = [(name, self._consumer(session, name)) for name in receives_from]
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
        self._lost_ns = None
        self._reconnect = None

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

    def _destination(self, session: Any, address: str) -> Any:
        return session.createTopic(address) if self._config.subscriptions else session.createQueue(address)

    def _consumer(self, session: Any, address: str) -> Any:
        destination = self._destination(session, address)
        if self._config.subscriptions:
            return session.createDurableSubscriber(destination, address)
        return session.createConsumer(destination)

    def _producer(self, session: Any, address: str) -> Any:
        delivery = jpype.JClass(f"{self.api}.DeliveryMode")
        producer = session.createProducer(self._destination(session, address))
        producer.setDeliveryMode(delivery.PERSISTENT if self._config.durable else delivery.NON_PERSISTENT)
        if not self.message_ids:
            producer.setDisableMessageID(True)
            producer.setDisableMessageTimestamp(True)
        return producer

    def _properties(self, batch: Sequence[Message], attempt: int) -> dict[str, Sequence[str]]:
        groups = [message.key for message in batch if message.key is not None]
        headers = [header.write(self._tag, message, attempt) for message in batch]
        return {header.PROPERTY: headers, **({GROUP: groups} if groups else {}), **self._marks(batch)}

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        return self.send_batch(address, [message], attempt)[0]

    def send_batch(self, address: str, batch: Sequence[Message], attempt: int) -> tuple[Outcome, list[int]]:
        ends = self._batch_send.times(len(batch))
        bodies, properties = [message.payload for message in batch], self._properties(batch, attempt)
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
                    return self._delivery(address, java, lost)
            ended = self._ended()
        except self._throwable as error:
            raise ClientError(self._described(error)) from None
        if ended:
            raise ClientError(ended)
        return None

    def _delivery(self, address: str, java: Any, lost: int) -> Delivery:
        body = jpype.JArray(jpype.JByte)(int(java.getBodyLength()) if isinstance(java, self._bytes) else 0)
        if len(body):
            java.readBytes(body)
        text = java.getStringProperty(self._property)
        return header.delivery(
            self._tag,
            address,
            str(text) if text is not None else None,
            str(java.getJMSMessageID()),
            redelivered=bool(java.getJMSRedelivered()),
            body=memoryview(body).tobytes(),
            handle=(java, lost),
        )

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
            yield self._delivery(address, messages.nextElement(), self._connections_lost())

    def unsubscribe(self, address: str) -> Outcome:
        try:
            for name, consumer in self._consumers:
                if name == address:
                    consumer.close()
            self._session.unsubscribe(address)
        except self._throwable as error:
            return Outcome(UNKNOWN, self._described(error), usable=False)
        return DONE

    def _connection_lost(self) -> None:
        """Note that the library has lost its connection; the first loss counts until `_connection_back`."""
        if self._lost_ns is None:
            self._lost_ns = time.monotonic_ns()

    def _connection_back(self) -> None:
        """Note that the library has a connection again."""
        if self._lost_ns is not None:
            self._reconnect = Reconnect(self._lost_ns, time.monotonic_ns())

    def reconnect(self) -> Reconnect | None:
        # The session may be back just before the library says so.
        found, self._reconnect = self._reconnect, None
        if found is None and self._lost_ns is not None:
            found = Reconnect(self._lost_ns, time.monotonic_ns())
        self._lost_ns = None
        return found

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
