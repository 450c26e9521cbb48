"""Detects failed sockets, so that what they still hold is read before the error is reported.

libuv stops polling a socket after one error event: a reset that arrives together with more bytes than one read takes
would never be seen. So every socket of a session is in an edge-triggered epoll of our own as well.
"""

from __future__ import annotations

import asyncio
import select
from typing import Protocol


class ErrorHandler(Protocol):
    """The reader of a socket."""

    def drain_on_error(self) -> None:
        """The socket failed or is shut in both directions: read until the error or the end is seen."""


class ErrorWatcher:
    """Tells the reader of a socket that the socket failed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._readers: dict[int, ErrorHandler] = {}
        self._failed: set[int] = set()
        loop.add_reader(self._epoll.fileno(), self._look)

    def watch(self, fd: int, reader: ErrorHandler) -> None:
        """Register `reader` for the socket `fd`, in place of any earlier one."""
        before = self._readers.get(fd)
        if before is reader:
            return
        self._readers[fd] = reader
        if before is None:
            # EPOLLERR and EPOLLHUP need not be asked for.
            self._epoll.register(fd, select.EPOLLET)
        elif fd in self._failed:
            self._loop.call_soon(reader.drain_on_error)

    def forget(self, fd: int) -> None:
        """Forget the socket `fd`, which is about to be closed and has no duplicates (the kernel drops it by itself)."""
        if self._readers.pop(fd, None) is not None:
            self._failed.discard(fd)

    def leave(self, fd: int) -> None:
        """Stop watching `fd`, of which another process has a duplicate."""
        if fd in self._readers:
            self.forget(fd)
            self._epoll.unregister(fd)

    def _look(self) -> None:
        for fd, _ in self._epoll.poll(0):
            reader = self._readers.get(fd)
            if reader is not None:
                self._failed.add(fd)
                self._loop.call_soon(reader.drain_on_error)

    def close(self) -> None:
        """Release everything."""
        self._readers.clear()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
