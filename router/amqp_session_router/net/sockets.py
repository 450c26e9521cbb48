"""System calls for TCP sockets of which a connection makes several, where `sockets.pyx` could not be compiled.

What is compiled is imported in its place. The tests of sessions run with either.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

CHUNK = 65536
"""Bytes of one read."""


def accept(listening: int) -> tuple[socket.SocketType, tuple[str, int]] | None:
    """Return the next connection of a listening socket, not blocking, and its peer's address and port; None if there is
    none. Raises OSError."""
    listener = socket.socket(fileno=listening)
    try:
        sock, peer = listener.accept()
    except (BlockingIOError, InterruptedError):
        return None
    finally:
        listener.detach()
    sock.setblocking(False)
    return sock, (peer[0], peer[1])


def receive(fd: int) -> bytes | None:
    """Return the next bytes of a socket, at most CHUNK, or b"" at its end; None: there are none yet. Raises OSError."""
    try:
        return os.read(fd, CHUNK)
    except BlockingIOError:
        return None


def transmit(fd: int, data: bytes) -> int:
    """Send what the kernel takes of `data` without waiting, and return how many bytes that were. Raises OSError."""
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return 0


def set_options(fd: int, options: Iterable[tuple[int, int, int | bytes]]) -> None:
    """Set several `options` (level, option, number or bytes) of a socket. Raises OSError."""
    sock = socket.socket(fileno=fd)
    try:
        for level, option, value in options:
            sock.setsockopt(level, option, value)
    finally:
        sock.detach()
