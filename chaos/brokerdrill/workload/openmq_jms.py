"""Open MQ clients: the product's own JMS client jars under JPype.

Facts about Open MQ 6.5.1 that this rests on:
- every broker of a cluster serves: each client's address list begins with another one, so that they are spread evenly,
  and after a lost connection with the next one: a broker that stands still takes a new connection, and never answers;
- a lost connection ends with an exception after 3 s (ReadChannel.recover2), and the next `open` walks through the list;
- of an enhanced cluster the library reconnects by itself, however configured. It asks first 6 s after the loss, again
  6 s after a broker that does not have its store, 3 s after an address where nothing answers. It begins with the next
  address where the list is its own (STATIC_LIST), else with the first of the brokers' list, often the one that is dead;
- a persistent send and a commit wait for the broker, for ever unless imqAckTimeout says how long;
- a commit that ends with a TransactionRolledBackException was rolled back, by the broker or by the session itself;
- the address of a service goes there directly; the port mapper is not asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jpype

from brokerdrill.workload.client import FAIL, UNKNOWN, Outcome, endpoint_at
from brokerdrill.workload.config import BrokerEndpoint, WorkerConfig, answered
from brokerdrill.workload.jms import JmsClient, Operation, host_of
from brokerdrill.workload.jvm import tls_context

# Of the connection factory, by their own names; WorkerConfig.url_params come after and win.
PROPERTIES: Mapping[str, str] = {
    "imqAddressListBehavior": "PRIORITY",
    "imqAddressListIterations": "1",
    "imqReconnectEnabled": "false",
    "imqReconnectInterval": "100",  # ms between two addresses of the list
    "imqSSLIsHostTrusted": "false",
    "imqSocketConnectTimeout": "3000",  # ms
    # A peer that is silent without closing its connection is asked once nothing was sent or received for up to three
    # times the first, in s, and given up after the second, in ms.
    "imqPingInterval": "3",
    "imqAbortOnPingAckTimeout": "true",
    "imqPingAckTimeout": "3000",
}

# A property of the Java virtual machine: keep imqAddressList, take no other list from an enhanced cluster's brokers.
STATIC_LIST = "imq.useStaticAddressList"

# What proves that an operation did not happen, by the exception's class.
PROOFS = frozenset({"JMSSecurityException", "InvalidDestinationException", "ResourceAllocationException"})
ROLLED_BACK = "TransactionRolledBackException"

_opened = itertools.count(1)


def place_of(config: WorkerConfig, name: str) -> int:
    """Return the place of the client `name` among the worker's; 0 for one that is none of its load."""
    names = [spec.name for specs in (config.producers, config.consumers) for spec in specs]
    return names.index(name) if name in names else 0


def addresses(config: WorkerConfig, dialled: Sequence[BrokerEndpoint], begin: int) -> str:
    """Return the address list: the service of JMS connections of each broker that is `dialled`, from the one at the
    place `begin` on, counted round and round."""
    scheme, service = ("mqssl", "ssljms") if config.tls_ca else ("mqtcp", "jms")
    first = begin % len(dialled)
    ordered = [*dialled[first:], *dialled[:first]]
    return ",".join(f"{scheme}://{host_of(item.address)}:{item.port}/{service}" for item in ordered)


def properties(config: WorkerConfig, dialled: Sequence[BrokerEndpoint], begin: int) -> dict[str, str]:
    """Return the properties of a connection factory; `begin` as of `addresses`."""
    own = {"imqAddressList": addresses(config, dialled, begin), "imqAckTimeout": str(config.call_timeout_ms)}
    return {**PROPERTIES, **own, **answered(config, "imqAckOnProduce"), **config.url_params}


def outcome_of(kind: str, error: str) -> Outcome:
    """Return what an exception of class `kind` proves of the operation that ended with it; `error` is the ledger's."""
    if kind == ROLLED_BACK:
        return Outcome(FAIL, error)
    return Outcome(FAIL if kind in PROOFS else UNKNOWN, error, usable=False)


class OpenMqJms(JmsClient):
    """One Open MQ connection and session."""

    protocol: ClassVar[str] = "openmq"
    jars = ("imq.", "jms.")
    api = "jakarta.jms"

    @classmethod
    def _prepare_process(cls, config: WorkerConfig) -> None:
        """The library takes the process's default TLS context, and whose list of addresses holds from a property."""
        jpype.JClass("java.lang.System").setProperty(STATIC_LIST, "true")
        if config.tls_ca:
            jpype.JClass("javax.net.ssl.SSLContext").setDefault(tls_context(config.tls_ca))

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self._number = 0
        self._broken: str | None = None
        self._begin = place_of(config, name)

    def _factory(self, dialled: Sequence[BrokerEndpoint]) -> Any:
        factory = jpype.JClass("com.sun.messaging.ConnectionFactory")()
        for name, value in properties(self._config, dialled, self._begin).items():
            factory.setProperty(name, value)
        # Whoever does not serve now is not the first to be asked next.
        self._begin += 1
        return factory

    def _connected(self, connection: Any) -> None:
        self._broken = None
        listener = jpype.JProxy("jakarta.jms.ExceptionListener", dict={"onException": self._on_exception})
        connection.setExceptionListener(listener)

    def _on_exception(self, error: Any) -> None:
        """Called by the library, in a thread of its own, when it has lost the connection for good."""
        self._broken = self._described(error)

    def _opened(self, connection: Any, session: Any) -> None:
        self._number = next(_opened)
        served = endpoint_at(str(connection.getBrokerAddress()), self._config.endpoints)
        if served is not None:
            self._begin = self._config.endpoints.index(served) + 1

    def _outcome(self, error: Any, operation: Operation) -> Outcome:
        return outcome_of(str(error.getClass().getSimpleName()), self._described(error))

    def _ended(self) -> str | None:
        return self._broken

    def connection_id(self) -> int:
        return self._number

    def served_by(self) -> BrokerEndpoint | None:
        return endpoint_at(str(self._connection.getBrokerAddress()), self._config.endpoints)
