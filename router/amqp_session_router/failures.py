"""Sockets that have failed, and who is to read what they still hold.

libuv polls a socket no more after it has told of an error, and tells once: a reset that comes together with more bytes
than one turn reads would never be seen. So every socket of a session is in an epoll of our own as well.
"""

from __future__ import annotations

import asyncio
import select
from typing import Protocol


class Reader(Protocol):
    """Who reads a socket."""

    def read_to_failure(self) -> None:
        """The socket has failed, or both its directions have ended: read until that shows."""


class Failures:
    """Tells readers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._readers: dict[int, Reader] = {}
        self._failed: set[int] = set()
        loop.add_reader(self._epoll.fileno(), self._look)

    def watch(self, fd: int, reader: Reader) -> None:
        """Have `reader`, instead of who was told before, read the socket `fd` once it has failed."""
        before = self._readers.get(fd)
        if before is reader:
            return
        self._readers[fd] = reader
        if before is None:
            # EPOLLERR and EPOLLHUP need not be asked for.
            self._epoll.register(fd, select.EPOLLET)
        elif fd in self._failed:
            self._loop.call_soon(reader.read_to_failure)

    def forget(self, fd: int) -> None:
        """The socket is about to be closed, and the kernel watches it no more: it must be the last of its copies."""
        if self._readers.pop(fd, None) is not None:
            self._failed.discard(fd)

    def leave(self, fd: int) -> None:
        """A copy goes to another process, and would keep the socket watched under this number."""
        if fd in self._readers:
            self.forget(fd)
            self._epoll.unregister(fd)

    def _look(self) -> None:
        for fd, _ in self._epoll.poll(0):
            reader = self._readers.get(fd)
            if reader is not None:
                self._failed.add(fd)
                self._loop.call_soon(reader.read_to_failure)

    def close(self) -> None:
        """Give everything back."""
        self._readers.clear()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
