"""Open MQ: roles and counts by Jolokia, exact role times by the lines of its log.

Every broker of a cluster serves, and has a store of its own. In an enhanced cluster one that took over the store of
another one stays `active` for its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from brokerdrill.inventory.descriptors import Descriptor, ManagementAccess, Settings, management
from brokerdrill.products import jolokia
from brokerdrill.products.base import Management, QueueCounts
from brokerdrill.products.health import openmq as health
from brokerdrill.products.jolokia import JolokiaClient
from brokerdrill.products.logs import LogReader, by_words

_COUNTS = ["NumMsgs", "NumMsgsRemote", "NumMsgsPendingAcks", "NumMsgsInDelayDelivery", "NumMsgsIn", "NumConsumers"]
# The state of a transaction that waits for its second phase, as the broker's TransactionState names it.
_PREPARED = "PREPARED"

# The broker's own numbers of its messages (BrokerResources), and systemd's words on the unit, in the same journal.
_ROLES = by_words(
    (r"\[B1039\]", "active"),  # ready
    (r"\[B1060\]", "starting"),  # loads persistent data
    (r"\[B1047\]|\[B1048\]", "starting"),  # shuts down
)


def counts_of(destinations: Iterable[Mapping[str, int]]) -> QueueCounts:
    """Return the counts that the attributes of an address's destinations amount to, a queue or a topic: a broker's own
    messages and those of others that it holds for its consumers."""
    found = list(destinations)
    return QueueCounts(
        sum(item["NumMsgs"] + item["NumMsgsRemote"] for item in found),
        sum(item["NumMsgsPendingAcks"] for item in found),
        sum(item["NumMsgsInDelayDelivery"] for item in found),
        sum(item["NumMsgsIn"] for item in found),
        sum(item["NumConsumers"] for item in found),
    )


def holds(transaction: Mapping[str, Any]) -> bool:
    """Return whether the broker's information on a transaction says that it is prepared with something in it."""
    return transaction["StateLabel"] == _PREPARED and transaction["NumMsgs"] + transaction["NumAcks"] > 0


class OpenMqManagement(ManagementAccess):
    """Where a broker is managed, and the name of the service that its JMS clients connect to."""

    service: str


class OpenMqSettings(Settings):
    """What a takeover in an enhanced cluster depends on."""

    heartbeat_ms: int | None = None
    heartbeat_threshold: int | None = None
    monitor_ms: int | None = None
    monitor_threshold: int | None = None
    restart_delay_s: int | None = None


class OpenMqDescriptor(Descriptor):
    """One broker; `cluster` is the model of its cluster."""

    cluster: str = "none"
    management: OpenMqManagement | None = None
    settings: OpenMqSettings = OpenMqSettings()


class OpenMqJolokia:
    """The management of one broker."""

    def __init__(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> None:
        self._service = management(descriptor, OpenMqManagement).service
        self._client = JolokiaClient(descriptor, credentials, ca_pem)

    async def role(self) -> str:
        """Return the live role; `starting` while the beans are missing."""
        return health.health_of(await self._client.call(*health.requests(self._service))).state

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        """Return each address's counts; one that does not exist is left out."""
        return {name: counts_of(found.values()) for name, found in (await self._monitors(addresses)).items()}

    async def _monitors(self, addresses: Sequence[str]) -> dict[str, dict[str, dict[str, int]]]:
        """Return the counts of each address that exists, by the bean that monitors its queue or topic."""
        replies = await self._client.call(
            *(
                {"type": "read", "mbean": f"{_destination(name)},subtype=Monitor", "attribute": _COUNTS}
                for name in addresses
            )
        )
        return jolokia.counted(addresses, replies)

    async def prepared(self) -> Collection[str]:
        """Return the ids of the transactions that are prepared and hold something. One that spans brokers may stay in
        the list for ever after one of them ended (FINDINGS.md); what it holds at another one is unacknowledged there.
        """
        (reply,) = await self._client.call(
            {"type": "exec", "mbean": f"{health.BEANS},type=TransactionManager", "operation": "getTransactionInfo()"}
        )
        found = jolokia.answer(reply, "transactions") or []
        return sorted(str(item["TransactionID"]) for item in found if holds(item))

    async def in_transit(self) -> int:
        """Return 0: what is on its way to another broker is counted where it came from until it is acknowledged."""
        return 0

    async def purge(self, addresses: Sequence[str]) -> int:
        """Remove all messages of the queues and topics of `addresses`; return how many the broker knew of."""
        before = await self._monitors(addresses)
        if not before:
            return 0
        beans = [bean.replace("subtype=Monitor", "subtype=Config") for found in before.values() for bean in found]
        replies = await self._client.call(*({"type": "exec", "mbean": bean, "operation": "purge()"} for bean in beans))
        for reply in replies:
            jolokia.answer(reply, "purge")
        return sum(counts_of(found.values()).messages for found in before.values())

    def renew(self, credentials: Mapping[str, str], ca_pem: str) -> None:
        self._client.renew(credentials, ca_pem)

    async def close(self) -> None:
        await self._client.close()


def _destination(name: str) -> str:
    """Return the pattern of the beans of an address: its queue's and its topic's."""
    return f'com.sun.messaging.jms.server:type=Destination,desttype=*,name="{name}"'


class OpenMq:
    """The product, as `products.registry` names it."""

    name = "openmq"
    client: str | None = "openmq"

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return OpenMqJolokia(descriptor, credentials, ca_pem)

    def log_reader(self) -> LogReader:
        return _ROLES


PRODUCT = OpenMq()
DESCRIPTOR = OpenMqDescriptor
