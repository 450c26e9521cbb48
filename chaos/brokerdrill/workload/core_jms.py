"""CORE (Artemis) clients: the broker's own JMS client jars under JPype.

Facts about Artemis 2.56.0 that this rests on, each held by tests/workload:
- a transacted send does not wait for the broker, the commit does;
- the library fails over by itself. A transaction that had work before is then rolled back by the client, which proves
  it (TRANSACTION_ROLLED_BACK); one whose commit was under way ends as TRANSACTION_OUTCOME_UNKNOWN;
- a batch the broker has already is refused at the commit with DUPLICATE_ID_REJECTED; outside a transaction the broker
  drops the duplicate and answers as if it had taken it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jpype

from brokerdrill.workload.client import (
    FAIL,
    OK,
    REFUSED_AS_DUPLICATE,
    UNKNOWN,
    Aim,
    ClientError,
    Message,
    Outcome,
    endpoint_at,
    endpoint_certified,
)
from brokerdrill.workload.config import CONFIRMATION_WINDOW, NO_KEY, BrokerEndpoint, Router, WorkerConfig
from brokerdrill.workload.jms import Operation, host_of, query
from brokerdrill.workload.jms_window import WindowedJms
from brokerdrill.workload.jvm import described, first_line
from brokerdrill.workload.routed_jms import RoutedJms

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

CONFIRMED_BYTES = "1048576"
DUPLICATE_ID = "_AMQ_DUPL_ID"

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


def url(config: WorkerConfig, dialled: Sequence[BrokerEndpoint], routed: Aim | None = None) -> str:
    """Return the connection URL: all that is `dialled`, then the parameters."""
    own = {"sslEnabled": "true", "verifyHost": "true", "trustStoreType": "PEMCA", "trustStorePath": config.tls_ca or ""}
    key = routed.key if routed and routed.key != NO_KEY else None
    if key and config.key_type == "SNI_HOST":
        own["sniHost"] = key
    end = "?" + query(own) if config.tls_ca else ""
    places = ",".join(f"tcp://{host_of(item.address)}:{item.port}{end}" for item in dialled)
    # In a transaction the commit proves the acknowledgements; waiting for each as well can hang in a failover.
    each = {"blockOnAcknowledge": "false" if config.transaction else "true"}
    named = {"clientID": key} if key and config.key_type == "CLIENT_ID" else {}
    # Who is led goes back to its router when its broker is gone; with 0 the library takes a redirect for a failure.
    led = {"reconnectAttempts": "1"} if routed else {}
    answers = {CONFIRMATION_WINDOW: CONFIRMED_BYTES} if config.window > 1 else {}
    timeout = {"callTimeout": str(config.call_timeout_ms)}
    params = {**URL_PARAMS, **each, **named, **led, **answers, **timeout, **config.url_params}
    return f"({places})?{query(params)}"


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
    return "", described(error)


def shown_names(connection: Any) -> set[str]:
    """Return the names and addresses of the certificate that the peer of a CORE connection has shown; none of one that
    is closed, or without TLS."""
    netty = connection.getTransportConnection().getChannel().pipeline()
    handler = netty.get(jpype.JClass("io.netty.handler.ssl.SslHandler").class_)
    if handler is None:
        return set()
    try:
        shown = handler.engine().getSession().getPeerCertificates()
    except jpype.JClass("javax.net.ssl.SSLPeerUnverifiedException"):
        return set()
    return {str(name.get(1)) for name in shown[0].getSubjectAlternativeNames() or ()}


class CoreJms(WindowedJms, RoutedJms):
    """One CORE JMS connection and session."""

    protocol: ClassVar[str] = "core"
    jars = JARS
    message_ids = False

    @classmethod
    def _jvm_options(cls, config: WorkerConfig) -> Sequence[str]:
        """The TLS properties count for connectors that the broker announces, too: after a failover the library uses
        those, and the paths in them are the broker's."""
        if not config.tls_ca:
            return ()
        return (
            f"-Dorg.apache.activemq.ssl.trustStore={config.tls_ca}",
            "-Dorg.apache.activemq.ssl.trustStoreType=PEMCA",
        )

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self._core: Any = None
        self._made: Any = None

    def _factory(self, dialled: Sequence[BrokerEndpoint]) -> Any:
        kind = jpype.JClass("org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory")
        self._made = kind(url(self._config, dialled, self._aimed))
        return self._made

    def _close(self, connection: Any) -> Outcome:
        outcome = super()._close(connection)
        # A factory keeps what it knows of brokers; one that each connection has anew would be kept for each.
        if self._aimed and self._made is not None:
            self._made.close()
        return outcome

    def _connected(self, connection: Any) -> None:
        listener = "org.apache.activemq.artemis.api.core.client.FailoverEventListener"
        connection.setFailoverListener(jpype.JProxy(listener, dict={"failoverEvent": self._failover_event}))

    def _failover_event(self, event: Any) -> None:
        """Called by the library, in a thread of its own."""
        name = str(event.name())
        if name == "FAILURE_DETECTED":
            self._outage.begins(anew=True)
        elif name == "FAILOVER_COMPLETED":
            self._outage.ends()

    def _opened(self, connection: Any, session: Any) -> None:
        self._core = session.getCoreSession()

    def _answered(self) -> bool:
        """Whether a router serves the session itself. Sent to a broker that had just gone, or back to the router when
        its broker goes, the library was seen to keep a connection to the router, whose session it closes at once."""
        text = jpype.JClass("org.apache.activemq.artemis.api.core.SimpleString")
        try:
            self._core.addressQuery(text.of(self._config.addresses[0]))
        except self._throwable:
            return False
        return True

    def _described(self, error: Any) -> str:
        return kind_of(error)[1]

    def _outcome(self, error: Any, operation: Operation) -> Outcome:
        kind, text = kind_of(error)
        proofs = SEND_PROOFS if operation == "send" else frozenset()
        return Outcome(FAIL if kind in proofs else UNKNOWN, text, kind in USABLE)

    def _commit_outcome(self, error: Any, *, resent: bool) -> Outcome:
        kind, text = kind_of(error)
        # Where the library has not rolled back itself, what is left of the batch must not meet its own retry in
        # one transaction: the broker would refuse that as a duplicate, and it would pass for a proof.
        usable = kind in ROLLED_BACK_ITSELF or (kind in USABLE and self.rollback().result == OK)
        if kind == REFUSED:
            return REFUSED_AS_DUPLICATE._replace(usable=usable) if resent else Outcome(FAIL, text, usable)
        return Outcome(FAIL if kind in COMMIT_PROOFS else UNKNOWN, text, usable)

    def _marks(self, batch: Sequence[Message]) -> Mapping[str, Sequence[str]]:
        if not self._config.duplicate_detection:
            return {}
        return {DUPLICATE_ID: [f"{self._tag}-{message.message_id}" for message in batch]}

    def _ended(self) -> str | None:
        return "OBJECT_CLOSED: the session is closed" if self._core.isClosed() else None

    def connection_id(self) -> int:
        return int(self._core.getConnection().hashCode())

    def served_by(self) -> BrokerEndpoint | None:
        connection = self._core.getConnection()
        found = endpoint_at(str(connection.getRemoteAddress()), (*self._config.endpoints, *self._config.routers))
        if not isinstance(found, Router):
            return found
        if found.relays:
            return endpoint_certified(shown_names(connection), self._config.endpoints)
        if not self._answered():
            raise ClientError(f"neither served nor led on by {found.instance}")
        return found
