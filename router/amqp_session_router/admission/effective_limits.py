"""The limits that hold now: the router's own, and each vhost's."""

from __future__ import annotations

from amqp_session_router.config.schema import LimitsPart, VhostLimits


class EffectiveLimits:
    """The limits as they are set now. `apply` changes them for all that hold this object."""

    def __init__(self, part: LimitsPart) -> None:
        self.router = part
        """The router's own, and what the others are merged from."""
        self._merged: dict[str, VhostLimits] = {}

    def apply(self, part: LimitsPart) -> None:
        """Go by `part` from here on."""
        self.router = part
        self._merged.clear()

    def of(self, vhost: str) -> VhostLimits:
        """Return the limits of `vhost`: its own, and the defaults where it has none."""
        own = self.router.vhosts.get(vhost)
        if own is None:
            return self.router.default
        merged = self._merged.get(vhost)
        if merged is None:
            merged = self.router.default.model_copy(update=own.model_dump(exclude_none=True))
            self._merged[vhost] = merged
        return merged
