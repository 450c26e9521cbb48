"""Pools of connection routers: each router is polled for the targets it could choose; changes are written down.

A target is ready in the ledger when every router that answers has it ready: a client that moves while one router lacks
its target moved for a reason.

A router may also never have a target ready again that was killed and came back (FINDINGS.md): `lacking` says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.events import EventWriter
from brokerdrill.products.base import ManagementError, Routing
from brokerdrill.runner.watching.polling import PollingWatch

# What a descriptor calls the way from a router to an instance that it leads clients to.
TARGET = "target"


@dataclass
class View:
    """What one router last said: the instances that were ready, None: it is silent; and when it was asked (ns)."""

    ready: frozenset[str] | None = None
    asked_ns: int = 0


def combined(views: Collection[View], targets: Collection[str], before: Mapping[str, bool]) -> dict[str, bool]:
    """Return whether each of `targets` is ready by all routers that answer; where none does, as it was `before`."""
    known = [view.ready for view in views if view.ready is not None]
    if not known:
        return dict(before)
    return {name: all(name in ready for ready in known) for name in targets}


class PoolWatch(PollingWatch):
    """Asks all `routers` (instance to its management) which targets are ready."""

    what = "the routers' pools"
    period_s = 0.25

    def __init__(
        self,
        routers: Mapping[str, Routing],
        instances: Mapping[str, Descriptor],
        events: EventWriter,
        clients_ask: Collection[str] | None = None,
    ) -> None:
        """`clients_ask`: those of `routers` that say what is ready in the ledger; None: all."""
        super().__init__(routers)
        self._routers = routers
        self._clients_ask = frozenset(routers if clients_ask is None else clients_ask)
        self._leads_to = {
            name: frozenset(dial.to for dial in instances[name].dials if dial.link == TARGET)
            for name in routers
            if name in instances
        }
        self._places = {
            (listener.address, listener.port): item for item in instances.values() for listener in item.listeners
        }
        self._events = events
        self._views = {name: View() for name in routers}
        # Also those that have not been ready yet, as a backup that waits: its store is not ready when it alone is left.
        self._targets = {
            target: instances[target]
            for name, targets in self._leads_to.items()
            if name in self._clients_ask
            for target in targets
            if target in instances
        }
        self._ready: dict[str, bool] = {}

    async def _ask(self, name: str, asked_ns: int) -> None:
        view = self._views[name]
        try:
            places = await self._routers[name].ready_targets()
        except ManagementError:
            view.ready = None
            return
        found = [self._places[place] for place in places if place in self._places]
        self._targets |= {item.instance: item for item in found}
        before_ns, view.asked_ns = view.asked_ns, asked_ns
        view.ready = frozenset(item.instance for item in found)
        if name not in self._clients_ask:
            return
        now = combined([self._views[asked] for asked in self._clients_ask], self._targets, self._ready)
        for target, ready in now.items():
            if ready != self._ready.get(target) and (placed := self._placed(asked_ns, before_ns)):
                self._write(target, ready, name, *placed)
        self._ready = now

    def lacking(self, active: Collection[str]) -> dict[str, list[str]]:
        """Return by router, of those that are `active`, which of the `active` instances that it could lead clients to
        it does not have ready; one that has not answered has none."""
        lacks = {
            name: sorted((targets & {*active}) - (self._views[name].ready or frozenset()))
            for name, targets in self._leads_to.items()
            if name in active
        }
        return {name: missing for name, missing in lacks.items() if missing}

    def _write_known(self, at_ns: int) -> None:
        for name, ready in self._ready.items():
            self._write(name, ready, "", at_ns, 0)

    def _write(self, target: str, ready: bool, router: str, at_ns: int, uncertainty_ns: int) -> None:
        item = self._targets[target]
        self._events.write(
            "pool",
            at_ns=at_ns,
            uncertainty_ns=uncertainty_ns,
            target=item.host,
            instance=target,
            store=item.store,
            name=router or None,
            value="ready" if ready else "not_ready",
        )
