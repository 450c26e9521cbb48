"""OpenWire (ActiveMQ Classic) clients: the broker's own JMS client jars under JPype, with the `failover:` transport.

Facts about ActiveMQ Classic 5.18.3 that this rests on:
- the transport fails over by itself. A send that waits for its reply is sent again with its own message id, and the
  broker drops what it has already; a commit whose reply is missing is never sent again: it ends as
  TransactionRolledBackException ("completion in doubt"), and whether the broker has it nobody knows;
- in a transaction sends do not wait for the broker, the commit does; outside of one, a persistent send waits;
- acknowledgements are sent without waiting unless `jms.sendAcksAsync` is false;
- the connection's audit (`jms.checkForDuplicates`) drops what it has delivered before: `duplicate_detection` here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import jpype

from brokerdrill.workload.client import FAIL, UNKNOWN, Outcome, endpoint_at
from brokerdrill.workload.config import Endpoint, WorkerConfig
from brokerdrill.workload.jms import JmsClient, Operation, first_line, host_of, query, trust_managers

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


class OpenWireJms(JmsClient):
    """One OpenWire JMS connection and session."""

    protocol: ClassVar[str] = "openwire"
    jars = JARS

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self._transport: Any = None
        self._interruptions = 0
        self._known = 0
        self._up = threading.Event()

    def _factory(self) -> Any:
        factory = jpype.JClass("org.apache.activemq.ActiveMQSslConnectionFactory")(url(self._config))
        if self._config.tls_ca:
            factory.setKeyAndTrustManagers(None, trust_managers(self._config.tls_ca), None)
        return factory

    def _connected(self, connection: Any) -> None:
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
        self._transport = connection.getTransport().narrow(failover.class_)
        connection.start()

    def _opened(self, connection: Any, session: Any) -> None:
        self._up.set()

    def _outcome(self, error: Any, operation: Operation) -> Outcome:
        return outcome_of(str(error.getClass().getSimpleName()), str(error.getMessage()))

    def _succeeded(self) -> None:
        """It may have come by a new connection, just before the library says that there is one."""
        if self._interruptions != self._known:
            self._up.wait(RESUMED_S)

    def _connections_lost(self) -> int:
        return self._interruptions

    def _ended(self) -> str | None:
        over = self._connection.isTransportFailed() or self._connection.isClosed()
        return "the connection is closed" if over else None

    def connection_id(self) -> int:
        # Between two connections it is still the old one's.
        if self._up.is_set():
            self._known = self._interruptions
        return self._known

    def _interrupted(self) -> None:
        """Called by the library, in a thread of its own, before it looks for another broker."""
        self._up.clear()
        self._interruptions += 1
        self._connection_lost()

    def _resumed(self) -> None:
        """Called by the library, in a thread of its own, when it has a connection again."""
        self._connection_back()
        self._up.set()

    def served_by(self) -> Endpoint | None:
        # Null between two brokers, and for ever once the transport has been given up.
        uri = self._transport.getConnectedTransportURI()
        return None if uri is None else endpoint_at(f"{uri.getHost()}:{uri.getPort()}", self._config.endpoints)
