"""OpenWire (ActiveMQ Classic) clients: the broker's own JMS client jars under JPype, with the `failover:` transport.

Facts about ActiveMQ Classic 5.18.3 that this rests on:
- the JVM starts in the main thread; one connection and session a thread;
- the transport fails over by itself. A send that waits for its reply is sent again with its own message id, and the
  broker drops what it has already; a commit whose reply is missing is never sent again: it ends as
  TransactionRolledBackException ("completion in doubt"), and whether the broker has it nobody knows;
- in a transaction sends do not wait for the broker, the commit does; outside of one, a persistent send waits;
- acknowledgements are sent without waiting unless `jms.sendAcksAsync` is false;
- the connection's audit (`jms.checkForDuplicates`) drops what it has delivered before: `duplicate_detection` here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jpype

from brokerdrill.errors import InfrastructureError
from brokerdrill.workload.client import (
    DONE,
    FAIL,
    UNKNOWN,
    ClientError,
    Delivery,
    Message,
    Outcome,
    Reconnect,
    endpoint_at,
)
from brokerdrill.workload.config import Endpoint, WorkerConfig
from brokerdrill.workload.core_jms import (
    GROUP,
    META,
    class_path,
    first_line,
    host_of,
    meta,
    query,
    read_meta,
    start_jvm,
)
from brokerdrill.workload.load import sha

# The client's jars among the distribution's: with all of them, log4j would take the process's standard output.
JARS = (
    "activemq-client-",
    "jakarta.jms-api-",
    "hawtbuf-",
    "slf4j-api-",
    "javax.activation-api-",
)

# Of the failover transport; WorkerConfig.url_params come after and win.
URL_PARAMS: Mapping[str, str] = {
    "randomize": "false",
    "initialReconnectDelay": "100",
    "useExponentialBackOff": "false",
    "maxReconnectAttempts": "-1",
    # Who connects for the first time hears at once that nobody serves, and tries again himself.
    "startupMaxReconnectAttempts": "1",
    # A failed one answers after the broker is known to serve again: the list is not changed by what the broker says.
    "updateURIsSupported": "false",
    # A peer that is silent without closing its connection is given up after this, in ms.
    "nested.wireFormat.maxInactivityDuration": "5000",
    "nested.wireFormat.maxInactivityDurationInitalDelay": "5000",
    "nested.connectionTimeout": "3000",
    # And one that takes the connection and says nothing, after this. (No soTimeout below the inactivity's duration:
    # each of its time-outs counts as something received, and a silent broker is then never given up.)
    "nested.connectAttemptTimeout": "3000",
    "jms.sendAcksAsync": "false",
    "jms.watchTopicAdvisories": "false",
    "jms.closeTimeout": "5000",
}

# How long a success waits to learn which broker it came from.
RESUMED_S = 1.0

IN_DOUBT = "in doubt"
# What proves that an operation did not happen, by the exception's class.
PROOFS = frozenset({"JMSSecurityException", "InvalidDestinationException"})
ROLLED_BACK = "TransactionRolledBackException"


def url(config: WorkerConfig) -> str:
    """Return the connection URL: all endpoints in one failover transport, then its parameters."""
    scheme = "ssl" if config.tls_ca else "tcp"
    places = ",".join(f"{scheme}://{host_of(item.address)}:{item.port}" for item in config.endpoints)
    own = {
        "timeout": str(config.call_timeout_ms),
        "jms.checkForDuplicates": "true" if config.duplicate_detection else "false",
    }
    params = {**URL_PARAMS, **own, **config.url_params}
    return f"failover:({places})?{query(params)}"


def outcome_of(kind: str, text: str) -> Outcome:
    """Return what the exception of class `kind` with the message `text` proves of the operation that ended with it.

    A rollback that the library reports is proof, unless it says that the completion is in doubt; the session can then
    be used on.
    """
    error = f"{kind}: {first_line(text)}"
    if kind == ROLLED_BACK:
        return Outcome(UNKNOWN if IN_DOUBT in text else FAIL, error)
    return Outcome(FAIL if kind in PROOFS else UNKNOWN, error, usable=False)


def _trust(ca_path: str) -> Any:
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


class OpenWireJms:
    """One OpenWire JMS connection and session. See the client protocol for what each method promises."""

    protocol: ClassVar[str] = "openwire"

    @classmethod
    def start_process(cls, config: WorkerConfig) -> None:
        """Start the JVM."""
        if not config.jars:
            raise InfrastructureError("the OpenWire client needs the directory of the broker's jars")
        start_jvm(config, class_path(Path(config.jars), JARS))

    def __init__(self, config: WorkerConfig, name: str) -> None:
        self._config = config
        self._name = name
        self._tag = sha(config.run_id.encode())[:8]
        self._connection: Any = None
        self._transport: Any = None
        self._session: Any = None
        self._producers: dict[str, Any] = {}
        self._consumers: list[tuple[str, Any]] = []
        self._lock = threading.Lock()
        self._interruptions = 0
        self._known = 0
        self._up = threading.Event()
        self._lost_ns: int | None = None
        self._reconnect: Reconnect | None = None
        self._throwable = jpype.JClass("java.lang.Throwable")
        self._meta = jpype.JString(META)
        self._group = jpype.JString(GROUP)

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        config = self._config
        connection = None
        try:
            factory = jpype.JClass("org.apache.activemq.ActiveMQSslConnectionFactory")(url(config))
            if config.tls_ca:
                factory.setKeyAndTrustManagers(None, _trust(config.tls_ca), None)
            connection = factory.createConnection(config.credentials.username, config.credentials.password)
            connection.addTransportListener(
                jpype.JProxy(
                    "org.apache.activemq.transport.TransportListener",
                    dict={
                        "onCommand": lambda _command: None,
                        "onException": lambda _error: None,
                        "transportInterupted": self._interrupted,
                        "transportResumed": self._resumed,
                    },
                )
            )
            failover = jpype.JClass("org.apache.activemq.transport.failover.FailoverTransport")
            transport = connection.getTransport().narrow(failover.class_)
            constants = jpype.JClass("javax.jms.Session")
            mode = constants.SESSION_TRANSACTED if transacted else constants.CLIENT_ACKNOWLEDGE
            connection.start()
            session = connection.createSession(transacted, mode)
            delivery = jpype.JClass("javax.jms.DeliveryMode")
            producers = {}
            for address in sends_to:
                producer = session.createProducer(session.createQueue(address))
                producer.setDeliveryMode(delivery.PERSISTENT if config.durable else delivery.NON_PERSISTENT)
                producers[address] = producer
            consumers = [(name, session.createConsumer(session.createQueue(name))) for name in receives_from]
        except self._throwable as error:
            if connection is not None:
                self._close(connection)
            raise ClientError(self._words(error)) from None
        with self._lock:
            self._connection = connection
        self._transport = transport
        self._session = session
        self._producers = producers
        self._consumers = consumers
        self._create = session.createBytesMessage
        self._lost_ns = None
        self._reconnect = None
        self._up.set()

    def _words(self, error: Any) -> str:
        return f"{error.getClass().getSimpleName()}: {first_line(str(error.getMessage()))}"

    def _failed(self, error: Any) -> Outcome:
        return outcome_of(str(error.getClass().getSimpleName()), str(error.getMessage()))

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        try:
            java = self._create()
            java.writeBytes(message.payload)
            java.setStringProperty(self._meta, meta(self._tag, message, attempt))
            if message.key is not None:
                java.setStringProperty(self._group, message.key)
            self._producers[address].send(java)
        except self._throwable as error:
            return self._failed(error)
        self._settle()
        return DONE

    def commit(self, *, resent: bool) -> Outcome:
        try:
            self._session.commit()
        except self._throwable as error:
            return self._failed(error)
        self._settle()
        return DONE

    def rollback(self) -> Outcome:
        try:
            self._session.rollback()
        except self._throwable as error:
            return self._failed(error)
        return DONE

    def receive(self, timeout_s: float) -> Delivery | None:
        each_ms = max(1, int(timeout_s * 1000 / len(self._consumers)))
        try:
            for address, consumer in self._consumers:
                connection = self._interruptions
                java = consumer.receive(each_ms)
                if java is not None:
                    return self._delivery(address, java, connection)
            if self._connection.isTransportFailed() or self._connection.isClosed():
                raise ClientError("the connection is closed")
        except self._throwable as error:
            raise ClientError(self._words(error)) from None
        return None

    def _delivery(self, address: str, java: Any, connection: int) -> Delivery:
        body = jpype.JArray(jpype.JByte)(int(java.getBodyLength()))
        java.readBytes(body)
        text = java.getStringProperty(self._meta)
        known = read_meta(self._tag, str(text)) if text is not None else None
        # What this run did not send keeps a name of its own: the analysis finds it unexpected.
        known = known or (f"foreign-{java.getJMSMessageID()}", 0, 0, None)
        message_id, attempt, seq, key = known
        digest = sha(memoryview(body).tobytes())
        return Delivery(
            address, message_id, attempt, seq, key, bool(java.getJMSRedelivered()), digest, (java, connection)
        )

    def ack(self, delivery: Delivery) -> Outcome:
        java, connection = delivery.handle
        # The library forgets what an old connection delivered: it would send nothing for it, and say that all is well.
        if connection != self._interruptions:
            return Outcome(FAIL, "the connection was replaced", usable=False)
        try:
            java.acknowledge()
        except self._throwable as error:
            return self._failed(error)
        if connection != self._interruptions:
            return Outcome(UNKNOWN, "the connection was replaced", usable=False)
        return DONE

    def browse(self, address: str) -> Iterable[Delivery]:
        try:
            browser = self._session.createBrowser(self._session.createQueue(address))
            try:
                return list(self._browsed(address, browser.getEnumeration()))
            finally:
                browser.close()
        except self._throwable as error:
            raise ClientError(self._words(error)) from None

    def _browsed(self, address: str, messages: Any) -> Iterator[Delivery]:
        while messages.hasMoreElements():
            yield self._delivery(address, messages.nextElement(), self._interruptions)

    def _settle(self) -> None:
        """After a success: it may have come by a new connection, just before the library says that there is one."""
        if self._interruptions != self._known:
            self._up.wait(RESUMED_S)

    def connection_id(self) -> int:
        # Between two connections it is still the old one's.
        if self._up.is_set():
            self._known = self._interruptions
        return self._known

    def _interrupted(self) -> None:
        """Called by the library, in a thread of its own, before it looks for another broker."""
        self._up.clear()
        self._interruptions += 1
        if self._lost_ns is None:
            self._lost_ns = time.monotonic_ns()

    def _resumed(self) -> None:
        if self._lost_ns is not None:
            self._reconnect = Reconnect(self._lost_ns, time.monotonic_ns())
        self._up.set()

    def reconnect(self) -> Reconnect | None:
        # The session may be back just before the library says so.
        found, self._reconnect = self._reconnect, None
        if found is None and self._lost_ns is not None:
            found = Reconnect(self._lost_ns, time.monotonic_ns())
        self._lost_ns = None
        return found

    def served_by(self) -> Endpoint | None:
        # Null between two brokers, and for ever once the transport has been given up.
        uri = self._transport.getConnectedTransportURI()
        return None if uri is None else endpoint_at(f"{uri.getHost()}:{uri.getPort()}", self._config.endpoints)

    def close(self) -> Outcome:
        with self._lock:
            connection, self._connection = self._connection, None
        return DONE if connection is None else self._close(connection)

    def _close(self, connection: Any) -> Outcome:
        try:
            connection.close()
        except self._throwable as error:
            return Outcome(UNKNOWN, self._words(error))
        return DONE
