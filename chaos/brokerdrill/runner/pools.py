"""Pools of connection routers: each router is asked over and over whom it could choose; what changed is written down.

A target is ready in the ledger when every router that answers has it ready: what one of them does not see is no move
that a client is to blame it for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from brokerdrill.base.clock import now_ns
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.events import EventWriter
from brokerdrill.products.base import ManagementError, Routing

POLL_PERIOD_S = 0.25


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


class PoolWatch:
    """Asks all `routers` (instance to its management) until it is stopped; nothing is written before `record`."""

    def __init__(
        self, routers: Mapping[str, Routing], instances: Mapping[str, Descriptor], events: EventWriter
    ) -> None:
        self._routers = routers
        self._places = {
            (listener.address, listener.port): item for item in instances.values() for listener in item.listeners
        }
        self._events = events
        self._views = {name: View() for name in routers}
        self._targets: dict[str, Descriptor] = {}
        self._ready: dict[str, bool] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._since_ns: int | None = None

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._watch(name)) for name in self._routers]

    def record(self) -> None:
        """Write whether each target is ready now, and from here on every change."""
        begin = now_ns()
        self._since_ns = begin
        for name, ready in self._ready.items():
            self._write(name, ready, "", begin, 0)

    async def stop(self) -> None:
        """Stop asking. Raises what ended a watch before its time."""
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _watch(self, name: str) -> None:
        while True:
            asked = now_ns()
            await self._ask(name, asked)
            await asyncio.sleep(max(0.0, POLL_PERIOD_S - (now_ns() - asked) / 1e9))

    async def _ask(self, name: str, asked: int) -> None:
        view = self._views[name]
        try:
            places = await self._routers[name].ready_targets()
        except ManagementError:
            view.ready = None
            return
        found = [self._places[place] for place in places if place in self._places]
        self._targets |= {item.instance: item for item in found}
        since, view.asked_ns = view.asked_ns or asked, asked
        view.ready = frozenset(item.instance for item in found)
        now = combined(self._views.values(), self._targets, self._ready)
        for target, ready in now.items():
            if ready != self._ready.get(target) and self._since_ns is not None:
                at = max(asked, self._since_ns)
                self._write(target, ready, name, at, max(at - since, now_ns() - at))
        self._ready = now

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
