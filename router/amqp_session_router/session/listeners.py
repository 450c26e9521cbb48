"""The listeners, and what their sessions share."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from amqp_session_router.amqp import codec, tables
from amqp_session_router.amqp.frames import ProtocolError
from amqp_session_router.amqp.negotiation import Greeting, LearnedOffers
from amqp_session_router.base.model import (
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
from amqp_session_router.base.native import accept
from amqp_session_router.net.deadlines import Deadlines
from amqp_session_router.net.dialer import Dialer
from amqp_session_router.net.names import Names
from amqp_session_router.net.socket_options import set_congestion_control, set_dead_peer_timeout
from amqp_session_router.net.tls import server_context
from amqp_session_router.net.transport import SocketTransport
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.flow_transfer import flow_state, import_flow
from amqp_session_router.relay.journal import NO_CELLS, Journal
from amqp_session_router.relay.pipes import Pipe, pipe_of
from amqp_session_router.relay.splice_flow import SpliceFlow
from amqp_session_router.session import transfer
from amqp_session_router.session.dead_peers import DeadPeers
from amqp_session_router.session.handover import Send
from amqp_session_router.session.interfaces import SessionStages
from amqp_session_router.session.session import LiveSession

log = logging.getLogger(__name__)

Exported = tuple[LiveSession, dict[str, Any], list[int]]
"""A session that stands still, its state, and its descriptors."""

Saved = tuple[str, str, int, list[int]]
"""A listener's name, host, port and descriptors."""

_BACKLOG = 4096
_ACCEPTS = 64
"""The most connections that are accepted in one poll cycle, so that open sessions do not wait for all new ones."""
_NO_DESCRIPTOR_PAUSE = 0.2
_AT_ONCE = 40
"""Sessions that stand still together in a planned restart; each has at most six descriptors."""
_NO_CYCLE = -1
"""Sentinel: matches no poll cycle."""


