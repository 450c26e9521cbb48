"""How many sessions each backend has, of all workers, and whether there is room for one more."""

from __future__ import annotations

from collections.abc import Mapping

from amqp_session_router.admission.other_workers import BACKEND, Exchange
from amqp_session_router.admission.violations import Violations
from amqp_session_router.base.model import Backend


class BackendPlaces:
    """The places of sessions at backends, taken from the begin of an attempt on."""

    def __init__(self, exchange: Exchange, violations: Violations) -> None:
        self._exchange = exchange
        self._violations = violations
        self._taken: dict[str, int] = {}
        """By the backend's name. All are counted: there may be a most for it later."""
        self._most: dict[str, int] = {}

    def apply(self, backends: Mapping[str, Backend]) -> None:
        """Go by the most of these backends from here on; those of others have none."""
        self._most = {one.name: one.connections for one in backends.values() if one.connections is not None}

    def count(self, name: str) -> int:
        """Return the places that are taken at the backend `name` in all workers."""
        return self._taken.get(name, 0) + self._exchange.count(BACKEND, name)

    def counts(self) -> dict[tuple[str, str], int]:
        """Return what the other workers have to know, by kind and name."""
        return {(BACKEND, name): count for name, count in self._taken.items() if name in self._most}

    def take(self, name: str) -> bool:
        """Take a place; returns whether there was one."""
        self.adopted(name)
        most = self._most.get(name)
        if most is None or (count := self.count(name)) <= most:
            return True
        self.left(name)
        # It tells in any case, and no client is refused by it alone: it is none of those that `alarm_only` is about.
        self._violations.alarm("backend_connections", name, f"{count - 1} sessions")
        return False

    def adopted(self, name: str) -> None:
        """One more place is taken, whatever the most is."""
        self._set(name, self._taken.get(name, 0) + 1)

    def left(self, name: str) -> None:
        """One place less is taken."""
        self._set(name, self._taken.get(name, 0) - 1)

    def _set(self, name: str, count: int) -> None:
        if count > 0:
            self._taken[name] = count
        else:
            self._taken.pop(name, None)
        if name in self._most:
            self._exchange.publish(BACKEND, name, max(0, count))
