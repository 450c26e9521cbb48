"""Whether a backend that accepts connections speaks AMQP: it has to greet by Connection.Start."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

from amqp_session_router.amqp import codec
from amqp_session_router.amqp.negotiation import BROKER_FRAME_MAX, AttemptFailed
from amqp_session_router.base.model import Backend
from amqp_session_router.net import proxy_protocol
from amqp_session_router.net.dialer import tls_context

# Type 1 (a method), channel 0, four bytes of length; class 10, method 10.
_HEAD = 11
_METHOD, _START = b"\x01\x00\x00", b"\x00\x0a\x00\x0a"


async def greeted(connected: socket.SocketType, backend: Backend, timeout: float) -> bytes:
    """Return the Start of the broker at the other end of `connected`, a method's payload, once it has greeted, within
    `timeout` seconds; raises AttemptFailed. Closes it in any case.
    """
    # The class that asyncio asks for.
    sock = socket.socket(fileno=connected.detach())
    try:
        async with asyncio.timeout(timeout):
            return await _greeted(sock, backend)
    except TimeoutError:
        raise AttemptFailed(f"it accepts and does not greet within {timeout:g} s") from None
    except ssl.SSLError as error:
        raise AttemptFailed(f"TLS failed: {error.reason or error}") from None
    except (OSError, EOFError):
        raise AttemptFailed("it accepts and closes") from None
    finally:
        sock.close()


async def _greeted(sock: socket.socket, backend: Backend) -> bytes:
    if backend.proxy_protocol is not None:
        ends = sock.getsockname()[:2], sock.getpeername()[:2]
        await asyncio.get_running_loop().sock_sendall(sock, proxy_protocol.build(backend.proxy_protocol, *ends))
    tls = backend.tls
    reader, writer = await asyncio.open_connection(
        sock=sock,
        ssl=None if tls is None else tls_context(tls),
        server_hostname=None if tls is None else tls.server_name or backend.host,
    )
    try:
        writer.write(codec.PROTOCOL_HEADER)
        head = await reader.readexactly(_HEAD)
        if head[:3] != _METHOD or head[7:] != _START:
            raise AttemptFailed("it accepts and does not speak AMQP 0-9-1")
        size = int.from_bytes(head[3:7]) - len(_START)
        if size > BROKER_FRAME_MAX:
            raise AttemptFailed("it accepts and says too much")
        return _START + await reader.readexactly(size)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
