"""The lease database: which PostgreSQL is the primary, as Patroni's REST API says. Nothing is sent to it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping, Sequence

import httpx

from brokerdrill.inventory import descriptors
from brokerdrill.inventory.descriptors import Descriptor, Settings, management
from brokerdrill.products.base import LogRole, Management, ManagementError, QueueCounts
from brokerdrill.products.health.lease_db import health_of
from brokerdrill.products.jolokia import CALL_TIMEOUT_S, refused

# Patroni's own words on itself, once a loop.
_LEADS = re.compile(r"I am \(\S+\), the leader with the lock|promoted self to leader")
_FOLLOWS = re.compile(r"I am \(\S+\), a secondary, and following a leader")
_DEMOTED = re.compile(r"demot(ed|ing) self|manual failover: demoting myself", re.IGNORECASE)
_EXIT = re.compile(r"Main process exited|Deactivated successfully|Failed with result")
_WORDS = ((_LEADS, "active"), (_FOLLOWS, "passive"), (_DEMOTED, "starting"), (_EXIT, "down"))


class LeaseDbSettings(Settings):
    """Patroni's times."""

    ttl_s: int | None = None
    loop_wait_s: int | None = None
    retry_timeout_s: int | None = None
    synchronous_mode: bool | None = None


class LeaseDbDescriptor(Descriptor):
    """One member of the database's cluster."""

    settings: LeaseDbSettings = LeaseDbSettings()


class Patroni:
    """The REST API of one member. There are no messages in it."""

    def __init__(self, descriptor: Descriptor, ca_pem: str) -> None:
        self._url = f"{management(descriptor, descriptors.Management).url}/patroni"
        verify = ssl.create_default_context(cadata=ca_pem) if ca_pem else True
        self._http = httpx.AsyncClient(timeout=CALL_TIMEOUT_S, verify=verify, trust_env=False)

    async def role(self) -> str:
        """Return the live role. A member without its place answers 503 and says the same in its body."""
        try:
            response = await self._http.get(self._url)
            return health_of(response.json()).state
        except httpx.ConnectError as error:
            raise ManagementError(str(error), refused=refused(error)) from None
        except (httpx.HTTPError, ValueError) as error:
            raise ManagementError(f"{type(error).__name__}: {error}") from None

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


class LeaseDb:
    """The product, as `products.registry` finds it."""

    name = "lease_db"
    client: str | None = None

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return Patroni(descriptor, ca_pem)

    def log_roles(self, lines: Iterable[tuple[int, str]]) -> list[LogRole]:
        """Role changes by Patroni's words; it says them anew in each loop."""
        changes: list[LogRole] = []
        for t_ns, text in lines:
            role = next((role for words, role in _WORDS if words.search(text)), None)
            if role and (not changes or changes[-1].role != role):
                changes.append(LogRole(t_ns, role, text.strip()[:200]))
        return changes


PRODUCT = LeaseDb()
DESCRIPTOR = LeaseDbDescriptor
