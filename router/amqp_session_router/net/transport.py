"""What sessions read and write: a plain TCP socket, which can be spliced, or a TLS stream (`tls_transport`).

Both read only when asked to and report when their send buffer is empty, so that nothing is buffered without bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Protocol

from amqp_session_router.base.native import receive, transmit
from amqp_session_router.net.poller import Poller
from amqp_session_router.net.tcp_info import TcpCounts, Unanswered, counts, unanswered

_LINGER_OFF = struct.pack("ii", 1, 0)


class Transport(Protocol):
    """What sessions use."""

    on_drained: Callable[[], None] | None
    """Called when everything sent has been taken by the kernel."""

    @property
    def kernel(self) -> socket.SocketType | None:
        """The socket of a plain connection, None with TLS."""

    @property
    def error(self) -> OSError | None:
        """The error, once it was seen; `watch` then reports the end."""

    @property
    def full(self) -> bool:
        """Whether sent bytes wait in the process."""

    def unanswered(self) -> Unanswered | None:
        """See `tcp_info.unanswered`."""

    def watch(self, got: Callable[[bytes], None]) -> None:
        """Call `got` with all bytes that come, empty at the end or after a failure, until `unwatch`."""

    def unwatch(self) -> None:
        """Stop reading."""

    def relinquish(self) -> None:
        """Stop reading; the next reader of the connection starts at once."""

    def send(self, data: bytes) -> None:
        """Send; never blocks or raises: a broken connection is seen when it is read."""

    def finish(self) -> None:
        """Shut the sending direction; the other stays open where the protocol allows it."""

    def close(self) -> None:
        """End the connection once what was sent is out. Idempotent."""

    def abort(self) -> None:
        """Reset the connection. Idempotent."""


class SocketTransport:
    """A bare TCP socket."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.SocketType, poller: Poller, past: bool = False
    ) -> None:
        """`past`: another process read or wrote bytes before."""
        self.kernel: socket.SocketType | None = sock
        self.error: OSError | None = None
        self.on_drained: Callable[[], None] | None = None
        self._loop = loop
        self._sock = sock
        self.fd = sock.fileno()
        self._poller = poller
        self._pending = b""
        self._past = past
        self._read = self._written = 0
        self._reader: Callable[[bytes], None] | None = None
        self._awaited = False
        self._failing = False
        self._closing = False

    @property
    def full(self) -> bool:
        """Whether sent bytes wait in the process."""
        return bool(self._pending)

    def counts(self) -> TcpCounts:
        """Return the bytes read and written until a flow took over; raises OSError if unknown."""
        return counts(self._sock) if self._past else TcpCounts(self._read, self._written)

    def unanswered(self) -> Unanswered | None:
        """See `tcp_info.unanswered`."""
        return None if self.fd < 0 else unanswered(self._sock)

    def take(self, size: int, flags: int = 0) -> bytes:
        """Return at most `size` of the next bytes, without waiting; raises OSError."""
        data = self._sock.recv(size, flags)
        if not flags & socket.MSG_PEEK:
            self._read += len(data)
        return data

    def wait_for_bytes(self, count: int) -> None:
        """Let the socket count as readable from `count` bytes on, or at its end."""
        if self.fd >= 0:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    async def readable(self) -> None:
        """Return when there is something to `take`."""
        future = self._loop.create_future()
        self._loop.add_reader(self.fd, _resolve, future)
        self._awaited = True
        try:
            await future
        finally:
            if self._awaited:
                self._await_no_more()

    def _await_no_more(self) -> None:
        self._awaited = False
        self._loop.remove_reader(self.fd)

    def watch(self, got: Callable[[bytes], None]) -> None:
        """Call `got` with all bytes that come, empty at the end or after a failure, until `unwatch`."""
        self._reader = got
        if self.fd >= 0:
            self._poller.watch(self.fd, self)
            self._poller.read(self.fd, self._readable)
            if self._failing:
                self._loop.call_soon(self.drain_on_error)

    def look(self) -> None:
        """Read what is there already, for the reader given to `watch`."""
        if self._reader is not None:
            self._readable()

    def _readable(self) -> bool:
        """Read once; returns whether there may be more."""
        reader = self._reader
        assert reader is not None
        try:
            data = receive(self.fd)
        except OSError as error:
            self.error = error
            data = b""
        if data is None:
            return False
        self._read += len(data)
        if not data:
            self.unwatch()
        reader(data)
        return bool(data)

    def drain_on_error(self) -> None:
        """The socket has failed, or both its directions have ended: read until that shows."""
        self._failing = True
        while self._reader is not None and self._readable():
            pass

    def unwatch(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader = None
            if self.fd >= 0:
                self._poller.unread(self.fd)

    relinquish = unwatch

    def send(self, data: bytes) -> None:
        """Send; never blocks or raises: a broken connection is seen when it is read."""
        if self._pending:
            self._pending += data
            return
        if self.fd < 0 or not data:
            return
        try:
            sent = transmit(self.fd, data)
        except OSError as error:
            self._keep(error)
            return
        self._written += sent
        if sent < len(data):
            self._pending = data[sent:]
            self._loop.add_writer(self.fd, self._writable)

    def _writable(self) -> None:
        try:
            sent = transmit(self.fd, self._pending)
            self._written += sent
            self._pending = self._pending[sent:]
        except OSError as error:
            self._keep(error)
            self._pending = b""
        if self._pending:
            return
        self._loop.remove_writer(self.fd)
        if self._closing:
            self.close()
        elif self.on_drained is not None:
            self.on_drained()

    def _keep(self, error: OSError) -> None:
        """Keep the error for the reader: the kernel reports it only once, and the reader sees a mere end after that."""
        if not isinstance(error, BrokenPipeError):
            self.error = error

    def finish(self) -> None:
        """Shut the sending direction; the other stays open."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the connection once what was sent is out. Idempotent."""
        if self.fd < 0:
            return
        self.unwatch()
        if self._pending:
            self._closing = True
            return
        if self._awaited:
            # The event loop would take the next socket of that number for this one.
            self._await_no_more()
        self._poller.forget(self.fd)
        self.fd = -1
        self._sock.close()

    def abort(self) -> None:
        """Reset the connection. Idempotent."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
            if self._pending:
                self._pending = b""
                self._loop.remove_writer(self.fd)
            self.close()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
