"""AMQP 1.0 clients: Qpid JMS, which is among the jars of Artemis' own distribution, under JPype.

Facts about Qpid JMS 1.17.0 and Artemis 2.56.0 that this rests on:
- the failover transport would hide to whom a connection went; without it, a lost connection ends with an exception;
- a persistent send waits for the broker's disposition, a commit for its transaction's; a commit that ends with a
  TransactionRolledBackException was rolled back;
- an acknowledgement is a disposition that nobody answers;
- a connection router refuses a connection with `amqp:connection:redirect`, which names host and port of the target.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jpype

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.client import FAIL, UNKNOWN, Aim, Delivery, Outcome, endpoint_at
from brokerdrill.workload.config import BrokerEndpoint, WorkerConfig, answered
from brokerdrill.workload.jms import Operation, host_of, query
from brokerdrill.workload.jms_window import WindowedJms
from brokerdrill.workload.jvm import tls_context
from brokerdrill.workload.routed_jms import RedirectedJms

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


def url(config: WorkerConfig, dialled: BrokerEndpoint, routed: Aim | None = None) -> str:
    """Return the connection URL: who is dialled, then the parameters."""
    scheme = "amqps" if config.tls_ca else "amqp"
    waits = dict.fromkeys(("jms.sendTimeout", "jms.requestTimeout"), str(config.call_timeout_ms))
    named = {"jms.clientID": routed.key} if routed and config.key_type == "CLIENT_ID" else {}
    answers = answered(config, "jms.forceSyncSend")
    params = {**URL_PARAMS, **waits, **answers, **named, **config.url_params}
    return f"{scheme}://{host_of(dialled.address)}:{dialled.port}?{query(params)}"


def outcome_of(kind: str, error: str) -> Outcome:
    """Return what an exception of class `kind` proves of the operation that ended with it; `error` is the ledger's."""
    if kind == ROLLED_BACK:
        return Outcome(FAIL, error)
    return Outcome(FAIL if kind in PROOFS else UNKNOWN, error, usable=False)


class AmqpJms(WindowedJms, RedirectedJms):
    """One AMQP 1.0 JMS connection and session."""

    protocol: ClassVar[str] = "amqp"
    jars = JARS

    @classmethod
    def _prepare_process(cls, config: WorkerConfig) -> None:
        if config.routers and config.key_type == "SNI_HOST":
            raise InfrastructureError("AMQP's clients cannot choose the server name that they ask for")

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self._number = 0
        self._broken: str | None = None

    def _factory(self, dialled: Sequence[BrokerEndpoint]) -> Any:
        """A factory dials the first of them alone; see `_connect_to`."""
        made = url(self._config, dialled[0], self._aimed)
        factory = jpype.JClass("org.apache.qpid.jms.JmsConnectionFactory")(made)
        if self._config.tls_ca:
            factory.setSslContext(tls_context(self._config.tls_ca))
        return factory

    def _connect_to(self, dialled: Sequence[BrokerEndpoint]) -> Any:
        """Dial one after the other; the last one's throwable is raised."""
        for endpoint in dialled[:-1]:
            with contextlib.suppress(self._throwable):
                return super()._connect_to((endpoint,))
        return super()._connect_to(dialled[-1:])

    def _redirected(self, error: Any) -> str | None:
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

    def served_by(self) -> BrokerEndpoint | None:
        uri = self._connection.getConnectedURI()
        return None if uri is None else endpoint_at(f"{uri.getHost()}:{uri.getPort()}", self._config.endpoints)
