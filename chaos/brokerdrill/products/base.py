"""The protocol of a product: all that the runner has to know of it. docs/adding-a-product.md shows how to write one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.products.logs import LogReader, RoutedConnect


@dataclass(frozen=True)
class QueueCounts:
    """What a broker says of one address: messages in its queues, handed out and unacknowledged, scheduled, ever added;
    who consumes from it; whether some are on its disk only (`paging`), which a broker that died may count wrongly."""

    messages: int
    delivering: int
    scheduled: int
    added: int
    consumers: int = 0
    paging: bool = False

    @property
    def empty(self) -> bool:
        return self.messages == self.delivering == self.scheduled == 0 and not self.paging


class Management(Protocol):
    """An open line to one instance's management; every call raises ManagementError when no answer comes."""

    async def role(self) -> str:
        """Return the live role, one of ledger.ROLES."""
        ...

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        """Return the counts of each of `addresses` that exists there. Raises NotAllowed where it may not be said."""
        ...

    async def prepared(self) -> Collection[str]:
        """Return the names of the prepared transactions that wait for their second phase."""
        ...

    async def in_transit(self) -> int:
        """Return how many messages are on their way to another instance, in no address's queue."""
        ...

    async def purge(self, addresses: Sequence[str]) -> int:
        """Remove all messages from `addresses`; return how many. Callers name a drill's addresses alone."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Routing(Protocol):
    """What the management of an instance can do besides, that leads clients to others."""

    def leads(self) -> bool:
        """Return whether this instance does, and can say whom it could choose."""
        ...

    async def ready_targets(self) -> Sequence[tuple[str, int]]:
        """Return address and port of each instance that clients could be led to now."""
        ...


@runtime_checkable
class Renewable(Protocol):
    """A management that goes on with other credentials or authorities, as after a rotation of secrets."""

    def renew(self, credentials: Mapping[str, str], ca_pem: str) -> None: ...


class ManagementError(InfrastructureError):
    """The instance gave no usable answer. `refused` when its port refused the connection: no process listens."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class NotAllowed(ManagementError):
    """The instance answers, and does not let the account do what it was asked: it will not do so later either."""


class Product(Protocol):
    """A kind of system. `client` names the workload's client protocol, None where nothing is sent to it."""

    name: str
    client: str | None

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        """Open the management of one instance, at the address its descriptor says."""
        ...

    def log_reader(self) -> LogReader:
        """Return a reader of what one process of an instance writes to its log."""
        ...


@runtime_checkable
class LogsRoutedConnects(Protocol):
    """A router that clients cannot see through: which broker it connected a client to stands only in its log."""

    def routed_connect(self, text: str) -> RoutedConnect | None:
        """Return the connect that a line of the log records; None: it records none, or one without a routing key."""
        ...
