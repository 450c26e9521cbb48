"""What may precede AMQP on a client's connection: a PROXY header, a TLS handshake."""

from __future__ import annotations

import socket
import ssl
from typing import NamedTuple, cast

from amqp_session_router.amqp.negotiation import HandshakeFailed
from amqp_session_router.base.model import End, Listener
from amqp_session_router.base.networks import networks
from amqp_session_router.net import proxy_protocol
from amqp_session_router.net.tls_transport import TlsTransport
from amqp_session_router.net.transport import SocketTransport
from amqp_session_router.session.interfaces import SessionStages

_PROXY_MAX = 4112 + 107


class Origin(NamedTuple):
    """Where a client comes from, as far as is known before it speaks AMQP."""

    address: tuple[str, int]
    """Its IP and port, or those that a trusted PROXY header names."""
    sni: str = ""
    """The host name that it asked for in TLS, or that the PROXY header names."""
    certificate_name: str = ""
    """The common name of its verified certificate."""


async def read_preface(
    session: SessionStages, listener: Listener, address: tuple[str, int], context: ssl.SSLContext | None
) -> Origin:
    """Read the PROXY header, and do the TLS handshake, where the listener has them; `address` is the connection's.

    The session's transport is the TLS stream then. Raises HandshakeFailed.
    """
    raw = session.client_transport
    assert isinstance(raw, SocketTransport) and raw.kernel is not None
    sni = certificate_name = ""
    if listener.proxy_protocol:
        if not is_trusted(listener.trusted, address[0]):
            raise HandshakeFailed(End.PROTOCOL_ERROR, "a PROXY header came from an address that is not trusted")
        header = await proxy_header(raw)
        sni = header.authority
        if header.source is not None:
            address = header.source
            session.client = f"{address[0]}:{address[1]}"
        if session.host.limits.denies(listener, address[0]):
            raise HandshakeFailed(End.DENIED, "the listener's networks keep it out")
        refusal = session.lease.identify(address[0])
        if refusal is not None:
            raise HandshakeFailed(End.LIMITED, refusal.text, refusal.code)
    if context is not None:
        session.client_transport = stream = TlsTransport(session.host.loop, raw, context)
        name, certificate_name = await accept_tls(stream)
        sni = name or sni
    return Origin(address, sni, certificate_name)


def is_trusted(trusted: tuple[str, ...], address: str) -> bool:
    """Return whether a PROXY header from the IP `address` is believed, by the networks `trusted` (CIDR)."""
    return address in networks(trusted)


async def proxy_header(transport: SocketTransport) -> proxy_protocol.Header:
    """Read the PROXY header and not one byte more (TLS may follow). Raises HandshakeFailed."""
    seen = 0
    try:
        while True:
            # Peeked bytes stay in the receive buffer: wait until there are more of them.
            transport.wait_for_bytes(seen + 1)
            await transport.readable()
            data = transport.take(_PROXY_MAX, socket.MSG_PEEK)
            if len(data) <= seen:
                raise HandshakeFailed(End.CLIENT_CLOSED, "the connection ended before the end of its PROXY header")
            try:
                found = proxy_protocol.parse(data)
            except proxy_protocol.ProxyError as error:
                raise HandshakeFailed(End.PROTOCOL_ERROR, str(error)) from None
            if found is not None:
                transport.take(found[1])
                return found[0]
            seen = len(data)
    finally:
        transport.wait_for_bytes(1)


async def accept_tls(stream: TlsTransport) -> tuple[str, str]:
    """Do the TLS handshake; return the host name that the client asked for and its own.

    The latter is the common name of its certificate. Both are empty where there is none. Raises HandshakeFailed.
    """
    try:
        await stream.handshake()
    except OSError as error:
        # Why a certificate is not accepted, else the name of OpenSSL's error.
        why = getattr(error, "verify_message", None) or getattr(error, "reason", None) or error
        raise HandshakeFailed(End.PROTOCOL_ERROR, f"TLS failed: {why}") from None
    return str(getattr(stream.tls, "asked_for", "") or ""), _common_name(stream.tls)


def _common_name(tls: ssl.SSLObject) -> str:
    """Return the common name of a verified client certificate, empty without one."""
    certificate = tls.getpeercert()
    if not certificate:
        return ""
    subject = cast(tuple[tuple[tuple[str, str], ...], ...], certificate.get("subject", ()))
    return next((value for names in subject for key, value in names if key == "commonName"), "")
