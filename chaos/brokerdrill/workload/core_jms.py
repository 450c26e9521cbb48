"""CORE (Artemis) clients: the broker's own JMS client jars under JPype.

Facts about Artemis 2.56.0 that this rests on, each held by tests/workload:
- the JVM starts in the main thread; one connection and session a thread;
- a transacted send does not wait for the broker, the commit does;
- the library fails over by itself. A transaction that had work before is then rolled back by the client, which proves
  it (TRANSACTION_ROLLED_BACK); one whose commit was under way ends as TRANSACTION_OUTCOME_UNKNOWN;
- a batch the broker has already is refused at the commit with DUPLICATE_ID_REJECTED; outside a transaction the broker
  drops the duplicate and answers as if it had taken it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import jpype

from brokerdrill.errors import InfrastructureError
from brokerdrill.workload.client import (
    DONE,
    FAIL,
    OK,
    REFUSED_AS_DUPLICATE,
    UNKNOWN,
    ClientError,
    Delivery,
    Message,
    Outcome,
    Reconnect,
    endpoint_at,
)
from brokerdrill.workload.config import Endpoint, WorkerConfig
from brokerdrill.workload.load import sha

# The client's jars among the distribution's: with all of them, log4j would take the process's standard output.
JARS = (
    "artemis-commons-",
    "artemis-core-client-",
    "artemis-jms-client-",
    "artemis-selector-",
    "jakarta.jms-api-",
    "commons-beanutils-",
    "commons-collections-",
    "commons-logging-",
    "jctools-core-",
    "netty-",
    "slf4j-api-",
    "pem-keystore-",
    "asn-one-",
)
# The first compiler alone costs a third less of the processor at a drill's rates, and a fifth of the peak rate;
# WorkerConfig.jvm_options come after and win.
JVM_OPTIONS = (
    "-Xms32m",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:TieredStopAtLevel=1",
    "-Xrs",  # signals are the worker's
)

# Of the connection URL; WorkerConfig.url_params come after and win.
URL_PARAMS: Mapping[str, str] = {
    "ha": "true",
    "reconnectAttempts": "-1",
    "initialConnectAttempts": "1",
    "retryInterval": "100",
    "retryIntervalMultiplier": "1.0",
    # A peer that is silent without closing its connection is given up after the first, in ms.
    "clientFailureCheckPeriod": "5000",
    "connectionTTL": "15000",
    "blockOnDurableSend": "true",
    "blockOnNonDurableSend": "true",
}

META = "bd"
DUPLICATE_ID = "_AMQ_DUPL_ID"
GROUP = "JMSXGroupID"

# What proves that an operation did not happen, by the type of the ActiveMQException (ActiveMQExceptionType).
ROLLED_BACK = "TRANSACTION_ROLLED_BACK"
REFUSED = "DUPLICATE_ID_REJECTED"
SEND_PROOFS = frozenset(
    {
        "ADDRESS_FULL",
        "ADDRESS_DOES_NOT_EXIST",
        "QUEUE_DOES_NOT_EXIST",
        "SECURITY_EXCEPTION",
        "INTERCEPTOR_REJECTED_PACKET",
        "UNEXPECTED_ROUTING_TYPE_FOR_ADDRESS",
    }
)
COMMIT_PROOFS = frozenset({ROLLED_BACK, REFUSED})
# A commit that ends so has rolled back what it had.
ROLLED_BACK_ITSELF = frozenset({ROLLED_BACK, "TRANSACTION_OUTCOME_UNKNOWN"})
# After these, the session of the same connection can be used on.
USABLE = ROLLED_BACK_ITSELF | {REFUSED, "UNBLOCKED", "ADDRESS_FULL"}


def url(config: WorkerConfig) -> str:
    """Return the connection URL: all endpoints, then the parameters."""
    own = {"sslEnabled": "true", "verifyHost": "true", "trustStoreType": "PEMCA", "trustStorePath": config.tls_ca or ""}
    end = "?" + query(own) if config.tls_ca else ""
    places = ",".join(f"tcp://{host_of(item.address)}:{item.port}{end}" for item in config.endpoints)
    # In a transaction the commit proves the acknowledgements; waiting for each as well can hang in a failover.
    each = {"blockOnAcknowledge": "false" if config.transaction else "true"}
    params = {**URL_PARAMS, **each, "callTimeout": str(config.call_timeout_ms), **config.url_params}
    return f"({places})?{query(params)}"


def host_of(address: str) -> str:
    """Return the address as a URL has it."""
    return f"[{address}]" if ":" in address else address


def query(params: Mapping[str, str]) -> str:
    """Return the parameters as a URL has them, without the question mark."""
    return "&".join(f"{name}={quote(value, safe='/')}" for name, value in params.items())


def class_path(jars: Path, wanted: tuple[str, ...] = JARS) -> list[str]:
    """Return the directory's jars whose names begin as `wanted`. Raises InfrastructureError when one is missing."""
    found = sorted(str(path) for path in jars.glob("*.jar") if path.name.startswith(wanted))
    missing = [name for name in wanted if not any(Path(path).name.startswith(name) for path in found)]
    if missing:
        raise InfrastructureError(f"{jars} lacks the client's jars {', '.join(name + '*.jar' for name in missing)}")
    return found


