"""Connections to backends: name, socket, TLS and PROXY header; whatever fails becomes a `Refused` with a reason."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import itertools
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import lru_cache

from amqp_session_router import proxy_protocol
from amqp_session_router.failures import Failures
from amqp_session_router.handshake import Refused
from amqp_session_router.model import Backend, ClientTls, Identity, Timeouts
from amqp_session_router.tls import client_context
from amqp_session_router.wires import SocketWire, StreamWire, Wire, _resolve

_TCP_USER_TIMEOUT = 18
_IP_BIND_ADDRESS_NO_PORT = 24


def watch_peer(sock: socket.socket, dead_peer: float) -> None:
    """Have the kernel end the connection when the peer is silent for `dead_peer` seconds; send small frames at once.

    On a listening socket: for all that it accepts.
    """
    interval = max(1, round(dead_peer / 4))
    for level, option, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, interval),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, round(dead_peer * 1000)),
    ):
        sock.setsockopt(level, option, value)


@lru_cache(maxsize=256)
def _literal(host: str) -> int | None:
    try:
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _context(tls: ClientTls) -> ssl.SSLContext:
    return client_context(tls)


class Dialler:
    """Connects to backends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, failures: Failures, timeouts: Callable[[], Timeouts]) -> None:
        """`timeouts` gives those that hold now: they change with the configuration."""
        self._loop = loop
        self._failures = failures
        self._timeouts = timeouts
        self._turn = itertools.count()

    def forget_tls(self) -> None:
        """Read the files of TLS settings anew for the next connection."""
        _context.cache_clear()

    async def dial(self, backend: Backend, identity: Identity, ends: Callable[[], tuple[tuple[str, int], ...]]) -> Wire:
        """Return a connection to `backend` that is ready for the protocol header; raises Refused.

        `ends` gives the client's address and the one that it connected to, for the PROXY header.
        """
        timeouts = self._timeouts()
        try:
            async with asyncio.timeout(timeouts.connect):
                sock = await connect(self._loop, backend, timeouts.dead_peer, self._turn)
                wire = SocketWire(self._loop, sock, self._failures)
                try:
                    if backend.proxy_protocol is not None:
                        source, destination = ends()
                        wire.send(proxy_protocol.build(backend.proxy_protocol, source, destination, identity.sni_host))
                    if backend.tls is not None:
                        return await self._secure(sock, backend, backend.tls)
                except BaseException:
                    if backend.tls is None:
                        wire.abort()
                    else:
                        # asyncio has it, and lets go of it by itself.
                        sock.close()
                    raise
                return wire
        except TimeoutError:
            raise Refused(f"no connection within {timeouts.connect:g} s") from None

    async def _secure(self, sock: socket.socket, backend: Backend, tls: ClientTls) -> StreamWire:
        try:
            _, protocol = await self._loop.create_connection(
                lambda: StreamWire(self._loop),
                sock=sock,
                ssl=_context(tls),
                server_hostname=tls.server_name or backend.host,
            )
        except ssl.SSLCertVerificationError as error:
            raise Refused(f"its certificate is not accepted: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise Refused(f"TLS failed: {error.reason or error}") from None
        except OSError as error:
            raise Refused(f"TLS failed: {error.strerror or 'the connection ended'}") from None
        return protocol


async def connect(
    loop: asyncio.AbstractEventLoop, backend: Backend, dead_peer: float, turn: Iterator[int]
) -> socket.socket:
    """Return a TCP connection to `backend`, with no deadline of its own; raises Refused.

    `turn` counts the connections, so that the backend's source addresses are used in turn.
    """
    host = backend.address or backend.host
    family = _literal(host)
    targets: list[tuple[int, tuple[str, int]]]
    if family is not None:
        targets = [(family, (host, backend.port))]
    else:
        try:
            found = await loop.getaddrinfo(host, backend.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Refused(f"the name {host} has no address: {getattr(error, 'strerror', error)}") from None
        targets = [(int(one[0]), one[4]) for one in found]  # type: ignore[misc]
    reason = "the name has no address"
    for family, target in targets:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            watch_peer(sock, dead_peer)
            own = [source for source in backend.source_addresses if _literal(source) == family]
            if own:
                # The port is chosen at connect(), by the whole four-tuple: bind() alone would use it up for all.
                sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
                sock.bind((own[next(turn) % len(own)], 0))
            await _one(loop, sock, target)
        except OSError as error:
            sock.close()
            reason = f"{target[0]} port {target[1]}: {os.strerror(error.errno) if error.errno else error}"
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise Refused(reason)


async def _one(loop: asyncio.AbstractEventLoop, sock: socket.socket, target: tuple[str, int]) -> None:
    code = sock.connect_ex(target)
    if code == errno.EINPROGRESS:
        future = loop.create_future()
        loop.add_writer(sock.fileno(), _resolve, future)
        try:
            await future
        finally:
            loop.remove_writer(sock.fileno())
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
