"""Host names of clients, by reverse DNS, cached."""

from __future__ import annotations

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor

_KEEP = 300.0
"""Seconds that a name, or that there is none, is remembered."""
_WAIT = 1.0
"""Seconds that a session waits for its client's name."""
_MOST = 4096
_THREADS, _ASKED = 2, 64
"""Own threads, and addresses that may wait for them: the event loop's are for the names of brokers."""


class ReverseDns:
    """A cache of names; an address without a name, or without an answer in time, is its own name."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float]] = {}
        self._asked: dict[str, asyncio.Future[str]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "reverse-dns")

    async def of(self, address: str) -> str:
        """Return the name of the IP `address`."""
        known = self._known.get(address)
        if known is not None and time.monotonic() - known[1] < _KEEP:
            return known[0]
        asked = self._asked.get(address)
        if asked is None:
            if len(self._asked) >= _ASKED:
                return address
            asked = asyncio.get_running_loop().run_in_executor(self._threads, _name_of, address)
            self._asked[address] = asked
            asked.add_done_callback(lambda answer: self._keep(address, answer))
        # An answer that comes too late for this session is there for the next.
        await asyncio.wait([asked], timeout=_WAIT)
        return asked.result() if asked.done() else address

    def _keep(self, address: str, answer: asyncio.Future[str]) -> None:
        del self._asked[address]
        if answer.cancelled():
            return
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[address] = (answer.result(), time.monotonic())


def _name_of(address: str) -> str:
    try:
        return socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0]
    except OSError:
        return address
