"""The vhosts that are paused, and who waits for the end of a pause."""

from __future__ import annotations

import asyncio


class PausedVhosts:
    """Vhosts whose new sessions wait before they get a backend. All of it runs in the event loop's thread."""

    def __init__(self) -> None:
        self._ended: dict[str, asyncio.Event] = {}
        """Set when the vhost's pause ends."""

    @property
    def names(self) -> list[str]:
        """The vhosts, sorted."""
        return sorted(self._ended)

    def __contains__(self, vhost: str) -> bool:
        """Whether `vhost` is paused."""
        return vhost in self._ended

    def pause(self, vhost: str) -> None:
        """New sessions of `vhost` wait from here on. Idempotent."""
        self._ended.setdefault(vhost, asyncio.Event())

    def unpause(self, vhost: str) -> bool:
        """Let them go on; returns whether `vhost` was paused."""
        event = self._ended.pop(vhost, None)
        if event is not None:
            event.set()
        return event is not None

    async def end_of(self, vhost: str) -> None:
        """Return when `vhost` is not paused, at once if it is not."""
        while (event := self._ended.get(vhost)) is not None:
            await event.wait()
