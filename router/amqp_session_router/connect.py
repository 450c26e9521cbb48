"""Connections to backends: name, socket, TLS and PROXY header; whatever fails becomes a `Refused` with a reason."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import itertools
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache

from amqp_session_router import proxy_protocol
from amqp_session_router.failures import Failures
from amqp_session_router.handshake import Refused
from amqp_session_router.model import Backend, ClientTls, Identity, Timeouts
from amqp_session_router.sockets import control_congestion, watch_peer
from amqp_session_router.tls import client_context
from amqp_session_router.wires import SocketWire, StreamWire, Wire

_IP_BIND_ADDRESS_NO_PORT = 24


@lru_cache(maxsize=256)
def _literal(host: str) -> int | None:
    try:
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _context(tls: ClientTls) -> ssl.SSLContext:
    return client_context(tls)


class Connector:
    """Makes TCP connections to backends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeouts: Callable[[], Timeouts]) -> None:
        """`timeouts` gives those that hold now: they change with the configuration."""
        self._loop = loop
        self._timeouts = timeouts
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        """Of each backend: one turn for all would give a backend of several always the same of its addresses."""

    async def connect(self, backend: Backend) -> socket.socket:
        """Return a TCP connection to `backend`; raises Refused."""
        timeouts = self._timeouts()
        deadline = self._loop.time() + timeouts.connect
        host = backend.address or backend.host
        family = _literal(host)
        targets: list[tuple[int, tuple[str, int]]]
        if family is not None:
            targets = [(family, (host, backend.port))]
        else:
            try:
                async with asyncio.timeout_at(deadline):
                    found = await self._loop.getaddrinfo(host, backend.port, type=socket.SOCK_STREAM)
            except TimeoutError:
                raise _late(timeouts) from None
            except (OSError, UnicodeError) as error:
                raise Refused(f"the name {host} has no address: {getattr(error, 'strerror', error)}") from None
            targets = [(int(one[0]), one[4]) for one in found]  # type: ignore[misc]
        reason = "the name has no address"
        for family, target in targets:
            try:
                return await self._reach(backend, family, target, timeouts, deadline)
            except OSError as error:
                reason = f"{target[0]} port {target[1]}: {os.strerror(error.errno) if error.errno else error}"
        raise Refused(reason)

    async def _reach(
        self, backend: Backend, family: int, target: tuple[str, int], timeouts: Timeouts, deadline: float
    ) -> socket.socket:
        """Return a connection to one address; raises OSError, or Refused where there is no time left."""
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            watch_peer(sock, timeouts.dead_peer)
            control_congestion(sock, backend.congestion_control, target[0])
            own = [source for source in backend.source_addresses if _literal(source) == family]
            if own:
                # The port is chosen at connect(), by the whole four-tuple: bind() alone would use one up for all.
                sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
                sock.bind((own[next(self._turns[backend.name]) % len(own)], 0))
            code = sock.connect_ex(target)
            if code == errno.EINPROGRESS:
                # A broker on this host has answered by now: nothing to wait for.
                code = sock.connect_ex(target)
            if code == errno.EALREADY:
                if not await self._settled(sock, deadline):
                    raise _late(timeouts)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
        except BaseException:
            sock.close()
            raise
        return sock

    async def _settled(self, sock: socket.socket, deadline: float) -> bool:
        """Return once it is known what becomes of the connection; False if it is not in time."""
        outcome: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_at(deadline, _settle, outcome, False)
        self._loop.add_writer(sock.fileno(), _settle, outcome, True)
        try:
            return await outcome
        finally:
            timer.cancel()
            self._loop.remove_writer(sock.fileno())


def _settle(outcome: asyncio.Future[bool], result: bool) -> None:
    if not outcome.done():
        outcome.set_result(result)


def _late(timeouts: Timeouts) -> Refused:
    return Refused(f"no connection within {timeouts.connect:g} s")


class Dialler:
    """Makes connections to backends on which AMQP can begin."""

    def __init__(self, loop: asyncio.AbstractEventLoop, failures: Failures, timeouts: Callable[[], Timeouts]) -> None:
        self._loop = loop
        self._failures = failures
        self._timeouts = timeouts
        self._connector = Connector(loop, timeouts)

    def forget_tls(self) -> None:
        """Read the files of TLS settings anew for the next connection."""
        _context.cache_clear()

    async def dial(self, backend: Backend, identity: Identity, ends: Callable[[], tuple[tuple[str, int], ...]]) -> Wire:
        """Return a connection to `backend` that is ready for the protocol header; raises Refused.

        `ends` gives the client's address and the one that it connected to, for the PROXY header.
        """
        timeouts, begin = self._timeouts(), self._loop.time()
        sock = await self._connector.connect(backend)
        wire = SocketWire(self._loop, sock, self._failures)
        try:
            if backend.proxy_protocol is not None:
                source, destination = ends()
                wire.send(proxy_protocol.build(backend.proxy_protocol, source, destination, identity.sni_host))
            if backend.tls is None:
                return wire
            async with asyncio.timeout_at(begin + timeouts.connect):
                return await self._secure(sock, backend, backend.tls)
        except BaseException as error:
            if backend.tls is None:
                wire.abort()
            else:
                # asyncio has it, and lets go of it by itself.
                sock.close()
            if isinstance(error, TimeoutError):
                raise _late(timeouts) from None
            raise

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
