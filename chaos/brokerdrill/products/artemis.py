"""Apache Artemis: roles and counts by Jolokia, exact role times by the message codes of its log."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from brokerdrill.inventory.descriptors import Descriptor, JolokiaManagement, Part, Settings, management
from brokerdrill.products import jolokia
from brokerdrill.products.base import Management, QueueCounts
from brokerdrill.products.health import artemis as health
from brokerdrill.products.jolokia import JolokiaClient
from brokerdrill.products.logs import LogReader
from brokerdrill.workload.asking import place_in, question

# What each code of the broker's log says about its role. From the product's own message bundle
# (org.apache.activemq.artemis.core.server.ActiveMQServerLogger); seen in failovers and failbacks.
# AMQ221031 (backup announced) is not among them: it comes before or after the synchronisation, as it happens.
_CODES: Mapping[str, str] = {
    "AMQ221000": "starting",  # a server starts with a configuration
    "AMQ221002": "down",  # stopped
    "AMQ221007": "active",  # server is now active
    "AMQ221010": "active",  # the backup of a shared store is now active
    "AMQ221024": "passive",  # backup is synchronised with the primary
    "AMQ221109": "syncing",  # backup started, waiting for a primary
}
_XID = re.compile(r"\bbase64: (\S+)")
_CODE = re.compile(r"\bAMQ\d{6}\b")


def _log_role(text: str) -> str | None:
    code = _CODE.search(text)
    return _CODES.get(code[0]) if code else None


class ArtemisSettings(Settings):
    """What failover depends on."""

    session_ms: int | None = None
    tick_ms: int | None = None
    connection_ttl_ms: int | None = None
    check_period_ms: int | None = None
    id_cache_size: int | None = None
    restart_delay_s: int | None = None
    allow_failback: bool | None = None


class ConnectionRouter(Part):
    """A connection router of the broker; `targets` are the connectors of its pool, where they are listed."""

    name: str
    policy: str | None = None
    cached: bool = False
    check_period_ms: int | None = None
    targets: int | None = None


class ArtemisDescriptor(Descriptor):
    """One broker; `ha_policy` is the role's word for how it and its pair stay available, `backups` how many backups the
    pair has."""

    ha_policy: str = ""
    backups: int = 0
    management: JolokiaManagement | None = None
    settings: ArtemisSettings = ArtemisSettings()
    routers: tuple[ConnectionRouter, ...] = ()


def _xid(text: str) -> str:
    """Return the id in what a broker says of a prepared transaction: it begins with a time, and ends with the id's
    parts."""
    found = _XID.search(text)
    return found[1] if found else text


def onlooker(descriptor: Descriptor) -> ConnectionRouter | None:
    """Return the router by which a broker can be asked whom it could choose, None where it has none.

    It takes its targets in turn, remembers nobody, and leads nobody: so many questions as there are targets name all
    that are ready.
    """
    if not isinstance(descriptor, ArtemisDescriptor):
        return None
    leading = {listener.router for listener in descriptor.listeners}
    return next(
        (
            item
            for item in descriptor.routers
            if item.policy == "ROUND_ROBIN" and not item.cached and item.targets and item.name not in leading
        ),
        None,
    )


class ArtemisJolokia:
    """The management of one broker over HTTPS with the inventory's CA."""

    def __init__(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> None:
        self._name = management(descriptor, JolokiaManagement).broker_name
        self._broker = f'org.apache.activemq.artemis:broker="{self._name}"'
        self._policy = descriptor.ha_policy if isinstance(descriptor, ArtemisDescriptor) else ""
        self._onlooker = onlooker(descriptor)
        values = descriptor.model_dump()
        self._may_wait = health.may_wait_its_turn(values)
        self._waits_for_store = health.waits_for_the_store(values)
        self._client = JolokiaClient(descriptor, credentials, ca_pem)

    async def _call(self, *requests: Mapping[str, Any]) -> list[dict[str, Any]]:
        return await self._client.call(*requests)

    async def role(self) -> str:
        """Return the live role; `starting` while the broker's bean is not there yet and has not to wait its turn."""
        replies = await self._call(*health.requests(self._name))
        return health.health_of(replies, self._policy, self._may_wait, self._waits_for_store).state

    def _queue(self, address: str) -> str:
        return f'{self._broker},component=addresses,address="{address}",subcomponent=queues,routing-type=*,queue=*'

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        """Return the sums over each address's queues; an address without a queue is left out."""
        names = ("MessageCount", "DeliveringCount", "ScheduledCount", "MessagesAdded", "ConsumerCount")
        # The address itself, which pages, and its queues.
        replies = await self._call(
            *(
                {
                    "type": "read",
                    "mbean": f'{self._broker},component=addresses,address="{item}",*',
                    "attribute": [*names, "Paging"],
                }
                for item in addresses
            )
        )
        found = {}
        for address, beans in jolokia.counted(addresses, replies).items():
            paging = any(bean.get("Paging") for bean in beans.values())
            # An address counts messages as well.
            if queues := [bean for bean in beans.values() if "DeliveringCount" in bean]:
                totals = QueueCounts(*(sum(queue[name] for queue in queues) for name in names))
                found[address] = replace(totals, paging=paging)
        return found

    async def prepared(self) -> Collection[str]:
        """Return the ids of the prepared (XA) transactions."""
        (reply,) = await self._call(
            {"type": "exec", "mbean": self._broker, "operation": "listPreparedTransactions()", "arguments": []}
        )
        return sorted(_xid(text) for text in jolokia.answer(reply, "listPreparedTransactions"))

    async def in_transit(self) -> int:
        """Return the number of messages in the queues of the cluster's bridges (store and forward)."""
        (reply,) = await self._call(
            {"type": "read", "mbean": self._queue("$.artemis.internal.sf.*"), "attribute": ["MessageCount"]}
        )
        return sum(queue["MessageCount"] for queue in (jolokia.found(reply, "store-and-forward queues") or {}).values())

    async def purge(self, addresses: Sequence[str]) -> int:
        """Remove all messages of the queues of `addresses`; return how many."""
        replies = await self._call(*({"type": "search", "mbean": self._queue(item)} for item in addresses))
        beans = [bean for reply in replies for bean in reply.get("value", [])]
        if not beans:
            return 0
        removed = await self._call(
            *({"type": "exec", "mbean": b, "operation": "removeAllMessages()", "arguments": []} for b in beans)
        )
        return sum([jolokia.answer(reply, "removeAllMessages") for reply in removed])

    def leads(self) -> bool:
        return self._onlooker is not None

    async def ready_targets(self) -> Sequence[tuple[str, int]]:
        """Return address and port of each target that the broker's router has ready."""
        router = self._onlooker
        if router is None:
            return []
        ask = question(self._name, router.name, "drill")
        replies = await self._call(*[ask] * (router.targets or 0))
        chosen = [place_in(jolokia.answer(reply, "getTargetAsJSON")) for reply in replies]
        return sorted({place for place in chosen if place is not None})

    def renew(self, credentials: Mapping[str, str], ca_pem: str) -> None:
        self._client.renew(credentials, ca_pem)

    async def close(self) -> None:
        await self._client.close()


class Artemis:
    """The product, as `products.registry` finds it."""

    name = "artemis"
    client: str | None = "core"

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return ArtemisJolokia(descriptor, credentials, ca_pem)

    def log_reader(self) -> LogReader:
        return _log_role


PRODUCT = Artemis()
DESCRIPTOR = ArtemisDescriptor
