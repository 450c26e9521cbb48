"""Live roles: each instance is asked over and over; what changed is written down with its uncertainty."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from brokerdrill.base.clock import now_ns
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.events import EventWriter
from brokerdrill.products.base import Management, ManagementError

POLL_PERIOD_S = 0.15


@dataclass
class Seen:
    """The last answer of one instance: its role; when it was last asked, and when it was asked what it last answered
    (controller's clock, ns)."""

    role: str = "starting"
    asked_ns: int = 0
    told_ns: int = 0
    answering: bool = True


class RoleWatch:
    """Polls the roles of all instances until it is stopped; `roles` holds the newest, `on_change` hears of changes.
    Nothing is written before `record`."""

    def __init__(
        self,
        instances: Mapping[str, tuple[Descriptor, Management]],
        events: EventWriter,
        on_change: Callable[[str, str], None],
    ) -> None:
        self._instances = instances
        self._events = events
        self._on_change = on_change
        self._seen = {name: Seen(role="") for name in instances}
        self._tasks: list[asyncio.Task[None]] = []
        self._since_ns: int | None = None

    @property
    def roles(self) -> dict[str, str]:
        """The newest known role of each instance."""
        return {name: seen.role for name, seen in self._seen.items()}

    def roles_since(self, since_ns: int) -> dict[str, str]:
        """The role of each instance that answered what it was asked at `since_ns` (controller's clock, ns) or later;
        an instance that did not is left out."""
        return {name: seen.role for name, seen in self._seen.items() if seen.told_ns >= since_ns}

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._watch(name)) for name in self._instances]

    def record(self) -> int:
        """Write each instance's role as it is now, and from here on every change. Returns since when (controller's
        clock, ns): what a system did on its way to the steady state is no part of the run, and would make a broker
        that only kept the place warm look like the original one."""
        begin = now_ns()
        self._since_ns = begin
        for name, seen in self._seen.items():
            if seen.role:
                self._write(name, seen.role, begin, begin - seen.asked_ns)
        return begin

    async def stop(self) -> None:
        """Stop asking. Raises what ended a poll before its time."""
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
        descriptor, management = self._instances[name]
        seen = self._seen[name]
        try:
            role = await management.role()
            answering = True
        except ManagementError as error:
            # No listener means no process; silence alone says nothing about the role (a paused broker is still active).
            role, answering = ("down" if error.refused else seen.role), error.refused
        answered = now_ns()
        if answering != seen.answering and self._since_ns is not None:
            value = "answers" if answering else "silent"
            self._events.write("health", at_ns=answered, instance=name, target=descriptor.host, value=value)
        if role != seen.role:
            # The change lies between the last question that found the old role and this answer. The question's time
            # stands for it: an answer that was overtaken by the next change must not come after that change.
            since = seen.asked_ns or asked
            if self._since_ns is not None:
                # A question of before the beginning that is answered after it tells of the time since.
                at = max(asked, self._since_ns)
                self._write(name, role, at, max(at - since, answered - at))
            self._on_change(name, role)
        self._seen[name] = Seen(role, asked, asked if answering else seen.told_ns, answering)

    def _write(self, name: str, role: str, at_ns: int, uncertainty_ns: int) -> None:
        descriptor, _ = self._instances[name]
        self._events.write(
            "role",
            at_ns=at_ns,
            uncertainty_ns=uncertainty_ns,
            target=descriptor.host,
            instance=name,
            store=descriptor.store,
            name="poll",
            value=role,
        )
