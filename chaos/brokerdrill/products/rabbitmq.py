"""RabbitMQ: roles and counts by its management API, exact role times by the lines of its log.

Every broker of a cluster serves, and each is a store of its own in the ledger: none takes another one's place. A queue
is counted by the broker that leads it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from brokerdrill.base.clock import now_ns
from brokerdrill.inventory import descriptors
from brokerdrill.inventory.descriptors import Descriptor, Settings, management
from brokerdrill.products.base import Management, ManagementError, NotAllowed, QueueCounts
from brokerdrill.products.health import rabbitmq as health
from brokerdrill.products.jolokia import CALL_TIMEOUT_S, refused
from brokerdrill.products.logs import LogReader, by_words

VHOST = "/"
_QUEUES = f"/api/queues/{quote(VHOST, safe='')}"
_COLUMNS = "name,node,leader,messages,messages_unacknowledged,message_stats.publish,consumers"
# A queue publishes its counts once in this many periods at the latest; then all that was sent before is counted.
_PERIODS = 2

_ROLES = by_words(
    (r"Server startup complete", "active"),
    (r"Starting RabbitMQ \S+ on Erlang|Cluster minority/secondary status detected", "starting"),
)


def counts_of(queue: Mapping[str, Any]) -> QueueCounts:
    """Return the counts that a queue's own amount to; `messages` has those that are handed out in it."""
    unacknowledged = int(queue.get("messages_unacknowledged", 0))
    added = int((queue.get("message_stats") or {}).get("publish", 0))
    waiting, consumers = int(queue.get("messages", 0)) - unacknowledged, int(queue.get("consumers", 0))
    return QueueCounts(waiting, unacknowledged, 0, added, consumers)


def led_by(queue: Mapping[str, Any]) -> str:
    """Return the node that leads a quorum queue, or has a classic one."""
    return str(queue.get("leader") or queue.get("node"))


class RabbitManagement(descriptors.ManagementAccess):
    """Where a broker is managed, its own node's name, and those of its cluster."""

    node: str
    members: list[str]


class RabbitSettings(Settings):
    """What the cluster's behaviour depends on."""

    net_ticktime_ms: int | None = None
    statistics_ms: int | None = None
    restart_delay_s: int | None = None


class RabbitDescriptor(Descriptor):
    """One broker of a cluster."""

    management: RabbitManagement | None = None
    settings: RabbitSettings = RabbitSettings()


class Api:
    """The management API of one broker."""

    def __init__(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> None:
        place = management(descriptor, RabbitManagement)
        self._node = place.node
        settings = descriptor.settings
        period_ms = (settings.statistics_ms if isinstance(settings, RabbitSettings) else None) or 5000
        self._settled_ns = _PERIODS * period_ms * 1_000_000
        # Since when, and until when, each look found all queues empty; looks far apart say nothing of
        # the time between.
        self._empty_ns: tuple[int, int] | None = None
        self._http = httpx.AsyncClient(
            base_url=place.url,
            auth=(credentials["username"], credentials["password"]),
            timeout=CALL_TIMEOUT_S,
            verify=ssl.create_default_context(cadata=ca_pem) if ca_pem else True,
            trust_env=False,
        )

    async def _call(self, method: str, path: str) -> httpx.Response:
        try:
            return await self._http.request(method, path)
        except httpx.ConnectError as error:
            raise ManagementError(str(error), refused=refused(error)) from None
        except httpx.HTTPError as error:
            url = self._http.base_url.join(path)
            raise ManagementError(f"no answer from {url}: {type(error).__name__} {error}".rstrip()) from None

    async def _ask(self, path: str) -> Any:
        response = await self._call("GET", path)
        if response.status_code != 200:
            kind = NotAllowed if response.status_code in (401, 403) else ManagementError
            raise kind(f"HTTP {response.status_code} from {response.url}")
        try:
            return response.json()
        except ValueError:
            raise ManagementError(f"no JSON from {response.url}") from None

    async def role(self) -> str:
        """Return the live role; `starting` while a virtual host is not there, `syncing` while the cluster is apart."""
        response = await self._call("GET", health.SERVES)
        if response.status_code not in (200, 503):
            raise ManagementError(f"HTTP {response.status_code} from {response.url}")
        nodes = await self._ask(health.NODES) if response.status_code == 200 else []
        return health.state_of(response.status_code, nodes, self._node)

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        """Return the counts of the queues that this broker leads, and zeros for those that others lead.

        Queues publish their counts once in a period: that all are empty is said only once it has been so for so
        long that each of them has published.
        """
        while True:
            queues = {queue["name"]: queue for queue in await self._ask(f"{_QUEUES}?columns={_COLUMNS}")}
            found = {
                name: counts_of(queues[name]) if led_by(queues[name]) == self._node else QueueCounts(0, 0, 0, 0)
                for name in addresses
                if name in queues
            }
            now = now_ns()
            if not all(counts.empty for counts in found.values()):
                self._empty_ns = None
                return found
            since, last = self._empty_ns or (now, now)
            since = since if now - last <= 2 * self._settled_ns else now
            self._empty_ns = since, now
            if now - since >= self._settled_ns:
                return found
            await asyncio.sleep((since + self._settled_ns - now) / 1e9)

    async def prepared(self) -> Collection[str]:
        """Return none: its transactions have no second phase."""
        return ()

    async def in_transit(self) -> int:
        """Return 0: a message is in its queue until it is acknowledged."""
        return 0

    async def purge(self, addresses: Sequence[str]) -> int:
        """Remove all messages of the queues that this broker leads; return how many it knew of."""
        found = await self.counts(addresses)
        for name, counts in found.items():
            if counts.messages:
                response = await self._call("DELETE", f"{_QUEUES}/{quote(name, safe='')}/contents")
                if response.status_code not in (200, 204):
                    raise ManagementError(f"purge of {name}: HTTP {response.status_code}")
        return sum(counts.messages for counts in found.values())

    async def close(self) -> None:
        await self._http.aclose()


class RabbitMq:
    """The product, as `products.registry` finds it."""

    name = "rabbitmq"
    client: str | None = "amqp091"

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return Api(descriptor, credentials, ca_pem)

    def log_reader(self) -> LogReader:
        return _ROLES


PRODUCT = RabbitMq()
DESCRIPTOR = RabbitDescriptor
