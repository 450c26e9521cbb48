"""OpenWire (ActiveMQ Classic) clients: the broker's own JMS client jars under JPype, with the `failover:` transport.

Facts about ActiveMQ Classic 5.18.3 that this rests on:
- the transport fails over by itself. A send that waits for its reply is sent again with its own message id, and the
  broker drops what it has already; a commit whose reply is missing is never sent again: it ends as
  TransactionRolledBackException ("completion in doubt"), and whether the broker has it nobody knows;
- in a transaction sends do not wait for the broker, the commit does; outside of one, a persistent send waits;
- acknowledgements are sent without waiting unless `jms.sendAcksAsync` is false;
- the connection's audit (`jms.checkForDuplicates`) drops what it has delivered before: `duplicate_detection` here.

And about Artemis 2.56.0, whose connection routers lead these clients, too: a router names the target as `tcp://`,
whatever its connector says, and closes the connection (OpenWireRoutingHandler). A client with TLS that followed by
itself (`updateURIsSupported`) would speak plainly to the target; so the redirect is read here, and followed by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jpype

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.client import FAIL, UNKNOWN, Aim, Browsing, Outcome, endpoint_at
from brokerdrill.workload.config import BrokerEndpoint, WorkerConfig, answered
from brokerdrill.workload.jms import Operation, host_of, query
from brokerdrill.workload.jvm import first_line, trust_managers
from brokerdrill.workload.routed_jms import RedirectedJms

# The client's jars among the distribution's: with all of them, log4j would take the process's standard output.
JARS = (
    "activemq-client-",
    "jakarta.jms-api-",
    "hawtbuf-",
    "slf4j-api-",
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

LISTENER = "org.apache.activemq.transport.TransportListener"
IN_DOUBT = "in doubt"
# What proves that an operation did not happen, by the exception's class.
PROOFS = frozenset({"JMSSecurityException", "InvalidDestinationException"})
ROLLED_BACK = "TransactionRolledBackException"


def url(config: WorkerConfig, dialled: Sequence[BrokerEndpoint], routed: Aim | None = None) -> str:
    """Return the connection URL: all that is `dialled` in one failover transport, then its parameters.

    Who is led asks again once its connection is lost.
    """
    scheme = "ssl" if config.tls_ca else "tcp"
    places = ",".join(f"{scheme}://{host_of(item.address)}:{item.port}" for item in dialled)
    own = {
        "timeout": str(config.call_timeout_ms),
        # Else who is redirected may wait for the answer to its first request for ever (FINDINGS.md).
        "jms.connectResponseTimeout": str(config.call_timeout_ms),
        "jms.checkForDuplicates": "true" if config.duplicate_detection else "false",
    }
    led = {"maxReconnectAttempts": "0"} if routed else {}
    named = {"jms.clientID": routed.key} if routed and config.key_type == "CLIENT_ID" else {}
    answers = answered(config, "jms.alwaysSyncSend")
    params = {**URL_PARAMS, **own, **answers, **led, **named, **config.url_params}
    return f"failover:({places})?{query(params)}"


def place_of(brokers: str) -> str | None:
    """Return `ADDRESS:PORT` of the first of a redirect's brokers, None where it names none."""
    first = brokers.split(",")[0].strip()
    return first.rpartition("/")[2] or None


def outcome_of(kind: str, text: str) -> Outcome:
    """Return what the exception of class `kind` with the message `text` proves of the operation that ended with it.

    A rollback that the library reports is proof, unless it says that the completion is in doubt; the session can then
    be used on.
    """
    error = f"{kind}: {first_line(text)}"
    if kind == ROLLED_BACK:
        return Outcome(UNKNOWN if IN_DOUBT in text else FAIL, error)
    return Outcome(FAIL if kind in PROOFS else UNKNOWN, error, usable=False)


def _listener(event: str, call: Callable[[], None]) -> Any:
    """Return a listener to the transport that calls `call` at one of its events, and stays in Java at all others.

    A listener in Python would be called with each message, which costs 17 us and, in JPype 1.7.1, 800 bytes that are
    never given back.
    """
    run = jpype.JProxy("java.lang.Runnable", dict={"run": call})
    handler = jpype.JClass("java.beans.EventHandler")
    return handler.create(jpype.JClass(LISTENER).class_, run, "run", None, event)


class OpenWireJms(RedirectedJms):
    """One OpenWire JMS connection and session."""

    protocol: ClassVar[str] = "openwire"
    # A broker's browsers end with what of a queue fits into its memory, and do not say that there is more.
    browsing: ClassVar[Browsing] = "shows"
    jars = JARS

    @classmethod
    def _prepare_process(cls, config: WorkerConfig) -> None:
        if config.routers and config.key_type == "SNI_HOST":
            raise InfrastructureError("OpenWire's clients cannot choose the server name that they ask for")

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self._told: str | None = None
        self._transport: Any = None
        self._interruptions = 0
        self._known = 0
        self._up = threading.Event()
        self._commands: Any = None

    def _factory(self, dialled: Sequence[BrokerEndpoint]) -> Any:
        made = url(self._config, dialled, self._aimed)
        factory = jpype.JClass("org.apache.activemq.ActiveMQSslConnectionFactory")(made)
        if self._config.tls_ca:
            factory.setKeyAndTrustManagers(None, trust_managers(self._config.tls_ca), None)
        return factory

    def _connect(self) -> Any:
        self._told = None
        return super()._connect()

    def _redirected(self, error: Any) -> str | None:
        """The router names who serves in a command, and ends the connection."""
        return self._told

    def _connected(self, connection: Any) -> None:
        connection.addTransportListener(_listener("transportInterupted", self._interrupted))
        connection.addTransportListener(_listener("transportResumed", self._resumed))
        if self._aimed:
            # What is set before the session is open: after that each message would be a call into Python.
            done = dict.fromkeys(("onException", "transportInterupted", "transportResumed"), lambda *_: None)
            self._commands = jpype.JProxy(LISTENER, dict={"onCommand": self._on_command, **done})
            connection.addTransportListener(self._commands)
        failover = jpype.JClass("org.apache.activemq.transport.failover.FailoverTransport")
        self._transport = connection.getTransport().narrow(failover.class_)
        connection.start()

    def _on_command(self, command: Any) -> None:
        """Called by the library, in a thread of its own, with all that the router sends."""
        if command.isConnectionControl() and command.getConnectedBrokers():
            self._told = place_of(str(command.getConnectedBrokers()))

    def _opened(self, connection: Any, session: Any) -> None:
        if self._commands is not None:
            connection.removeTransportListener(self._commands)
            self._commands = None
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
        self._outage.begins()

    def _resumed(self) -> None:
        """Called by the library, in a thread of its own, when it has a connection again."""
        self._outage.ends()
        self._up.set()

    def served_by(self) -> BrokerEndpoint | None:
        # Null between two brokers, and for ever once the transport has been given up.
        uri = self._transport.getConnectedTransportURI()
        return None if uri is None else endpoint_at(f"{uri.getHost()}:{uri.getPort()}", self._config.endpoints)
