"""The system under test: the managed instances, their live roles, and what these say of the stores."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import Unmet
from brokerdrill.base.progress import Progress
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.hosts.descriptors import read_credentials
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.events import EventWriter
from brokerdrill.products.base import Management, Product, Renewable, Routing
from brokerdrill.runner.watching.alerts import AlertWatch, alert_watches
from brokerdrill.runner.watching.polling import PollingWatch
from brokerdrill.runner.watching.pools import PoolWatch
from brokerdrill.runner.watching.pressure import PressureWatch
from brokerdrill.runner.watching.roles import RoleWatch

# A condition is looked at again after so long, with or without a change.
POLL_S = 0.1


class Changes:
    """Wakes whoever waits for a condition as soon as a role or a worker's status has changed."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def wake(self) -> None:
        self._changed.set()

    async def wait(self, at_most_s: float) -> None:
        """Wait for the next change, `at_most_s` seconds."""
        self._changed.clear()
        # Not `wait_for`: a cancellation that comes with the change would be lost.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._changed.wait()


@dataclass(frozen=True)
class Instance:
    """One instance: its product, its host, and the open line to its management."""

    product: Product
    descriptor: Descriptor
    connection: HostConnection
    management: Management


def served(stores: Collection[Sequence[str]]) -> bool:
    """Whether every store has exactly one active instance, and none is down; a store is its instances' roles."""
    down = any(role == "down" for roles in stores for role in roles)
    return not down and all(roles.count("active") == 1 for roles in stores)


def in_sync(stores: Collection[Sequence[str]]) -> bool:
    """Whether every store has exactly one active instance, and all its others are passive."""
    return served(stores) and all(role in ("active", "passive") for roles in stores for role in roles)


