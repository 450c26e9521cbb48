"""A TLS stream over a plain connection, by OpenSSL's memory buffers: it reads and writes where the plain one does."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable

from amqp_session_router.net.tcp_info import Unanswered
from amqp_session_router.net.transport import SocketTransport

_RECORD = 16384
"""The most that one record holds (RFC 8446, section 5.1)."""
_LINGER = 5.0
"""Seconds that a peer has to end a connection that was closed here."""


class TlsTransport:
    """See `transport.Transport`. It has the connection, `raw`, from its making on, however the handshake ends."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        raw: SocketTransport,
        context: ssl.SSLContext,
        server_name: str | None = None,
    ) -> None:
        """`server_name`: the peer is a server, whose certificate has this name if `context` verifies it; None: it is a
        client."""
        self.kernel = None
        self.on_drained: Callable[[], None] | None = None
        self._loop = loop
        self._raw = raw
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._shaken: asyncio.Future[None] | None = loop.create_future()
        """None once the handshake is over."""
        self._unsent = b""
        """What cannot be sent before the peer has said more: it negotiates anew."""
        self._ended = False
        self._lingering: asyncio.TimerHandle | None = None
        self._reader: Callable[[bytes], None] | None = None
        raw.on_drained = self._drained

    async def handshake(self) -> None:
        """Do the handshake; raises OSError, of which ssl.SSLError, and then the connection is closed."""
        assert self._shaken is not None
        self._raw.watch(self._received)
        self._shake()
        try:
            await self._shaken
        except ssl.SSLError:
            # Behind the alert that gives the peer the reason.
            self._raw.close()
            raise
        except BaseException:
            self._raw.abort()
            raise
        finally:
            self._shaken = None

    def _shake(self) -> None:
        assert self._shaken is not None
        if self._shaken.done():
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()
            self._raw.unwatch()
            self._shaken.set_exception(error)
            return
        self._flush()
        self._raw.unwatch()
        self._shaken.set_result(None)

    def _received(self, data: bytes) -> None:
        """Bytes of the connection, empty at its end."""
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        if self._shaken is None:
            self._deliver()
        elif data:
            self._shake()
        elif not self._shaken.done():
            self._shaken.set_exception(self._raw.error or ConnectionError("the connection ended"))

    def _deliver(self) -> None:
        data = self._decrypted()
        if data and self._reader is not None:
            self._reader(data)
        if self._ended and self._reader is not None:
            reader, self._reader = self._reader, None
            self._raw.unwatch()
            reader(b"")

    def _decrypted(self) -> bytes:
        """Return all that can be read by now."""
        parts = []
        try:
            while part := self._tls.read(_RECORD):
                parts.append(part)
            self._ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            # Cut off, or damaged. TLS has no half-closed state to keep.
            self._ended = True
        waiting = bool(self._unsent)
        self._send_the_rest()
        # With it go answers of the protocol itself.
        self._flush()
        if waiting and not self._raw.full:
            self._drained()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._raw.send(self._outgoing.read())

    def _drained(self) -> None:
        if self.on_drained is not None and not self._unsent:
            self.on_drained()

    # --- the session's side -----------------------------------------------------------------------------------------

    def unanswered(self) -> Unanswered | None:
        """See `tcp_info.unanswered`."""
        return self._raw.unanswered()

    @property
    def error(self) -> OSError | None:
        """The error of the connection."""
        return self._raw.error

    @property
    def full(self) -> bool:
        """Whether sent bytes wait in the process."""
        return bool(self._unsent) or self._raw.full

    @property
    def tls(self) -> ssl.SSLObject:
        """The TLS session."""
        return self._tls

    def own_address(self) -> tuple[str, int]:
        """Return the address that the peer connected to."""
        with contextlib.suppress(OSError):
            if self._raw.kernel is not None:
                name = self._raw.kernel.getsockname()
                return name[0], name[1]
        return "0.0.0.0", 0

    def watch(self, got: Callable[[bytes], None]) -> None:
        """Call `got` with all bytes that come, empty at the end or after a failure, until `unwatch`."""
        self._reader = got
        if not self._ended:
            self._raw.watch(self._received)
        if self._ended or self._incoming.pending:
            # What came with the end of the handshake.
            self._loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        if self._reader is not None:
            self._deliver()

    def unwatch(self) -> None:
        """Stop reading."""
        self._reader = None
        self._raw.unwatch()

    def relinquish(self) -> None:
        """Stop reading; the next reader of the connection starts at once."""
        self.unwatch()

    def send(self, data: bytes) -> None:
        """Send; never blocks or raises: a broken connection is seen when it is read."""
        self._unsent += data
        self._send_the_rest()
        self._flush()

    def _send_the_rest(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._tls.write(self._unsent) :]
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._unsent = b""

    def finish(self) -> None:
        """Close: TLS has no half-closed state."""
        self.close()

    def close(self) -> None:
        """End the connection once what was sent is out. Idempotent."""
        if self._lingering is not None:
            return
        self.unwatch()
        if self._shaken is None:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        if self._shaken is not None or self._ended or self._raw.error is not None or self._raw.fd < 0:
            self._raw.close()
            return
        # A socket that is closed with bytes unread is reset, and the peer may lose what it was sent last.
        self._lingering = self._loop.call_later(_LINGER, self._raw.abort)
        self._raw.watch(self._discard)
        self._raw.on_drained = self._raw.finish
        if not self._raw.full:
            self._raw.finish()

    def _discard(self, data: bytes) -> None:
        if not data:
            if self._lingering is not None:
                self._lingering.cancel()
            self._raw.close()

    def abort(self) -> None:
        """Cut the connection. Idempotent."""
        if self._lingering is not None:
            self._lingering.cancel()
        self.unwatch()
        self._raw.abort()
        if self._shaken is not None and not self._shaken.done():
            self._shaken.set_exception(ConnectionAbortedError("the connection was given up"))
