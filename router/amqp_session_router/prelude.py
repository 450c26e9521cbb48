"""What may come before AMQP on a client's connection: a PROXY header, a TLS handshake."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import cast

from amqp_session_router import proxy_protocol
from amqp_session_router.handshake import Over
from amqp_session_router.model import End
from amqp_session_router.wires import SocketWire, StreamWire

_PROXY_MAX = 4112 + 107


async def proxy_header(wire: SocketWire, trusted: Callable[[], bool]) -> proxy_protocol.Header:
    """Take the PROXY header off the socket, and not one byte more: what follows may be TLS. Raises Over."""
    seen = -1
    while True:
        await wire.readable()
        data = wire.take(_PROXY_MAX, socket.MSG_PEEK)
        if not data:
            raise Over(End.CLIENT_CLOSED, "the connection ended before its PROXY header")
        try:
            found = proxy_protocol.parse(data)
        except proxy_protocol.ProxyError as error:
            raise Over(End.PROTOCOL_ERROR, str(error)) from None
        if found is not None:
            wire.take(found[1])
            if trusted():
                return found[0]
            raise Over(End.PROTOCOL_ERROR, "a PROXY header came from an address that is not trusted")
        if len(data) == seen:
            # Peeked bytes keep the socket readable: look again only when there may be more.
            await asyncio.sleep(0.01)
        seen = len(data)


async def accept_tls(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, stream: StreamWire, context: ssl.SSLContext
) -> tuple[str, str]:
    """Have `stream` read and write the TLS of `sock`; return the host name that the client asked for and its own.

    The latter is the common name of its certificate. Both are empty where there is none. Raises Over.
    """
    try:
        # What uvloop returns as the protocol is its own, not the one that was made.
        await loop.connect_accepted_socket(lambda: stream, sock, ssl=context)
    except (OSError, ssl.SSLError) as error:
        raise Over(End.PROTOCOL_ERROR, f"TLS failed: {getattr(error, 'reason', None) or error}") from None
    tls = stream.tls()
    return str(getattr(tls, "asked_for", "") or ""), _common_name(tls)


def _common_name(tls: ssl.SSLObject | None) -> str:
    """Return the common name of a verified client certificate, empty without one."""
    certificate = tls.getpeercert() if tls is not None else None
    if not certificate:
        return ""
    subject = cast(tuple[tuple[tuple[str, str], ...], ...], certificate.get("subject", ()))
    return next((value for names in subject for key, value in names if key == "commonName"), "")
