"""Apache Artemis: roles and counts by Jolokia, exact role times by the message codes of its log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from brokerdrill.descriptors import Descriptor
from brokerdrill.products.base import LogRole, Management, ManagementError, QueueCounts
from brokerdrill.products.jolokia import JolokiaClient

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
_CODE = re.compile(r"\bAMQ\d{6}\b")
# systemd's own words on the unit, in the same journal: they end a role when the broker cannot say so itself.
_EXIT = re.compile(r"Main process exited|Deactivated successfully|Failed with result")


def role_of(active: bool, backup: bool, in_sync: bool, policy: str = "") -> str:
    """Return the role that the broker's attributes Active, Backup and ReplicaSync amount to.

    A shared store has nothing to synchronise: whoever waits for its lock is ready.
    """
    if active:
        return "active"
    if backup:
        return "passive" if in_sync or policy == "shared_store" else "syncing"
    return "starting"


class Jolokia:
    """The management of one broker over HTTPS with the inventory's CA."""

    def __init__(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> None:
        management = descriptor.management or {}
        self._broker = f'org.apache.activemq.artemis:broker="{management["broker_name"]}"'
        self._policy = str(descriptor.extra("ha_policy") or "")
        self._client = JolokiaClient(descriptor, credentials, ca_pem)

    async def _call(self, *requests: Mapping[str, Any]) -> list[dict[str, Any]]:
        return await self._client.call(*requests)

    async def role(self) -> str:
        """Return the live role; `starting` while the broker's bean is not there yet."""
        attributes = ["Active", "Backup", "ReplicaSync"]
        (reply,) = await self._call({"type": "read", "mbean": self._broker, "attribute": attributes})
        value = reply.get("value") if reply.get("status") == 200 else None
        if not isinstance(value, dict):
            return "starting"
        return role_of(value["Active"], value["Backup"], value["ReplicaSync"], self._policy)

    def _queue(self, address: str) -> str:
        return f'{self._broker},component=addresses,address="{address}",subcomponent=queues,routing-type=*,queue=*'

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        """Return the sums over each address's queues; an address without a queue is left out."""
        names = ("MessageCount", "DeliveringCount", "ScheduledCount", "MessagesAdded")
        replies = await self._call(
            *({"type": "read", "mbean": self._queue(item), "attribute": list(names)} for item in addresses)
        )
        found = {}
        for address, reply in zip(addresses, replies, strict=True):
            queues = reply.get("value")
            if reply.get("status") == 200 and isinstance(queues, dict) and queues:
                messages, delivering, scheduled, added = (sum(queue[n] for queue in queues.values()) for n in names)
                found[address] = QueueCounts(messages, delivering, scheduled, added)
        return found

    async def prepared(self) -> int:
        """Return the number of prepared (XA) transactions."""
        (reply,) = await self._call(
            {"type": "exec", "mbean": self._broker, "operation": "listPreparedTransactions()", "arguments": []}
        )
        if reply.get("status") != 200:
            raise ManagementError(f"listPreparedTransactions: {reply.get('error')}")
        return len(reply["value"])

    async def in_transit(self) -> int:
        """Return the number of messages in the queues of the cluster's bridges (store and forward)."""
        (reply,) = await self._call(
            {"type": "read", "mbean": self._queue("$.artemis.internal.sf.*"), "attribute": ["MessageCount"]}
        )
        if reply.get("status") == 404:
            return 0
        if reply.get("status") != 200:
            raise ManagementError(f"store-and-forward queues: {reply.get('error')}")
        return sum(queue["MessageCount"] for queue in reply["value"].values())

    async def purge(self, addresses: Sequence[str]) -> int:
        """Remove all messages of the queues of `addresses`; return how many."""
        replies = await self._call(*({"type": "search", "mbean": self._queue(item)} for item in addresses))
        beans = [bean for reply in replies for bean in reply.get("value", [])]
        if not beans:
            return 0
        removed = await self._call(
            *({"type": "exec", "mbean": b, "operation": "removeAllMessages()", "arguments": []} for b in beans)
        )
        failed = [reply.get("error") for reply in removed if reply.get("status") != 200]
        if failed:
            raise ManagementError(f"removeAllMessages: {failed[0]}")
        return sum(reply["value"] for reply in removed)

    async def close(self) -> None:
        await self._client.close()


class Artemis:
    """The product, as `products.registry` names it."""

    name = "artemis"
    client: str | None = "core"

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return Jolokia(descriptor, credentials, ca_pem)

    def log_roles(self, lines: Iterable[tuple[int, str]]) -> list[LogRole]:
        """Role changes by the codes above; a line repeats no role that the log has just said."""
        changes: list[LogRole] = []
        for t_ns, text in lines:
            code = _CODE.search(text)
            role = _CODES.get(code[0]) if code else ("down" if _EXIT.search(text) else None)
            if role and (not changes or changes[-1].role != role):
                changes.append(LogRole(t_ns, role, text.strip()[:200]))
        return changes
