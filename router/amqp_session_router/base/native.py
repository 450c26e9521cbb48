"""What C does otherwise than Python, where nothing is compiled: `native.pyx` says what each name is for.

What is compiled is imported in its place. A test holds the modules above it against each other, with either.
"""

from __future__ import annotations

import errno
import math
import os
import re
import select
import socket
import time
from collections.abc import Iterable

EPOLLIN, EPOLLERR, EPOLLHUP = select.EPOLLIN, select.EPOLLERR, select.EPOLLHUP
EAGAIN, EINTR = errno.EAGAIN, errno.EINTR

CHUNK = 65536
"""Bytes of one read by `receive`."""
# A frame's type, a channel, and the first byte of a size below 16 MiB.
_HEADER = re.compile(rb"[\x01\x02\x03\x08](?=..\x00)", re.DOTALL)


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


# --- bytes at an address --------------------------------------------------------------------------------------------


def octets(buffer: bytes | bytearray | memoryview) -> memoryview:
    return memoryview(buffer).cast("B")


def words(buffer: memoryview) -> memoryview:
    return memoryview(buffer)


def part(data: bytes, at: int, end: int) -> bytes:
    return data[at:end]


def part_of_buffer(data: bytearray, at: int, end: int) -> bytes:
    return bytes(data[at:end])


def blank(size: int) -> bytearray:
    return bytearray(size)


def filled(room: bytearray) -> bytes:
    return bytes(room)


def copy(data: memoryview, at: int, source: bytes) -> None:
    data[at : at + len(source)] = source


def find_header(data: memoryview, at: int, stop: int) -> int:
    found = _HEADER.search(data, at, stop + 3)
    return found.start() if found else stop


# --- sockets and pipes ----------------------------------------------------------------------------------------------


def _number(error: OSError) -> int:
    return -(error.errno or errno.EIO)


def _socket_of(fd: int) -> socket.SocketType:
    # Of which kind it is does not matter here; where it is given, nobody asks the kernel.
    return socket.SocketType(socket.AF_INET, socket.SOCK_STREAM, 0, fd)


def read_into(fd: int, data: memoryview, at: int, count: int, peek: bool) -> int:
    sock = _socket_of(fd)
    try:
        return sock.recv_into(data[at : at + count], 0, socket.MSG_PEEK if peek else 0)
    except OSError as error:
        return _number(error)
    finally:
        sock.detach()


def write_from(fd: int, data: memoryview, at: int, count: int) -> int:
    sock = _socket_of(fd)
    try:
        return sock.send(data[at : at + count])
    except OSError as error:
        return _number(error)
    finally:
        sock.detach()


def splice(source: int, to: int, count: int, flags: int) -> int:
    try:
        return os.splice(source, to, count, flags=flags)
    except OSError as error:
        return _number(error)


# --- time -----------------------------------------------------------------------------------------------------------


def monotonic_ms() -> float:
    return time.monotonic() * 1e3


def whole_ms(ms: float, most: int) -> int:
    return 0 if ms <= 0 else math.ceil(min(ms, most))


# --- epoll ----------------------------------------------------------------------------------------------------------

EVENT_SIZE = 16
Events = list[tuple[int, int]]
_epolls: dict[int, select.epoll] = {}


def epoll_new() -> int:
    made = select.epoll()
    _epolls[made.fileno()] = made
    return made.fileno()


def epoll_end(epoll: int) -> None:
    _epolls.pop(epoll).close()


def events_in(room: bytearray) -> Events:
    return []


def epoll_add(epoll: int, fd: int, wanted: int) -> int:
    try:
        _epolls[epoll].register(fd, wanted)
    except OSError as error:
        return _number(error)
    return 0


def epoll_change(epoll: int, fd: int, wanted: int) -> int:
    try:
        _epolls[epoll].modify(fd, wanted)
    except OSError as error:
        return _number(error)
    return 0


def epoll_drop(epoll: int, fd: int) -> int:
    try:
        _epolls[epoll].unregister(fd)
    except OSError as error:
        return _number(error)
    return 0


def epoll_wait(epoll: int, events: Events, most: int, timeout_ms: int) -> int:
    events[:] = _epolls[epoll].poll(None if timeout_ms < 0 else timeout_ms / 1000, most)
    return len(events)


def fd_of(events: Events, index: int) -> int:
    return events[index][0]


def seen_by(events: Events, index: int) -> int:
    return events[index][1]


def has_events(fd: int) -> bool:
    now = select.poll()
    now.register(fd, 0)
    return bool(now.poll(0))