@dataclass(slots=True)
class _OpenListener:
    """One listener that is open."""

    settings: Listener
    sockets: list[socket.socket]
    context: ssl.SSLContext | None
    accepts: int = 1
    """How many connections it accepts at once. Start at one: a fruitless accept() costs half a send()."""
    cycle: int = _NO_CYCLE
    """The poll cycle in which it last accepted as many as it may, so that more may wait."""

    def drain_on_error(self) -> None:
        """Nothing is lost: a listening socket fails only where somebody has shut it down."""


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
        shares: bool = False,
        keep: Callable[[Sequence[Saved]], None] | None = None,
        names: Names | None = None,
    ) -> None:
        """`shares`: other workers listen on the same addresses; the kernel gives each connection to one of them.
        `keep` is called with all listeners whenever they change, for the service manager, which outlives the router."""
        self._shares = shares
        self._keep = keep
        self.loop = loop
        self.routing = routing
        self.limits = limits
        self.authorizer = authorizer
        self.learned = LearnedOffers()
        routing.on_greeting = self._greeted
        self.deadlines = Deadlines(loop)
        self.journal = journal
        self.relay = RelayContext(loop, journal)
        self._successor: Send | None = None
        """Sends to the successor that sessions go to once they are open."""
        self._taken: Callable[[], Awaitable[None]] | None = None
        self._giving = asyncio.Lock()
        self._batch: list[Exported] = []
        self._unacknowledged: list[Exported] = []
        self._given_listeners: dict[str, _OpenListener] = {}
        self._late: set[asyncio.Task[None]] = set()
        self.dialer = Dialer(loop, self.relay.poller, lambda: self.routing.timeouts, names)
        self.host_name = socket.gethostname()
        self.sessions: dict[str, LiveSession] = {}
        self._dead_peers = DeadPeers(loop, lambda: self.sessions.values(), lambda: self.routing.timeouts.dead_peer)
        self.leaving = asyncio.Event()
        """Set once the last session is gone after `exit`."""
        self._client_name = client_name
        self._open: dict[str, _OpenListener] = {}
        self._inherited: dict[str, tuple[str, int, list[socket.socket]]] = {}
        self._exiting = False
        self._resume: asyncio.TimerHandle | None = None

    def _greeted(self, backend: str, start: bytes) -> None:
        """See `model.Routing.on_greeting`."""
        with contextlib.suppress(ProtocolError):
            _, properties, mechanisms = codec.read_start(start)
            tables.fields(properties)
            self.learned.greeted(backend, Greeting(properties, mechanisms))

    # --- model.Server -----------------------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> None:
        """Listen, or apply new settings to the listener of this name; raises OSError if the address is taken."""
        context = None
        if listener.tls is not None:
            context = server_context(listener.tls)
            context.sni_callback = _remember_name
        old = self._open.get(listener.name)
        inherited = self._inherited.pop(listener.name, None)
        if inherited is not None and old is None:
            old = _OpenListener(replace(listener, host=inherited[0], port=inherited[1]), inherited[2], None)
        if old is not None and (old.settings.host, old.settings.port) == (listener.host, listener.port):
            sockets = old.sockets
            for sock in sockets:
                set_congestion_control(sock, listener.congestion_control, listener.host)
        else:
            sockets = self._taken_from_another(listener) or self._bind_instead(listener, old)
            if old is not None:
                self._shut(old)
        opened = _OpenListener(listener, sockets, context)
        self._open[listener.name] = opened
        self._read(opened)
        self._note_listeners()

    def _note_listeners(self) -> None:
        opened = {name: (one.settings.host, one.settings.port, one.sockets) for name, one in self._open.items()}
        listeners = [
            (name, host, port, [sock.fileno() for sock in sockets])
            for name, (host, port, sockets) in (self._inherited | opened).items()
        ]
        if self.journal is not None:
            self.journal.listeners(listeners)
        if self._keep is not None:
            self._keep(listeners)

    def _taken_from_another(self, listener: Listener) -> list[socket.socket]:
        """Return copies of the sockets of another listener with this address: a listener may change its name."""
        address = listener.host, listener.port
        for name, one in self._open.items():
            if name != listener.name and (one.settings.host, one.settings.port) == address and listener.port:
                return [sock.dup() for sock in one.sockets]
        return []

    def _bind_instead(self, listener: Listener, old: _OpenListener | None) -> list[socket.socket]:
        """Bind; where the listener's own old address is in the way, give that up first, and take it back on failure."""
        try:
            return self._bind(listener)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or old is None or old.settings.port != listener.port:
                raise
        self._shut(old)
        try:
            return self._bind(listener)
        except OSError:
            # For the time of a failed bind() nobody listened there.
            del self._open[listener.name]
            again = _OpenListener(old.settings, self._bind(old.settings), old.context)
            self._open[listener.name] = again
            self._read(again)
            self._note_listeners()
            raise

    def check_free(self, listener: Listener) -> None:
        """See `check_free` below."""
        check_free(listener)

    def _bind(self, listener: Listener) -> list[socket.socket]:
        """Return one listening socket for each address of the listener's host."""
        sockets = _bound(listener, self._shares)
        try:
            for sock in sockets:
                set_dead_peer_timeout(sock, self.routing.timeouts.dead_peer)
                set_congestion_control(sock, listener.congestion_control, str(sock.getsockname()[0]))
                sock.listen(_BACKLOG)
        except OSError:
            _close_all(sockets)
            raise
        return sockets

    def _read(self, opened: _OpenListener) -> None:
        for sock in opened.sockets:
            self.relay.poller.watch(sock.fileno(), opened)
            self.relay.poller.read(sock.fileno(), partial(self._accept, sock.fileno(), opened))

    def _unread(self, opened: _OpenListener) -> None:
        for sock in opened.sockets:
            # Other processes may have the same socket.
            self.relay.poller.leave(sock.fileno())

    def _shut(self, opened: _OpenListener) -> None:
        self._unread(opened)
        for sock in opened.sockets:
            sock.close()
        opened.sockets = []

    async def stop(self, name: str) -> None:
        """Listen no more; its sessions stay. Raises KeyError."""
        self._shut(self._open.pop(name))
        self._note_listeners()

    def listening(self) -> Mapping[str, Listener]:
        """Return the listeners by name, with the port that is really bound."""
        return {
            name: replace(opened.settings, port=opened.sockets[0].getsockname()[1])
            for name, opened in self._open.items()
        }

    def renew(self) -> None:
        """Go by new time-outs, and read the files of TLS settings towards backends anew, for the next connections."""
        self.dialer.forget_tls()
        for one in self._open.values():
            for sock in one.sockets:
                set_dead_peer_timeout(sock, self.routing.timeouts.dead_peer)

    def exit(self, drain: float) -> None:
        """Begin to leave: no new sessions, Close (320) to all, gone after at most `drain` seconds."""
        if self._exiting:
            return
        self._exiting = True
        for opened in self._open.values():
            self._shut(opened)
        self._open.clear()
        if self._keep is not None:
            self._keep(())
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
        for opened in self._open.values():
            self._shut(opened)
        self._open.clear()
        for session in [*self.sessions.values()]:
            session.force()
        self._dead_peers.close()
        self.relay.close()

    # --- new connections --------------------------------------------------------------------------------------------

    def _accept(self, listening: int, opened: _OpenListener) -> None:
        cycle = self.relay.poller.turn
        # Readable in two poll cycles in a row: more connections come than were accepted.
        opened.accepts = min(2 * opened.accepts, _ACCEPTS) if cycle == opened.cycle + 1 else 1
        opened.cycle = cycle
        for _ in range(opened.accepts):
            try:
                found = accept(listening)
            except OSError as error:
                self._no_descriptor(error)
                return
            if found is None:
                opened.cycle = _NO_CYCLE
                return
            self._take_in(*found, opened)

    def _take_in(self, sock: socket.SocketType, peer: tuple[str, int], opened: _OpenListener) -> None:
        address = peer[0].removeprefix("::ffff:")
        lease = self.limits.accept(None if opened.settings.proxy_protocol else address)
        if isinstance(lease, Refusal):
            # No handshake has begun that could carry a Close.
            sock.close()
            return
        transport, client = SocketTransport(self.loop, sock, self.relay.poller), f"{address}:{peer[1]}"
        session = LiveSession(self, opened.settings.name, lease, transport, client)
        self.sessions[session.id] = session
        self.routing.registered(session)
        session.begin(opened.settings, (address, peer[1]), opened.context)
        # Most clients' protocol header is there already: an event of the poller costs more than a fruitless read.
        transport.look()

    def _no_descriptor(self, error: OSError) -> None:
        """Wait a moment: the connection that could not be taken stays in the queue and would wake us at once."""
        log.error("cannot accept: %s", error.strerror)
        if self._resume is not None:
            return
        for opened in self._open.values():
            self._unread(opened)
        self._resume = self.loop.call_later(_NO_DESCRIPTOR_PAUSE, self._accept_again)

    def _accept_again(self) -> None:
        self._resume = None
        for opened in self._open.values():
            self._read(opened)

    # --- what sessions need -----------------------------------------------------------------------------------------

    async def client_name(self, address: str) -> str:
        """Return the name and port of the client at `address` (IP and port) for the broker."""
        if self._client_name is None:
            return address
        host, _, port = address.rpartition(":")
        return f"{await self._client_name(host)}:{port}"

    def cell_of(self, session: LiveSession) -> int:
        """Enter the session in the journal, unless it is there; return the first cell that its flows write to."""
        journal, client, broker = self.journal, session.client_transport, session.broker_transport
        if journal is None or not isinstance(client, SocketTransport) or not isinstance(broker, SocketTransport):
            return NO_CELLS
        if session.slot is not None:
            return journal.first_cell(session.slot)
        try:
            from_client, from_broker = client.counts(), broker.counts()
        except OSError:
            # A kernel that does not count bytes: after a kill, what was in flight would be unknown.
            return NO_CELLS
        up, down = session.inherited
        session.slot = journal.opened(
            transfer.facts(session),
            client.fd,
            broker.fd,
            (
                from_client.read - from_broker.written - up.in_flight,
                from_broker.read - from_client.written - down.in_flight,
            ),
            (up.rest, down.rest),
            (up.pipe, down.pipe),
        )
        if session.slot is None:
            log.warning("a session will not survive a kill of the router: no room", extra={"session": session.id})
            return NO_CELLS
        return journal.first_cell(session.slot)

    def paused(self, session: SessionStages, blocked_sent: bool) -> None:
        """See `interfaces.SessionHost`."""
        if session.slot is not None and self.journal is not None:
            blocked = bool(session.flows) and session.flows[1].blocked
            self.journal.paused(session.slot, session.phase is Phase.PAUSED, blocked_sent, blocked)

    def remove_from_journal(self, session: LiveSession) -> None:
        """A session's descriptors are about to be closed."""
        if session.slot is not None and self.journal is not None:
            self.journal.closed(session.slot)
            session.slot = None

    def opened(self, session: LiveSession) -> None:
        """A session's Open-Ok is on its way."""
        self.routing.opened(session)
        if self._successor is not None:
            task = self.loop.create_task(self._hand_over_late(session))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    # --- from one process to the next -------------------------------------------------------------------------------

    def inherit_listener(self, name: str, host: str, port: int, sockets: list[socket.socket]) -> None:
        """Keep sockets that listen already for the listener of this name and address."""
        for sock in self._inherited[name][2] if name in self._inherited else ():
            sock.close()
        self._inherited[name] = (host, port, sockets)
        self._note_listeners()

    def drop_inherited(self) -> None:
        """Close the sockets of listeners that the configuration does not have any more."""
        for _, _, sockets in self._inherited.values():
            for sock in sockets:
                sock.close()
        self._inherited.clear()
        self._note_listeners()

    def adopt(
        self,
        facts: dict[str, Any],
        client: socket.SocketType,
        broker: socket.SocketType,
        backend: Backend,
        pipes: tuple[Pipe | None, Pipe | None],
        slot: int | None = None,
    ) -> None:
        """Go on with a session that another process had; `slot`: where it stands in the journal already."""
        for sock in (client, broker):
            sock.setblocking(False)
        lease = self.limits.adopt(facts["identity"]["vhost"])
        session = transfer.import_session(self, facts, client, broker, backend, lease, pipes, slot)
        self.sessions[session.id] = session
        self.routing.registered(session)
        for flow, state, pipe in zip(session.flows, facts["flows"], pipes, strict=True):
            assert isinstance(flow, SpliceFlow)
            import_flow(flow, flow_state(state), pipe)
        self.routing.opened(session)
        session.resume(facts["paused"])

    async def hand_over(self, send: Send, taken: Callable[[], Awaitable[None]]) -> int:
        """Give listeners and open sessions to the successor by `send`; the rest as they open. Returns how many.

        A few sessions at a time, the next when `taken` returns: the others are served here meanwhile. Raises OSError,
        with the sessions that were not sent going on here.
        """
        self._exiting = True
        self._successor, self._taken = send, taken
        self._given_listeners, self._open = self._open, {}
        for opened in self._given_listeners.values():
            self._unread(opened)
        await self._give_listeners()
        given = 0
        for session in [*self.sessions.values()]:
            if session.phase is Phase.WAITING and session.identity and self.routing.is_paused(session.identity.vhost):
                # Only the successor will learn of the end of the pause.
                session.disconnect(CONNECTION_FORCED, "the router restarts; connect again")
            elif session.phase in (Phase.OPEN, Phase.PAUSED) and session.id in self.sessions:
                self._export(session)
            if len(self._batch) == _AT_ONCE:
                given += await self._give()
        given += await self._give()
        self._check_left()
        return given

    async def repeat_handover(self) -> None:
        """Send again what a successor that is dead by now may have got; raises OSError."""
        await self._give_listeners()
        if self._unacknowledged:
            await self._send_sessions(self._unacknowledged)

    def close_given_listeners(self) -> None:
        """Close the listeners that the successor has now."""
        for opened in self._given_listeners.values():
            for sock in opened.sockets:
                sock.close()
        self._given_listeners.clear()

    async def _give_listeners(self) -> None:
        assert self._successor is not None
        for name, opened in self._given_listeners.items():
            message = {"listener": [name, opened.settings.host, opened.settings.port]}
            await self._successor(message, [sock.fileno() for sock in opened.sockets])

    def _export(self, session: LiveSession) -> None:
        if session.kernel:
            self._batch.append((session, *transfer.export_session(session)))
        else:
            session.disconnect(CONNECTION_FORCED, "the router restarts; connect again")

    async def _give(self) -> int:
        """Give what was exported, and close it here once it was taken."""
        async with self._giving:
            batch, self._batch = self._batch, []
            if not batch:
                return 0
            try:
                await self._send_sessions(batch)
            except OSError:
                self._successor = None
                self._take_back(batch)
                raise
            self._unacknowledged = batch
            assert self._taken is not None
            await self._taken()
            self._unacknowledged = []
            for session, _, _ in batch:
                session.handed_over()
            return len(batch)

    async def _send_sessions(self, batch: list[Exported]) -> None:
        assert self._successor is not None
        facts = [state | {"descriptors": len(numbers)} for _, state, numbers in batch]
        await self._successor({"sessions": facts}, [number for _, _, numbers in batch for number in numbers])

    def _take_back(self, batch: list[Exported]) -> None:
        """Go on with sessions that nobody took."""
        for session, state, numbers in batch:
            client, broker, *ends = [os.dup(number) for number in numbers]
            pipes = [pipe_of(ends.pop(0), ends.pop(0)) if one["left"] else None for one in state["flows"]]
            backend = session.backend
            assert backend is not None
            session.handed_over()
            self.adopt(state, socket.socket(fileno=client), socket.socket(fileno=broker), backend, (pipes[0], pipes[1]))

    async def _hand_over_late(self, session: LiveSession) -> None:
        if self._successor is not None and session.phase is Phase.OPEN:
            self._export(session)
            try:
                await self._give()
            except OSError as error:
                log.error("a session stays with this process: %s", error, extra={"session": session.id})

    def closed(self, session: LiveSession, how: End, text: str) -> None:
        """A session is over."""
        self.sessions.pop(session.id, None)
        self.routing.closed(session, how, text)
        self._check_left()


def _remember_name(tls: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
    tls.asked_for = name or ""  # type: ignore[attr-defined]


def check_free(listener: Listener) -> None:
    """Raise OSError if anybody listens at the listener's address. The workers of one router share it, and the kernel
    would let those of another router of the same user have a part of it unseen."""
    _close_all(_bound(listener, shares=False))


def _bound(listener: Listener, shares: bool) -> list[socket.socket]:
    """Return one bound socket for each address of the listener's host; `shares`: other workers may bind there too."""
    found = socket.getaddrinfo(listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shares:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, len(found) > 1)
            sock.bind(address)
    except OSError:
        _close_all(sockets)
        raise
    return sockets


def _close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
