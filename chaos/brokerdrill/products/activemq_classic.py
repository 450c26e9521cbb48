"""ActiveMQ Classic: roles and counts by Jolokia, exact role times by the lines of its log.

A slave waits inside its start for the lock, with Jolokia open (see the role's activemq.xml): its bean says Slave. A
master whose connectors an IO exception handler has stopped serves nobody, and is not active.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from brokerdrill.inventory.descriptors import Descriptor, JolokiaManagement, Settings, management
from brokerdrill.products import jolokia
from brokerdrill.products.base import Management, QueueCounts
from brokerdrill.products.health import activemq_classic as health
from brokerdrill.products.jolokia import JolokiaClient
from brokerdrill.products.logs import LogReader

# From the broker's own classes (BrokerService, TransportConnector, the lockers); seen in failovers.
_CONNECTOR = re.compile(r"\bConnector (\S+) (started|stopped)$")
_WAITS = re.compile(
    r"is locked by another server\. This broker is now in slave mode"
    r"|attempting to acquire exclusive lease to become the master"
    r"|Attempting to acquire the exclusive lock to become the Master broker",
    re.IGNORECASE,
)
_STARTS = re.compile(r"Using Persistence Adapter:")


class _LogReader:
    """Active from the first connector's start to the last one's stop."""

    def __init__(self) -> None:
        self._open: set[str] = set()

    def __call__(self, text: str) -> str | None:
        if connector := _CONNECTOR.search(text.strip()):
            (self._open.add if connector[2] == "started" else self._open.discard)(connector[1])
            return "active" if self._open else "starting"
        if _WAITS.search(text):
            return "passive"
        return "starting" if _STARTS.search(text) else None


def counts_of(queue: Mapping[str, int]) -> QueueCounts:
    """Return the counts that a queue's attributes amount to. QueueSize includes what is handed out unacknowledged."""
    return QueueCounts(queue["QueueSize"], queue["InFlightCount"], 0, queue["EnqueueCount"], queue["ConsumerCount"])


class ActiveMQClassicSettings(Settings):
    """What failover depends on; None where the deployment has nothing of the kind."""

    lock_acquire_sleep_interval_ms: int | None = None
    lock_keep_alive_period_ms: int | None = None
    lease_duration_ms: int | None = None
    max_allowable_diff_from_db_time_ms: int | None = None
    io_exception_handler: Any = None
    restart_delay_s: int | None = None


class ActiveMQClassicDescriptor(Descriptor):
    """One broker; `locker` decides which one of a store is the master."""

    persistence_adapter: str | None = None
    locker: str | None = None
    management: JolokiaManagement | None = None
    settings: ActiveMQClassicSettings = ActiveMQClassicSettings()


class ClassicJolokia:
    """The management of one broker."""

    def __init__(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> None:
        self._name = management(descriptor, JolokiaManagement).broker_name
        self._broker = f"org.apache.activemq:type=Broker,brokerName={self._name}"
        self._client = JolokiaClient(descriptor, credentials, ca_pem)

    async def role(self) -> str:
        """Return the live role; `starting` while the broker's bean is missing, and while its connectors are stopped."""
        return health.health_of(await self._client.call(*health.requests(self._name))).state

    def _queue(self, address: str) -> str:
        return f"{self._broker},destinationType=Queue,destinationName={address}"

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        """Return each queue's counts; one that does not exist is left out."""
        names = ["QueueSize", "InFlightCount", "EnqueueCount", "ConsumerCount"]
        replies = await self._client.call(
            *({"type": "read", "mbean": self._queue(item), "attribute": names} for item in addresses)
        )
        return {name: counts_of(value) for name, value in jolokia.counted(addresses, replies).items()}

    async def prepared(self) -> Collection[str]:
        """Return the names of the beans of prepared (XA) transactions that were recovered."""
        (reply,) = await self._client.call(
            {"type": "search", "mbean": f"{self._broker},transactionType=RecoveredXaTransaction,*"}
        )
        return sorted(jolokia.answer(reply, "recovered transactions"))

    async def in_transit(self) -> int:
        """Return 0: the role connects no brokers to a network."""
        return 0

    async def purge(self, addresses: Sequence[str]) -> int:
        """Remove all messages of the queues of `addresses`; return how many the broker knew of.

        What the broker does not know to be in its store (rows of an outage of the database) stays there: the next
        takeover delivers it, and whoever receives it then knows by its header that it is an earlier run's.
        """
        before = await self.counts(addresses)
        if not before:
            return 0
        replies = await self._client.call(
            *({"type": "exec", "mbean": self._queue(name), "operation": "purge()"} for name in before)
        )
        for reply in replies:
            jolokia.answer(reply, "purge")
        return sum(found.messages for found in before.values())

    def renew(self, credentials: Mapping[str, str], ca_pem: str) -> None:
        self._client.renew(credentials, ca_pem)

    async def close(self) -> None:
        await self._client.close()


class ActiveMQClassic:
    """The product, as `products.registry` finds it."""

    name = "activemq_classic"
    client: str | None = "openwire"

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return ClassicJolokia(descriptor, credentials, ca_pem)

    def log_reader(self) -> LogReader:
        return _LogReader()


PRODUCT = ActiveMQClassic()
DESCRIPTOR = ActiveMQClassicDescriptor