def start_jvm(config: WorkerConfig, paths: list[str], options: Sequence[str] = ()) -> None:
    """Start the process's JVM with these jars. Raises InfrastructureError."""
    try:
        jpype.startJVM(*JVM_OPTIONS, *options, *config.jvm_options, classpath=paths, convertStrings=False)
    except (OSError, RuntimeError, jpype.JVMNotFoundException) as error:
        raise InfrastructureError(f"no Java virtual machine starts: {first_line(str(error))}") from None


def meta(tag: str, message: Message, attempt: int) -> str:
    """Return the one property that carries what the receiver's row needs; `tag` tells runs apart."""
    return f"{tag}|{message.message_id}|{attempt}|{message.seq}|{message.key or ''}|{message.sha}"


def read_meta(tag: str, text: str) -> tuple[str, int, int, str | None] | None:
    """Return (message_id, attempt, producer_seq, key) of a message that run `tag` sent; else None."""
    parts = text.split("|")
    if len(parts) != 6 or parts[0] != tag:
        return None
    return parts[1], int(parts[2]), int(parts[3]), parts[4] or None


def first_line(text: str) -> str:
    """Return the first line of a text, which may have none."""
    return text.splitlines()[0] if text else ""


def kind_of(error: Any) -> tuple[str, str]:
    """Return (ActiveMQExceptionType or "", "type: first line") of a Java throwable, looking through its causes."""
    at = error
    for _ in range(10):
        if at is None:
            break
        if isinstance(at, jpype.JClass("org.apache.activemq.artemis.api.core.ActiveMQException")):
            kind = str(at.getType().name())
            return kind, f"{kind}: {first_line(str(at.getMessage()))}"
        at = at.getCause()
    return "", f"{error.getClass().getSimpleName()}: {first_line(str(error.getMessage()))}"


