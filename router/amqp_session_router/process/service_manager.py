"""What systemd is told of the router: the protocol of sd_notify(3), without its library.

A worker speaks for the service, and a worker is never its main process: the unit needs `NotifyAccess=all`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping

_BEATS = 3
"""Signs of life in one watchdog period."""


class ServiceManager:
    """The service manager that started the router; without one nobody is told anything."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` has NOTIFY_SOCKET, and WATCHDOG_USEC where the unit has a watchdog."""
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        period = environment.get("WATCHDOG_USEC", "")
        self.beat = int(period) / 1e6 / _BEATS if self._address and period.isdecimal() and int(period) else None
        """Seconds between two signs of life; None: nobody waits for any."""

    def tell(self, *words: str) -> None:
        """Send `words`, such as `READY=1`; one who does not listen is no trouble."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)
            line.sendto("\n".join(words).encode(), self._address)

    async def live(self) -> None:
        """Give signs of life until cancelled: an event loop that is stuck gives none."""
        while self.beat is not None:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self.beat)
