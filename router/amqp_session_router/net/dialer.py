"""Connections to backends: name, socket, TLS and PROXY header; every failure is an AttemptFailed with a reason."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import itertools
import logging
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache

from amqp_session_router.amqp.negotiation import AttemptFailed, Blameless, NoResources
from amqp_session_router.base.model import Backend, ClientTls, Identity, Timeouts
from amqp_session_router.net import proxy_protocol
from amqp_session_router.net.names import Names
from amqp_session_router.net.poller import Poller
from amqp_session_router.net.socket_options import set_congestion_control, set_dead_peer_timeout
from amqp_session_router.net.tls import client_context
from amqp_session_router.net.tls_transport import TlsTransport
from amqp_session_router.net.transport import SocketTransport, Transport

log = logging.getLogger(__name__)

_IP_BIND_ADDRESS_NO_PORT = 24
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class _PortsUsedUpError(OSError):
    """Every own port is in use towards this address."""


@lru_cache(maxsize=256)
def _literal(host: str) -> int | None:
    try:
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        return None


@lru_cache(maxsize=256)
def tls_context(tls: ClientTls) -> ssl.SSLContext:
    """Return the context for `tls`, kept until `Dialer.forget_tls`."""
    return client_context(tls)


class Connector:
    """Makes TCP connections to backends."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timeouts: Callable[[], Timeouts], names: Names | None = None
    ) -> None:
        """`timeouts` gives those that hold now: they change with the configuration. `names`: what others know of names,
        too."""
        self._loop = loop
        self._timeouts = timeouts
        self._names = names or Names()
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        """Per backend: one shared counter could give a backend the same source address every time."""

    async def connect(self, backend: Backend) -> socket.SocketType:
        """Return a TCP connection to `backend`; raises AttemptFailed."""
        timeouts = self._timeouts()
        deadline = self._loop.time() + timeouts.connect
        host = backend.address or backend.host
        family = _literal(host)
        targets: list[tuple[int, tuple[str, int]]]
        if family is not None:
            targets = [(family, (host, backend.port))]
        else:
            try:
                found = await self._loop.create_task(self._names.addresses(self._loop, host, backend.port, deadline))
            except TimeoutError:
                raise _late(timeouts) from None
            except (OSError, UnicodeError) as error:
                raise AttemptFailed(f"the name {host} has no address: {getattr(error, 'strerror', error)}") from None
            targets = [(int(one[0]), one[4]) for one in found]
        failed = AttemptFailed("the name has no address")
        for number, (family, target) in enumerate(targets):
            # Each address gets its share of the time that is left: a silent one leaves some to the next.
            now = self._loop.time()
            share = now + (deadline - now) / (len(targets) - number)
            try:
                return await self._reach(backend, family, target, timeouts, share)
            except TimeoutError:
                failed = AttemptFailed(f"{target[0]} port {target[1]}: {_late(timeouts)}")
            except _PortsUsedUpError:
                failed = Blameless(f"this host has no port left for a connection to {target[0]} port {target[1]}")
            except OSError as error:
                if error.errno in _NO_RESOURCES:
                    raise NoResources(f"this host cannot connect: {os.strerror(error.errno)}") from None
                why = os.strerror(error.errno) if error.errno else str(error)
                failed = AttemptFailed(f"{target[0]} port {target[1]}: {why}")
        raise failed

    async def _reach(
        self, backend: Backend, family: int, target: tuple[str, int], timeouts: Timeouts, deadline: float
    ) -> socket.SocketType:
        """Return a connection to one address; raises OSError, of which TimeoutError at the deadline."""
        # As in `sockets`: not the class in Python.
        sock = socket.SocketType(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            set_dead_peer_timeout(sock, timeouts.dead_peer)
            set_congestion_control(sock, backend.congestion_control, target[0])
            own = [source for source in backend.source_addresses if _literal(source) == family]
            if own:
                # The port is chosen at connect() by the four-tuple: bind() alone would reserve it for all destinations.
                sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
                sock.bind((own[next(self._turns[backend.name]) % len(own)], 0))
            code = sock.connect_ex(target)
            if code == errno.EINPROGRESS:
                # A broker on this host has answered by now.
                code = sock.connect_ex(target)
            if code == errno.EALREADY:
                if not await self._settled(sock, deadline):
                    raise TimeoutError
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == errno.EADDRNOTAVAIL:
                raise _PortsUsedUpError(code, os.strerror(code))
            if code:
                raise OSError(code, os.strerror(code))
        except BaseException:
            sock.close()
            raise
        return sock

    async def _settled(self, sock: socket.SocketType, deadline: float) -> bool:
        """Wait until the connection is established or has failed; return False at the deadline."""
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


async def _within(seconds: float, stream: TlsTransport) -> None:
    async with asyncio.timeout(seconds):
        await stream.handshake()


def _late(timeouts: Timeouts) -> AttemptFailed:
    return AttemptFailed(f"no connection within {timeouts.connect:g} s")


class Dialer:
    """Makes connections to backends that are ready for AMQP."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        poller: Poller,
        timeouts: Callable[[], Timeouts],
        names: Names | None = None,
    ) -> None:
        self._loop = loop
        self._poller = poller
        self._timeouts = timeouts
        self._connector = Connector(loop, timeouts, names)

    def forget_tls(self) -> None:
        """Read the files of TLS settings anew for the next connection."""
        tls_context.cache_clear()

    async def dial(
        self, backend: Backend, identity: Identity, ends: Callable[[], tuple[tuple[str, int], ...]]
    ) -> Transport:
        """Return a connection to `backend` that is ready for the protocol header; raises AttemptFailed.

        `ends` gives the client's address and the one that it connected to, for the PROXY header.
        """
        timeouts, begin = self._timeouts(), self._loop.time()
        sock = await self._connector.connect(backend)
        transport = SocketTransport(self._loop, sock, self._poller)
        try:
            if backend.proxy_protocol is not None:
                source, destination = ends()
                transport.send(proxy_protocol.build(backend.proxy_protocol, source, destination, identity.sni_host))
            if backend.tls is None:
                return transport
            context = tls_context(backend.tls)
            remaining = begin + timeouts.connect - self._loop.time()
            if remaining <= 0:
                raise _late(timeouts)
            name = backend.tls.server_name or backend.host
            try:
                stream = TlsTransport(self._loop, transport, context, name)
            except ValueError as error:
                raise AttemptFailed(f"no certificate can have the name {name}: {error}") from None
        except BaseException:
            transport.abort()
            raise
        try:
            await self._loop.create_task(_within(remaining, stream))
        except TimeoutError:
            raise _late(timeouts) from None
        except ssl.SSLCertVerificationError as error:
            raise AttemptFailed(f"its certificate is not accepted: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise AttemptFailed(f"TLS failed: {error.reason or error}") from None
        except OSError as error:
            raise AttemptFailed(f"TLS failed: {error.strerror or 'the connection ended'}") from None
        return stream
