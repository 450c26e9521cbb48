"""The lease database: which PostgreSQL is the primary, as Patroni's REST API says. Nothing is sent to it."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from brokerdrill.inventory import descriptors
from brokerdrill.inventory.descriptors import Descriptor, Settings, management
from brokerdrill.products.base import Management
from brokerdrill.products.health.lease_db import health_of
from brokerdrill.products.logs import LogReader, by_words
from brokerdrill.products.status import StatusPage

# Patroni's own words on itself, once a loop.
_ROLES = by_words(
    (r"I am \(\S+\), the leader with the lock|promoted self to leader", "active"),
    (r"I am \(\S+\), a secondary, and following a leader", "passive"),
    (r"(?i)demot(ed|ing) self|manual failover: demoting myself", "starting"),
)


class LeaseDbSettings(Settings):
    """Patroni's times, and whether the only standby is to be a synchronous one."""

    ttl_s: int | None = None
    loop_wait_s: int | None = None
    retry_timeout_s: int | None = None
    synchronous_mode: bool | None = None
    synchronous_standby: bool | None = None


class LeaseDbDescriptor(Descriptor):
    """One member of the database's cluster."""

    settings: LeaseDbSettings = LeaseDbSettings()


class Patroni(StatusPage):
    """The REST API of one member."""

    def __init__(self, descriptor: Descriptor, ca_pem: str) -> None:
        super().__init__(f"{management(descriptor, descriptors.ManagementAccess).url}/patroni", ca_pem)
        settings = descriptor.settings
        self._synchronous = isinstance(settings, LeaseDbSettings) and bool(settings.synchronous_standby)

    def role_of(self, response: httpx.Response) -> str:
        """A member without its place answers 503 and says the same in its body."""
        return health_of(response.json(), self._synchronous).state


class LeaseDb:
    """The product, as `products.registry` finds it."""

    name = "lease_db"
    client: str | None = None

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return Patroni(descriptor, ca_pem)

    def log_reader(self) -> LogReader:
        return _ROLES


PRODUCT = LeaseDb()
DESCRIPTOR = LeaseDbDescriptor
