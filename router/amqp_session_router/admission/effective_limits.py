"""The limits that hold now: the router's own, each vhost's and each user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from amqp_session_router.config.schema import ConnectionLimits, LimitsPart, VhostLimits

Part = TypeVar("Part", bound=ConnectionLimits)


class EffectiveLimits:
    """The limits as they are set now. `apply` changes them for all that hold this object."""

    def __init__(self, part: LimitsPart) -> None:
        self.router = part
        """The router's own, and what the others are merged from."""
        self._vhosts: dict[str, VhostLimits] = {}
        self._users: dict[str, ConnectionLimits] = {}

    def apply(self, part: LimitsPart) -> None:
        """Go by `part` from here on."""
        self.router = part
        self._vhosts.clear()
        self._users.clear()

    def of(self, vhost: str) -> VhostLimits:
        """Return the limits of `vhost`: its own, and the defaults where it has none."""
        return _merged(vhost, self.router.vhosts, self.router.default, self._vhosts)

    def of_user(self, user: str) -> ConnectionLimits:
        """Return the limits of `user`: its own, and the defaults where it has none."""
        users = self.router.users
        return _merged(user, users.names, users.default, self._users)


def _merged(name: str, by_name: Mapping[str, Part], default: Part, known: dict[str, Part]) -> Part:
    """Return the limits of `name`, which are `known` from then on."""
    own = by_name.get(name)
    if own is None:
        return default
    merged = known.get(name)
    if merged is None:
        merged = known[name] = default.model_copy(update=own.model_dump(exclude_none=True))
    return merged
