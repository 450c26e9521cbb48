"""Host names of clients, by reverse DNS: cached, and never waited for longer than a moment."""

from __future__ import annotations

import asyncio
import socket
import time

_KEEP = 300.0
"""Seconds that a name, or that there is none, is remembered."""
_WAIT = 1.0
"""Seconds that a session waits for its client's name."""
_MOST = 4096


class ClientNames:
    """The cache; an address without a name, or one that DNS does not give in time, stands for itself."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float]] = {}

    async def of(self, address: str) -> str:
        """Return the name of the IP `address`."""
        known = self._known.get(address)
        if known is not None and time.monotonic() - known[1] < _KEEP:
            return known[0]
        try:
            async with asyncio.timeout(_WAIT):
                loop = asyncio.get_running_loop()
                name, _ = await loop.getnameinfo((address, 0), socket.NI_NAMEREQD)
        except (OSError, TimeoutError):
            name = address
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[address] = (name, time.monotonic())
        return name
