"""A connection as the handshake sees it: a bare socket, which the kernel can splice, or a TLS stream.

Both read only when asked to and tell when what was sent has gone out, so that nothing is buffered without bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Protocol, cast

_CHUNK = 65536
_LINGER_OFF = struct.pack("ii", 1, 0)


class Wire(Protocol):
    """What sessions use."""

    kernel: socket.socket | None
    """The socket, where bytes need no work on their way; None under TLS."""
    on_drained: Callable[[], None] | None
    """Called when everything sent has been taken by the kernel."""

    @property
    def full(self) -> bool:
        """Is something sent still waiting to go out?"""

    async def recv(self) -> bytes:
        """Return the next bytes, empty at the end; raises OSError."""

    def watch(self, got: Callable[[bytes], None]) -> None:
        """Call `got` with all bytes that come, empty at the end or after a failure, until `unwatch`."""

    def unwatch(self) -> None:
        """Read no more."""

    def send(self, data: bytes) -> None:
        """Send; never blocks, never raises: a broken connection shows when it is read."""

    def finish(self) -> None:
        """Send no more; where it can be, the other direction stays open."""

    def close(self) -> None:
        """End the connection once what was sent is out. Idempotent."""

    def abort(self) -> None:
        """Reset the connection. Idempotent."""


class SocketWire:
    """A bare TCP socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self.kernel: socket.socket | None = sock
        self.on_drained: Callable[[], None] | None = None
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._pending = b""
        self._reader: Callable[[bytes], None] | None = None
        self._closing = False

    @property
    def full(self) -> bool:
        """Is something sent still waiting to go out?"""
        return bool(self._pending)

    async def recv(self) -> bytes:
        """Return the next bytes, empty at the end; raises OSError."""
        with contextlib.suppress(BlockingIOError):
            return self._sock.recv(_CHUNK)
        await self.readable()
        return self._sock.recv(_CHUNK)

    async def readable(self) -> None:
        """Return when there is something to read."""
        future = self._loop.create_future()
        self._loop.add_reader(self._fd, _resolve, future)
        try:
            await future
        finally:
            if self._fd >= 0:
                self._loop.remove_reader(self._fd)

    def watch(self, got: Callable[[bytes], None]) -> None:
        """Call `got` with all bytes that come, empty at the end or after a failure, until `unwatch`."""
        self._reader = got
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        reader = self._reader
        if not data:
            self.unwatch()
        if reader is not None:
            reader(data)
        if data and self._reader is not None and self._fd >= 0:
            # libuv polls no more once a failure was pending, whether all before it was read or not.
            self._loop.remove_reader(self._fd)
            self._loop.add_reader(self._fd, self._readable)

    def unwatch(self) -> None:
        """Read no more."""
        if self._reader is not None:
            self._reader = None
            if self._fd >= 0:
                self._loop.remove_reader(self._fd)

    def send(self, data: bytes) -> None:
        """Send; never blocks, never raises: a broken connection shows when it is read."""
        if self._pending:
            self._pending += data
            return
        if self._fd < 0 or not data:
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return
        if sent < len(data):
            self._pending = data[sent:]
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        try:
            self._pending = self._pending[self._sock.send(self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            self._pending = b""
        if self._pending:
            return
        self._loop.remove_writer(self._fd)
        if self._closing:
            self.close()
        elif self.on_drained is not None:
            self.on_drained()

    def finish(self) -> None:
        """Send no more; the other direction stays open."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the connection once what was sent is out. Idempotent."""
        if self._fd < 0:
            return
        self.unwatch()
        if self._pending:
            self._closing = True
            return
        # libuv ends the process over a descriptor that is closed while it is watched.
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._fd = -1
        self._sock.close()

    def abort(self) -> None:
        """Reset the connection. Idempotent."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
            self._pending = b""
            self.close()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class StreamWire(asyncio.Protocol):
    """A TLS stream; make it through asyncio (`connect_accepted_socket`, `create_connection`)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.kernel: socket.socket | None = None
        self.on_drained: Callable[[], None] | None = None
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._ended = False
        self._full = False
        self._waiter: asyncio.Future[None] | None = None
        self._reader: Callable[[bytes], None] | None = None

    # asyncio's side
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=16384, low=0)

    def data_received(self, data: bytes) -> None:
        """Give the bytes on, or keep them until someone reads."""
        if self._reader is not None:
            self._reader(data)
            return
        self._buffer += data
        if self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """The peer sends no more; TLS has no half-closed state to keep."""
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._transport = None
        self._full = False
        self._end()

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        self._full = True

    def resume_writing(self) -> None:
        """All that was sent is out."""
        self._full = False
        if self.on_drained is not None:
            self.on_drained()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._wake()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader(b"")

    def _wake(self) -> None:
        if self._waiter is not None:
            _resolve(self._waiter)

    # the session's side
    @property
    def full(self) -> bool:
        """Is something sent still waiting to go out?"""
        return self._full

    def tls(self) -> ssl.SSLObject | None:
        """Return the TLS session."""
        return None if self._transport is None else self._transport.get_extra_info("ssl_object")

    def own_address(self) -> tuple[str, int]:
        """Return the address that the peer connected to."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return tuple(name[:2]) if name else ("0.0.0.0", 0)

    async def recv(self) -> bytes:
        """Return the next bytes, empty at the end."""
        while not self._buffer and not self._ended:
            if self._transport is not None:
                self._transport.resume_reading()
            self._waiter = self._loop.create_future()
            await self._waiter
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def watch(self, got: Callable[[bytes], None]) -> None:
        """Call `got` with all bytes that come, empty at the end or after a failure, until `unwatch`."""
        self._reader = got
        self._loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        if self._reader is None:
            return
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            self._reader(data)
        if self._reader is None:
            return
        if self._ended:
            reader, self._reader = self._reader, None
            reader(b"")
        elif self._transport is not None:
            self._transport.resume_reading()

    def unwatch(self) -> None:
        """Read no more."""
        self._reader = None
        if self._transport is not None and not self._ended:
            self._transport.pause_reading()

    def send(self, data: bytes) -> None:
        """Send; never blocks, never raises."""
        if self._transport is not None and data:
            self._transport.write(data)

    def finish(self) -> None:
        """Send no more: with TLS that ends the connection."""
        self.close()

    def close(self) -> None:
        """End the connection once what was sent is out. Idempotent."""
        self._reader = None
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Cut the connection. Idempotent."""
        self._reader = None
        if self._transport is not None:
            self._transport.abort()
