"""The AMQP 0-9-1 session router: whether it serves, by its status page; exact times by its log.

Clients reach brokers through it. It keeps no message and no store, and is no broker of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import httpx

from brokerdrill.inventory import descriptors
from brokerdrill.inventory.descriptors import Descriptor, Settings, management
from brokerdrill.products.base import Management
from brokerdrill.products.health import amqp_router as health
from brokerdrill.products.logs import LogReader, RoutedConnect, by_words
from brokerdrill.products.status import StatusPage

# A session is open at its broker.
_OPENED = '"message": "opened"'
_ROLES = by_words(
    (r'"message": "ready"', "active"),
    (r"killed by signal \d+; starting again|ended with status \d+; starting again", "starting"),
)


class RouterSettings(Settings):
    """What its failover depends on."""

    check_period_ms: int | None = None
    connect_ms: int | None = None
    backend_handshake_ms: int | None = None


class RouterDescriptor(Descriptor):
    """One router."""

    settings: RouterSettings = RouterSettings()


class Status(StatusPage):
    """The readiness page of one router."""

    def __init__(self, descriptor: Descriptor) -> None:
        super().__init__(management(descriptor, descriptors.ManagementAccess).url + health.READY)

    def role_of(self, response: httpx.Response) -> str:
        """`starting` while it has no broker to give out, and while it leaves."""
        if response.status_code not in (200, 503):
            raise ValueError(f"HTTP {response.status_code} from {response.url}")
        return health.state_of(response.status_code)


class AmqpRouter:
    """The product, as `products.registry` finds it."""

    name = "amqp_router"
    client: str | None = None

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return Status(descriptor)

    def log_reader(self) -> LogReader:
        return _ROLES

    def routed_connect(self, text: str) -> RoutedConnect | None:
        """Return the broker that a session with a key was opened at: its backend is called by the broker's instance."""
        if _OPENED not in text:
            return None
        try:
            said = json.loads(text)
        except ValueError:  # the journal cut it
            return None
        return RoutedConnect(said["key"], said["backend"]) if "key" in said else None


PRODUCT = AmqpRouter()
DESCRIPTOR = RouterDescriptor
