"""The AMQP 0-9-1 session router: whether it serves, by its status page; exact times by its log.

Clients reach brokers through it. It keeps no message and no store, and is no broker of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import httpx

from brokerdrill.inventory import descriptors
from brokerdrill.inventory.descriptors import Descriptor, Settings, management
from brokerdrill.products.base import LogRole, Management, ManagementError, QueueCounts
from brokerdrill.products.health import amqp_router as health
from brokerdrill.products.jolokia import CALL_TIMEOUT_S, refused

_LOG_ROLES = (
    (re.compile(r'"message": "ready"'), "active"),
    (re.compile(r"killed by signal \d+; starting again|ended with status \d+; starting again"), "starting"),
    (re.compile(r"Main process exited|Deactivated successfully|Failed with result"), "down"),
)


class RouterSettings(Settings):
    """What its failover depends on."""

    check_period_ms: int | None = None


class RouterDescriptor(Descriptor):
    """One router."""

    settings: RouterSettings = RouterSettings()


class Status:
    """The status pages of one router. There are no messages in it."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._url = management(descriptor, descriptors.Management).url + health.READY
        self._http = httpx.AsyncClient(timeout=CALL_TIMEOUT_S, trust_env=False)

    async def role(self) -> str:
        """Return the live role; `starting` while it has no broker to give out, and while it leaves."""
        try:
            response = await self._http.get(self._url)
        except httpx.ConnectError as error:
            raise ManagementError(str(error), refused=refused(error)) from None
        except httpx.HTTPError as error:
            raise ManagementError(f"{type(error).__name__}: {error}") from None
        if response.status_code not in (200, 503):
            raise ManagementError(f"HTTP {response.status_code} from {response.url}")
        return health.state_of(response.status_code)

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        return {}

    async def prepared(self) -> int:
        return 0

    async def in_transit(self) -> int:
        return 0

    async def purge(self, addresses: Sequence[str]) -> int:
        return 0

    async def close(self) -> None:
        await self._http.aclose()


class AmqpRouter:
    """The product, as `products.registry` finds it."""

    name = "amqp_router"
    client: str | None = None

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return Status(descriptor)

    def log_roles(self, lines: Iterable[tuple[int, str]]) -> list[LogRole]:
        """Role changes: active from the line by which a process says that it is ready."""
        changes: list[LogRole] = []
        for t_ns, text in lines:
            role = next((role for pattern, role in _LOG_ROLES if pattern.search(text)), None)
            if role and (not changes or changes[-1].role != role):
                changes.append(LogRole(t_ns, role, text.strip()[:200]))
        return changes


PRODUCT = AmqpRouter()
DESCRIPTOR = RouterDescriptor
