"""AMQP 1.0 clients: Qpid JMS, which is among the jars of Artemis' own distribution, under JPype.

Facts about Qpid JMS 1.17.0 and Artemis 2.56.0 that this rests on:
- the failover transport would hide to whom a connection went; without it, a lost connection ends with an exception;
- a persistent send waits for the broker's disposition, a commit for its transaction's; a commit that ends with a
  TransactionRolledBackException was rolled back;
- an acknowledgement is a disposition that nobody answers;
- a connection router refuses a connection with `amqp:connection:redirect`, which names host and port of the target.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import jpype

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.client import FAIL, UNKNOWN, Aim, ClientError, Delivery, Outcome, endpoint_at
from brokerdrill.workload.config import Endpoint, Router, WorkerConfig
from brokerdrill.workload.jms import JmsClient, Operation, host_of, query, trust_managers

# The client's jars among the distribution's: with all of them, log4j would take the process's standard output.
JARS = ("qpid-jms-client-", "proton-j-", "netty-", "slf4j-api-", "jakarta.jms-api-")
# Of the connection URL; WorkerConfig.url_params come after and win.
URL_PARAMS: Mapping[str, str] = {
    "jms.prefetchPolicy.all": "100",
    "jms.connectTimeout": "5000",
    "jms.closeTimeout": "5000",
    # A peer that is silent without closing its connection is given up after this, in ms.
    "amqp.idleTimeout": "10000",
    "transport.connectTimeout": "3000",
}

# What proves that an operation did not happen, by the exception's class.
PROOFS = frozenset({"JMSSecurityException", "InvalidDestinationException", "ResourceAllocationException"})
ROLLED_BACK = "TransactionRolledBackException"
UNANSWERED = "an acknowledgement has no answer"

_opened = itertools.count(1)


def url(config: WorkerConfig, dialled: Endpoint, routed: Aim | None = None) -> str:
    """Return the connection URL: who is dialled, then the parameters."""
    scheme = "amqps" if config.tls_ca else "amqp"
    waits = dict.fromkeys(("jms.sendTimeout", "jms.requestTimeout"), str(config.call_timeout_ms))
    named = {"jms.clientID": routed.key} if routed and config.key_type == "CLIENT_ID" else {}
    params = {**URL_PARAMS, **waits, **named, **config.url_params}
    return f"{scheme}://{host_of(dialled.address)}:{dialled.port}?{query(params)}"


def outcome_of(kind: str, error: str) -> Outcome:
    """Return what an exception of class `kind` proves of the operation that ended with it; `error` is the ledger's."""
    if kind == ROLLED_BACK:
        return Outcome(FAIL, error)
    return Outcome(FAIL if kind in PROOFS else UNKNOWN, error, usable=False)


class AmqpJms(JmsClient):
    """One AMQP 1.0 JMS connection and session."""

    protocol: ClassVar[str] = "amqp"
    jars = JARS

    @classmethod
    def _prepare_process(cls, config: WorkerConfig) -> None:
        if config.routers and config.key_type == "SNI_HOST":
            raise InfrastructureError("AMQP's clients cannot choose the server name that they ask for")

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self._aimed: Aim | None = None
        self._number = 0
        self._broken: str | None = None

    def aim(self, router: Router, key: str) -> None:
        self._aimed = Aim(router, key)

    def _dialling(self, dialled: Endpoint) -> Any:
        factory = jpype.JClass("org.apache.qpid.jms.JmsConnectionFactory")(url(self._config, dialled, self._aimed))
        if self._config.tls_ca:
            context = jpype.JClass("javax.net.ssl.SSLContext").getInstance("TLS")
            context.init(None, trust_managers(self._config.tls_ca), None)
            factory.setSslContext(context)
        return factory

    def _connect(self) -> Any:
        """Dial the endpoints in turn, or ask the router: either it serves, or it names who does."""
        if self._aimed is None:
            return self._first_of_endpoints()
        try:
            return self._made_by(self._dialling(self._aimed.router))
        except self._throwable as error:
            told = self._redirected(error)
            if told is None:
                raise ClientError(f"the router names nobody: {self._described(error)}") from None
        target = endpoint_at(told, self._config.endpoints)
        if target is None:
            raise ClientError(f"the router names {told}, which is none of the brokers")
        return self._made_by(self._dialling(target))

    def _first_of_endpoints(self) -> Any:
        problems = []
        for endpoint in self._config.endpoints:
            try:
                return self._made_by(self._dialling(endpoint))
            except self._throwable as error:
                problems.append(f"{endpoint.instance}: {self._described(error)}")
        raise ClientError("; ".join(problems))

    def _redirected(self, error: Any) -> str | None:
        """Return `ADDRESS:PORT` of where the router sends the client, None where it sends it nowhere."""
        kind = jpype.JClass("org.apache.qpid.jms.provider.exceptions.ProviderConnectionRedirectedException")
        at = error
        for _ in range(10):
            if at is None:
                return None
            if isinstance(at, kind):
                uri = at.getRedirectionURI()
                return f"{uri.getHost()}:{uri.getPort()}"
            at = at.getCause()
        return None

    def _connected(self, connection: Any) -> None:
        self._broken = None
        listener = jpype.JProxy("javax.jms.ExceptionListener", dict={"onException": self._on_exception})
        connection.setExceptionListener(listener)
        connection.start()  # which is what connects

    def _on_exception(self, error: Any) -> None:
        """Called by the library, in a thread of its own, when it has lost the connection."""
        self._broken = self._described(error)

    def _opened(self, connection: Any, session: Any) -> None:
        self._number = next(_opened)

    def _outcome(self, error: Any, operation: Operation) -> Outcome:
        return outcome_of(str(error.getClass().getSimpleName()), self._described(error))

    def ack(self, delivery: Delivery) -> Outcome:
        outcome = super().ack(delivery)
        return Outcome(UNKNOWN, UNANSWERED) if outcome.error is None else outcome

    def _ended(self) -> str | None:
        return self._broken

    def connection_id(self) -> int:
        return self._number

    def served_by(self) -> Endpoint | None:
        uri = self._connection.getConnectedURI()
        return None if uri is None else endpoint_at(f"{uri.getHost()}:{uri.getPort()}", self._config.endpoints)
