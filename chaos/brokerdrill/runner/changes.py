"""Word of changes: who waits for a condition looks again as soon as a role or a worker's status has changed."""

from __future__ import annotations

import asyncio
import contextlib

# A condition is looked at again after so long, with or without a change.
POLL_S = 0.1


class Changes:
    """Wakes those who wait."""

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