class CoreJms:
    """One CORE JMS connection and session. See the client protocol for what each method promises."""

    protocol: ClassVar[str] = "core"

    @classmethod
    def start_process(cls, config: WorkerConfig) -> None:
        """Start the JVM. The TLS properties count for connectors that the broker announces, too: after a failover
        the library uses those, and the paths in them are the broker's."""
        if not config.jars:
            raise InfrastructureError("the CORE client needs the directory of the broker's jars")
        options = []
        if config.tls_ca:
            options.append(f"-Dorg.apache.activemq.ssl.trustStore={config.tls_ca}")
            options.append("-Dorg.apache.activemq.ssl.trustStoreType=PEMCA")
        start_jvm(config, class_path(Path(config.jars)), options)

    def __init__(self, config: WorkerConfig, name: str) -> None:
        self._config = config
        self._name = name
        self._tag = sha(config.run_id.encode())[:8]
        self._connection: Any = None
        self._session: Any = None
        self._core: Any = None
        self._producers: dict[str, Any] = {}
        self._consumers: list[tuple[str, Any]] = []
        self._transacted = False
        self._lock = threading.Lock()
        self._lost_ns: int | None = None
        self._reconnect: Reconnect | None = None
        self._throwable = jpype.JClass("java.lang.Throwable")
        self._meta = jpype.JString(META)
        self._duplicate_id = jpype.JString(DUPLICATE_ID)
        self._group = jpype.JString(GROUP)

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        config = self._config
        connection = None
        try:
            factory = jpype.JClass("org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory")(url(config))
            connection = factory.createConnection(config.credentials.username, config.credentials.password)
            connection.setFailoverListener(
                jpype.JProxy(
                    "org.apache.activemq.artemis.api.core.client.FailoverEventListener",
                    dict={"failoverEvent": self._failover_event},
                )
            )
            constants = jpype.JClass("javax.jms.Session")
            mode = constants.SESSION_TRANSACTED if transacted else constants.CLIENT_ACKNOWLEDGE
            session = connection.createSession(transacted, mode)
            delivery = jpype.JClass("javax.jms.DeliveryMode")
            producers = {}
            for address in sends_to:
                producer = session.createProducer(session.createQueue(address))
                producer.setDeliveryMode(delivery.PERSISTENT if config.durable else delivery.NON_PERSISTENT)
                producer.setDisableMessageID(True)
                producer.setDisableMessageTimestamp(True)
                producers[address] = producer
            consumers = [(name, session.createConsumer(session.createQueue(name))) for name in receives_from]
            connection.start()
        except self._throwable as error:
            if connection is not None:
                self._close(connection)
            raise ClientError(kind_of(error)[1]) from None
        with self._lock:
            self._connection = connection
        self._session = session
        self._core = session.getCoreSession()
        self._producers = producers
        self._consumers = consumers
        self._transacted = transacted
        self._create = session.createBytesMessage
        self._lost_ns = None
        self._reconnect = None

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        try:
            java = self._create()
            java.writeBytes(message.payload)
            java.setStringProperty(self._meta, meta(self._tag, message, attempt))
            if self._config.duplicate_detection:
                java.setStringProperty(self._duplicate_id, f"{self._tag}-{message.message_id}")
            if message.key is not None:
                java.setStringProperty(self._group, message.key)
            self._producers[address].send(java)
        except self._throwable as error:
            return self._failed(error, SEND_PROOFS)
        return DONE

    def commit(self, *, resent: bool) -> Outcome:
        try:
            self._session.commit()
        except self._throwable as error:
            kind, text = kind_of(error)
            # Where the library has not rolled back itself, what is left of the batch must not meet its own retry in
            # one transaction: the broker would refuse that as a duplicate, and it would pass for a proof.
            usable = kind in ROLLED_BACK_ITSELF or (kind in USABLE and self.rollback().result == OK)
            if kind == REFUSED:
                return REFUSED_AS_DUPLICATE._replace(usable=usable) if resent else Outcome(FAIL, text, usable)
            return Outcome(FAIL if kind in COMMIT_PROOFS else UNKNOWN, text, usable)
        return DONE

    def rollback(self) -> Outcome:
        try:
            self._session.rollback()
        except self._throwable as error:
            return self._failed(error, frozenset())
        return DONE

    def _failed(self, error: Any, proofs: frozenset[str]) -> Outcome:
        kind, text = kind_of(error)
        return Outcome(FAIL if kind in proofs else UNKNOWN, text, kind in USABLE)

    def receive(self, timeout_s: float) -> Delivery | None:
        each_ms = max(1, int(timeout_s * 1000 / len(self._consumers)))
        begun = time.monotonic()
        try:
            for address, consumer in self._consumers:
                java = consumer.receive(each_ms)
                if java is not None:
                    return self._delivery(address, java)
            if time.monotonic() - begun < timeout_s / 2 and self._core.isClosed():
                raise ClientError("OBJECT_CLOSED: the session is closed")
        except self._throwable as error:
            raise ClientError(kind_of(error)[1]) from None
        return None

    def _delivery(self, address: str, java: Any) -> Delivery:
        body = jpype.JArray(jpype.JByte)(int(java.getBodyLength()))
        java.readBytes(body)
        text = java.getStringProperty(self._meta)
        known = read_meta(self._tag, str(text)) if text is not None else None
        # What this run did not send keeps a name of its own: the analysis finds it unexpected.
        known = known or (f"foreign-{java.getJMSMessageID()}", 0, 0, None)
        message_id, attempt, seq, key = known
        digest = sha(memoryview(body).tobytes())
        return Delivery(address, message_id, attempt, seq, key, bool(java.getJMSRedelivered()), digest, java)

    def ack(self, delivery: Delivery) -> Outcome:
        try:
            delivery.handle.acknowledge()
        except self._throwable as error:
            return self._failed(error, frozenset())
        return DONE

    def browse(self, address: str) -> Iterable[Delivery]:
        try:
            browser = self._session.createBrowser(self._session.createQueue(address))
            try:
                return list(self._browsed(address, browser.getEnumeration()))
            finally:
                browser.close()
        except self._throwable as error:
            raise ClientError(kind_of(error)[1]) from None

    def _browsed(self, address: str, messages: Any) -> Iterator[Delivery]:
        while messages.hasMoreElements():
            yield self._delivery(address, messages.nextElement())

    def connection_id(self) -> int:
        return int(self._core.getConnection().hashCode())

    def _failover_event(self, event: Any) -> None:
        """Called by the library, in a thread of its own."""
        name = str(event.name())
        if name == "FAILURE_DETECTED":
            self._lost_ns = time.monotonic_ns()
        elif name == "FAILOVER_COMPLETED" and self._lost_ns is not None:
            self._reconnect = Reconnect(self._lost_ns, time.monotonic_ns())

    def reconnect(self) -> Reconnect | None:
        # The session may be back just before the library says so.
        found, self._reconnect = self._reconnect, None
        if found is None and self._lost_ns is not None:
            found = Reconnect(self._lost_ns, time.monotonic_ns())
        self._lost_ns = None
        return found

    def served_by(self) -> Endpoint | None:
        return endpoint_at(str(self._core.getConnection().getRemoteAddress()), self._config.endpoints)

    def close(self) -> Outcome:
        with self._lock:
            connection, self._connection = self._connection, None
        return DONE if connection is None else self._close(connection)

    def _close(self, connection: Any) -> Outcome:
        try:
            connection.close()
        except self._throwable as error:
            return Outcome(UNKNOWN, kind_of(error)[1])
        return DONE