class System:
    """The instances by name and their live roles, from `open` and `watch` to `stop_watching` and `close`."""

    def __init__(self, progress: Progress) -> None:
        self.instances: dict[str, Instance] = {}
        self._opened_with: dict[str, tuple[Mapping[str, str], str]] = {}
        # Since when roles are written down (controller's clock, ns); None: not yet.
        self.recorded_since_ns: int | None = None
        # Of roles, and of all else that the run's conditions depend on.
        self.changes = Changes()
        # The transactions that were prepared when the run began: none of its own.
        self.prepared_before: frozenset[str] = frozenset()
        self._progress = progress
        self._watch: RoleWatch | None = None
        self._pools: PoolWatch | None = None
        self._alerts: list[AlertWatch] = []
        self._pressure: PressureWatch | None = None
        self._acted_ns = 0

    async def open(
        self, instances: Sequence[tuple[Product, Descriptor]], connections: Mapping[str, HostConnection]
    ) -> None:
        """Open the management of each of `instances`. Raises InfrastructureError where what it needs is not there."""
        for product, item in instances:
            connection = connections[item.host]
            access = await self._access(product, item, connection)
            self.instances[item.instance] = Instance(product, item, connection, product.manage(item, *access))
            self._opened_with[item.instance] = access

    @staticmethod
    async def _access(product: Product, item: Descriptor, connection: HostConnection) -> tuple[Mapping[str, str], str]:
        """Read from its host what the management of an instance is opened with: credentials, and its authorities."""
        # The management of a product without clients may need no credentials.
        needed = item.credentials or product.client
        credentials = await read_credentials(connection, item) if needed else {}
        ca = (await connection.sh(f"cat -- '{item.tls.ca}'", check=True)).out if item.tls else ""
        return credentials, ca

    async def renew(self) -> None:
        """Go on with the credentials and authorities that a playbook may have put on the hosts."""
        for name, item in self.instances.items():
            if isinstance(item.management, Renewable):
                access = await self._access(item.product, item.descriptor, item.connection)
                if access != self._opened_with[name]:
                    item.management.renew(*access)
                    self._opened_with[name] = access

    def watch(self, events: EventWriter, routers: int = 0) -> None:
        """Ask for the live roles from here on, and the routers for their pools; clients ask the first so many `routers`
        by name (0: all)."""
        watched = {}
        for name, item in self.instances.items():
            # An instance without clients, as a database, has no store in the ledger.
            recorded = item.descriptor if item.product.client else item.descriptor.model_copy(update={"store": None})
            watched[name] = (recorded, item.management)
        self._watch = RoleWatch(watched, events, self._role_changed)
        self._watch.start()
        leading = {
            name: item.management
            for name, item in sorted(self.instances.items())
            if isinstance(item.management, Routing) and item.management.leads()
        }
        descriptors = {name: recorded for name, (recorded, _) in watched.items()}
        self._pools = PoolWatch(leading, descriptors, events, [*leading][: routers or None])
        self._pools.start()

    def watch_alerts(
        self, descriptors: Sequence[Descriptor], connections: Mapping[str, HostConnection], events: EventWriter
    ) -> None:
        """Ask, from here on, the Prometheus that `descriptors` name which alerts fire; none: nothing is asked."""
        stores = {name: item.descriptor.store for name, item in self.instances.items() if item.product.client}
        self._alerts = alert_watches(descriptors, connections, stores, events, self._progress)
        for watch in self._alerts:
            watch.start()

    def watch_hosts(
        self, descriptors: Sequence[Descriptor], connections: Mapping[str, HostConnection], events: EventWriter
    ) -> None:
        """Ask, from here on, every host and the controller how busy they are, with what `descriptors` say runs
        there."""
        units: dict[str, list[str]] = {}
        for item in descriptors:
            if item.unit and item.unit not in units.setdefault(item.host, []):
                units[item.host].append(item.unit)
        self._pressure = PressureWatch(connections, units, events)
        self._pressure.start()

    def record(self) -> None:
        """Write down the roles and alerts as they are now, and from here on every change."""
        assert self._watch is not None and self._pools is not None
        self._pools.record()
        for watch in (self._pressure, *self._alerts):
            if watch:
                watch.record()
        self.recorded_since_ns = self._watch.record()

    async def stop_watching(self) -> None:
        """Stop asking. Raises InfrastructureError, once all have stopped, where one cannot write what it saw."""
        done = await asyncio.gather(*(watch.stop() for watch in self._watches()), return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome

    def failed_watches(self) -> list[str]:
        """What ended a watch before its time, a sentence each."""
        return [said for watch in self._watches() for said in watch.failures()]

    def _watches(self) -> list[PollingWatch]:
        return [watch for watch in (self._watch, self._pools, self._pressure, *self._alerts) if watch]

    async def close(self) -> None:
        for item in self.instances.values():
            await item.management.close()

    @property
    def roles(self) -> dict[str, str]:
        """The newest known role of each instance that is watched."""
        return self._watch.roles if self._watch else {}

    def acted(self) -> None:
        """Take note that something was just done to the instances: what is known of their roles is of before."""
        self._acted_ns = now_ns()

    @property
    def roles_since_act(self) -> dict[str, str]:
        """The newest role of each instance that was asked after the last act and answered; others are left out."""
        return self.roles_since(self._acted_ns)

    def roles_since(self, since_ns: int) -> dict[str, str]:
        """The newest role of each instance that answered what it was asked at `since_ns` (controller's clock, ns) or
        later; others are left out."""
        return self._watch.roles_since(since_ns) if self._watch else {}

    def brokers(self) -> list[Instance]:
        """The instances that clients send to."""
        return [item for item in self.instances.values() if item.product.client]

    def active_brokers(self) -> list[Instance]:
        """Every active instance that clients send to."""
        roles = self.roles
        return [item for item in self.brokers() if roles[item.descriptor.instance] == "active"]

    def active(self) -> list[Management]:
        """The management of every active instance that clients send to."""
        return [item.management for item in self.active_brokers()]

    def descriptors(self) -> list[Descriptor]:
        """What every managed instance says of itself."""
        return [item.descriptor for item in self.instances.values()]

    def stores(self, roles: Mapping[str, str]) -> list[list[str]]:
        """What `roles` say of each store's instances; "" where they say nothing."""
        by_store: dict[str, list[str]] = {}
        for name, item in self.instances.items():
            by_store.setdefault(item.descriptor.store or name, []).append(roles.get(name, ""))
        return [*by_store.values()]

    def served(self) -> bool:
        return served(self.stores(self.roles))

    def in_sync(self) -> bool:
        """Whether all stores are in sync by what their instances said since the last act."""
        return in_sync(self.stores(self.roles_since_act))

    def lacking(self) -> dict[str, list[str]]:
        """Return by router which active instances it could lead clients to and does not have ready."""
        roles = self.roles_since_act
        active = [name for name, role in roles.items() if role == "active"]
        return self._pools.lacking(active) if self._pools else {}

    async def until(self, condition: Callable[[], bool], limit_s: float, failure: str) -> None:
        """Wait until `condition` holds; after `limit_s` seconds raise Unmet: `failure`, and the roles."""
        end = now_ns() + int(limit_s * 1e9)
        while not condition():
            if now_ns() > end:
                roles = ", ".join(f"{name} {role or 'silent'}" for name, role in sorted(self.roles.items()))
                raise Unmet(f"{failure} within {limit_s:.0f} s ({roles})")
            await self.changes.wait(POLL_S)

    def _role_changed(self, name: str, role: str) -> None:
        self._progress.step(f"{name} is {role}")
        self.changes.wake()
