"""The listeners, and what their sessions share."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from amqp_session_router import succession
from amqp_session_router.connect import Dialler
from amqp_session_router.deadlines import Deadlines
from amqp_session_router.flow import Flow
from amqp_session_router.handover import Batches, send
from amqp_session_router.handshake import Learned
from amqp_session_router.journal import NO_CELLS, Journal
from amqp_session_router.model import (
    CONNECTION_FORCED,
    Authorizer,
    Backend,
    End,
    Limits,
    Listener,
    Phase,
    Refusal,
    Routing,
)
from amqp_session_router.pipes import Pipe
from amqp_session_router.plane import Plane
from amqp_session_router.session import LiveSession
from amqp_session_router.sockets import control_congestion, watch_peer
from amqp_session_router.tls import server_context
from amqp_session_router.wires import SocketWire

log = logging.getLogger(__name__)

_BACKLOG = 4096
_ACCEPTS = 64
"""Connections that one turn of the event loop takes in, so that open sessions do not wait for a crowd."""
_NO_DESCRIPTOR_PAUSE = 0.2
_AT_ONCE = 40
"""Sessions that stand still together in a planned restart."""


class _Unlimited:
    """The lease of a session that was there before: no limit ends it."""

    metered = False

    def open(self, vhost: str, user: str) -> Refusal | None:
        return None

    def authenticated(self) -> None: ...

    def take(self, nbytes: int) -> float:
        return 0.0

    def release(self) -> None: ...


@dataclass(slots=True)
class _Door:
    """One listener that is open."""

    settings: Listener
    sockets: list[socket.socket]
    context: ssl.SSLContext | None
    trusted: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    waiting: select.poll = field(init=False)
    """Says whether more connections wait: accept() in vain costs ten times as much."""

    def __post_init__(self) -> None:
        self.waiting = select.poll()
        for sock in self.sockets:
            self.waiting.register(sock, select.POLLIN)


class Listeners:
    """See `model.Server`. Gives new connections to sessions, and sessions what they need."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        routing: Routing,
        limits: Limits,
        authorizer: Authorizer,
        client_name: Callable[[str], Awaitable[str]] | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.loop = loop
        self.routing = routing
        self.limits = limits
        self.authorizer = authorizer
        self.learned = Learned()
        self.deadlines = Deadlines(loop)
        self.journal = journal
        self.plane = Plane(loop, journal)
        self.heir: Batches | None = None
        """The successor that sessions go to once they are open."""
        self.dialler = Dialler(loop, self.plane.failures, lambda: self.routing.timeouts)
        self.host_name = socket.gethostname()
        self.sessions: dict[str, LiveSession] = {}
        self.leaving = asyncio.Event()
        """Set once the last session is gone after `exit`."""
        self._client_name = client_name
        self._doors: dict[str, _Door] = {}
        self._inherited: dict[str, tuple[str, int, list[socket.socket]]] = {}
        self._exiting = False
        self._resume: asyncio.TimerHandle | None = None
        self._relieved: list[LiveSession] = []

    # --- model.Server -----------------------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> None:
        """Listen, or apply new settings to the listener of this name; raises OSError if the address is taken."""
        context = None
        if listener.tls is not None:
            context = server_context(listener.tls)
            context.sni_callback = _remember_name
        old = self._doors.get(listener.name)
        inherited = self._inherited.pop(listener.name, None)
        if inherited is not None and old is None:
            old = _Door(replace(listener, host=inherited[0], port=inherited[1]), inherited[2], None, ())
        if old is not None and (old.settings.host, old.settings.port) == (listener.host, listener.port):
            sockets = old.sockets
        else:
            sockets = self._bind(listener)
            if old is not None:
                self._shut(old)
        self.dialler.forget_tls()
        trusted = tuple(ipaddress.ip_network(network) for network in listener.trusted)
        door = _Door(listener, sockets, context, trusted)
        self._doors[listener.name] = door
        self._read(door)
        self._note_listeners()

    def _note_listeners(self) -> None:
        if self.journal is not None:
            self.journal.listeners(
                [
                    [name, door.settings.host, door.settings.port, [sock.fileno() for sock in door.sockets]]
                    for name, door in self._doors.items()
                ]
            )

    def _bind(self, listener: Listener) -> list[socket.socket]:
        """Return one listening socket for each address of the listener's host."""
        found = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        sockets: list[socket.socket] = []
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
                sockets.append(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, len(found) > 1)
                watch_peer(sock, self.routing.timeouts.dead_peer)
                control_congestion(sock, listener.congestion_control, str(address[0]))
                sock.bind(address)
                sock.listen(_BACKLOG)
        except OSError:
            for sock in sockets:
                sock.close()
            raise
        return sockets

    def _read(self, door: _Door) -> None:
        for sock in door.sockets:
            self.loop.add_reader(sock.fileno(), self._accept, sock, door)

    def _shut(self, door: _Door) -> None:
        for sock in door.sockets:
            self.loop.remove_reader(sock.fileno())
            sock.close()

    async def stop(self, name: str) -> None:
        """Listen no more; its sessions stay. Raises KeyError."""
        self._shut(self._doors.pop(name))
        self._note_listeners()

    def listening(self) -> Mapping[str, Listener]:
        """Return the listeners by name, with the port that is really bound."""
        return {
            name: replace(door.settings, port=door.sockets[0].getsockname()[1]) for name, door in self._doors.items()
        }

    def exit(self, drain: float) -> None:
        """Begin to leave: no new sessions, Close (320) to all, gone after at most `drain` seconds."""
        if self._exiting:
            return
        self._exiting = True
        for door in self._doors.values():
            self._shut(door)
        self._doors.clear()
        for session in [*self.sessions.values()]:
            session.disconnect(CONNECTION_FORCED, "the router is leaving; connect again")
        self.loop.call_later(drain, self._cut_all)
        self._check_left()

    def _cut_all(self) -> None:
        for session in [*self.sessions.values()]:
            session.force()
        self.leaving.set()

    def _check_left(self) -> None:
        if self._exiting and not self.sessions:
            self.leaving.set()

    def close(self) -> None:
        """Shut everything at once."""
        for door in self._doors.values():
            self._shut(door)
        self._doors.clear()
        for session in [*self.sessions.values()]:
            session.force()
        self.plane.close()

    # --- new connections --------------------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket, door: _Door) -> None:
        for _ in range(_ACCEPTS):
            try:
                sock, peer = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._no_descriptor(error)
                return
            sock.setblocking(False)
            self._take_in(sock, peer, door)
            if not door.waiting.poll(0):
                return

    def _take_in(self, sock: socket.socket, peer: tuple[str, int], door: _Door) -> None:
        address = peer[0].removeprefix("::ffff:")
        lease = self.limits.accept(address)
        if isinstance(lease, Refusal):
            # No handshake has begun that could carry a Close.
            sock.close()
            return
        wire, client = SocketWire(self.loop, sock, self.plane.failures), f"{address}:{peer[1]}"
        session = LiveSession(self, door.settings.name, lease, wire, client)
        self.sessions[session.id] = session
        self.routing.registered(session)
        session.begin(door.settings, (address, peer[1]), door.context)

    def _no_descriptor(self, error: OSError) -> None:
        """Wait a moment: the connection that could not be taken stays in the queue and would wake us at once."""
        log.error("cannot accept: %s", error.strerror)
        if self._resume is not None:
            return
        for door in self._doors.values():
            for sock in door.sockets:
                self.loop.remove_reader(sock.fileno())
        self._resume = self.loop.call_later(_NO_DESCRIPTOR_PAUSE, self._accept_again)

    def _accept_again(self) -> None:
        self._resume = None
        for door in self._doors.values():
            self._read(door)

    # --- what sessions need -----------------------------------------------------------------------------------------

    def trusts(self, listener: str, address: str) -> bool:
        """May a PROXY header from `address` say who the client is?"""
        door = self._doors.get(listener)
        if door is None or not door.trusted:
            return True
        with contextlib.suppress(ValueError):
            return any(ipaddress.ip_address(address) in network for network in door.trusted)
        return False

    async def client_name(self, address: str) -> str:
        """Return what the broker is told of the client at `address` (IP and port)."""
        if self._client_name is None:
            return address
        host, _, port = address.rpartition(":")
        return f"{await self._client_name(host)}:{port}"

    def cell_of(self, session: LiveSession) -> int:
        """Enter the session in the journal; return the first of the cells that its flows write to."""
        journal, client, broker = self.journal, session.client_wire, session.broker_wire
        if journal is None or not isinstance(client, SocketWire) or not isinstance(broker, SocketWire):
            return NO_CELLS
        try:
            from_client, from_broker = client.counts(), broker.counts()
        except OSError:
            # A kernel that does not count: nobody could say what was in flight.
            return NO_CELLS
        ahead = from_client.read - from_broker.written, from_broker.read - from_client.written
        session.slot = journal.opened(succession.facts(session), client.fd, broker.fd, ahead)
        return NO_CELLS if session.slot is None else journal.first_cell(session.slot)

    def strike(self, session: LiveSession) -> None:
        """A session's descriptors are about to be closed."""
        if session.slot is not None and self.journal is not None:
            self.journal.closed(session.slot)
            session.slot = None

    def opened(self, session: LiveSession) -> None:
        """A session's Open-Ok is on its way."""
        self.routing.opened(session)
        if self.heir is not None:
            self.loop.call_soon(self._hand_over_late, session)

    # --- from one process to the next -------------------------------------------------------------------------------

    def inherit_listener(self, name: str, host: str, port: int, sockets: list[socket.socket]) -> None:
        """Keep sockets that listen already for the listener of this name and address."""
        self._inherited[name] = (host, port, sockets)

    def drop_inherited(self) -> None:
        """Close the sockets of listeners that the configuration does not have any more."""
        for _, _, sockets in self._inherited.values():
            for sock in sockets:
                sock.close()
        self._inherited.clear()

    def adopt(
        self,
        facts: dict[str, Any],
        client: socket.socket,
        broker: socket.socket,
        backend: Backend,
        pipes: tuple[Pipe | None, Pipe | None],
    ) -> None:
        """Go on with a session that another process had."""
        for sock in (client, broker):
            sock.setblocking(False)
        found = self.limits.accept(facts["identity"]["source_ip"])
        lease = _Unlimited() if isinstance(found, Refusal) else found
        session = succession.adopted(self, facts, client, broker, backend, lease)
        self.sessions[session.id] = session
        self.routing.registered(session)
        for flow, state, pipe in zip(session.flows, facts["flows"], pipes, strict=True):
            assert isinstance(flow, Flow)
            flow.adopt(state, pipe)
        self.routing.opened(session)
        session.go_on(facts["paused"])

    async def hand_over(self, line: socket.socket, taken: Callable[[], Awaitable[None]]) -> int:
        """Give listeners and open sessions to the successor at the other end of `line`; the rest as they open.

        A few sessions at a time, the next when `taken` returns: the others are served here meanwhile. Returns how many.
        """
        for name, door in self._doors.items():
            told = {"listener": [name, door.settings.host, door.settings.port]}
            send(line, told, [sock.fileno() for sock in door.sockets])
            self._shut(door)
        self._doors.clear()
        self._exiting = True
        self.heir = Batches(line)
        given = 0
        for session in [*self.sessions.values()]:
            if session.phase in (Phase.OPEN, Phase.PAUSED) and session.id in self.sessions:
                self._hand_over(session)
            if len(self._relieved) == _AT_ONCE:
                given += self._give()
                await taken()
        given += self._give()
        self._check_left()
        return given

    def _give(self) -> int:
        assert self.heir is not None
        self.heir.flush()
        given = len(self._relieved)
        self.let_go()
        return given

    def _hand_over(self, session: LiveSession) -> None:
        assert self.heir is not None
        if session.kernel:
            self.heir.add(*succession.surrender(session))
            self._relieved.append(session)
        else:
            session.disconnect(CONNECTION_FORCED, "the router restarts; connect again")

    def let_go(self) -> None:
        """Close what was handed over, once it was sent."""
        for session in self._relieved:
            session.relieved()
        self._relieved.clear()

    def _hand_over_late(self, session: LiveSession) -> None:
        if self.heir is not None and session.phase is Phase.OPEN:
            self._hand_over(session)
            self._give()

    def closed(self, session: LiveSession, how: End, text: str) -> None:
        """A session is over."""
        self.sessions.pop(session.id, None)
        self.routing.closed(session, how, text)
        self._check_left()


def _remember_name(tls: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
    tls.asked_for = name or ""  # type: ignore[attr-defined]
