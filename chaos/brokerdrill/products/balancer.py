"""HAProxy before brokers: whether it has any to hand connections on to, by its own page; exact times by its log.

Clients reach brokers through it. It keeps no message and no store, and is no broker of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from brokerdrill.inventory import descriptors
from brokerdrill.inventory.descriptors import Descriptor, management
from brokerdrill.products.base import Management
from brokerdrill.products.health import balancer as health
from brokerdrill.products.logs import LogReader, by_words
from brokerdrill.products.status import StatusPage

# Of the master process, each time that a worker of its configuration is there.
_ROLES = by_words((r"New worker \(\d+\) forked", "active"))


class Page(StatusPage):
    """The readiness page of one balancer."""

    def __init__(self, descriptor: Descriptor) -> None:
        super().__init__(management(descriptor, descriptors.ManagementAccess).url + health.READY)

    def role_of(self, response: httpx.Response) -> str:
        """`starting` while a listener has no broker."""
        if response.status_code not in (200, 503):
            raise ValueError(f"HTTP {response.status_code} from {response.url}")
        return health.state_of(response.status_code)


class Balancer:
    """The product, as `products.registry` finds it."""

    name = "balancer"
    client: str | None = None

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return Page(descriptor)

    def log_reader(self) -> LogReader:
        return _ROLES


PRODUCT = Balancer()
