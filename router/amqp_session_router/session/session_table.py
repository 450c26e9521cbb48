"""The live sessions of one process, and what they share."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from amqp_session_router.amqp import codec, tables
from amqp_session_router.amqp.frames import ProtocolError
from amqp_session_router.amqp.negotiation import Greeting, LearnedOffers
from amqp_session_router.base.model import Authorizer, Backend, End, Limits, Refusal, Routing
from amqp_session_router.net.deadlines import Deadlines
from amqp_session_router.net.dialer import Dialer
from amqp_session_router.net.names import Names
from amqp_session_router.net.transport import SocketTransport
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.flow_transfer import flow_state, import_flow
from amqp_session_router.relay.journal import NO_CELLS, Journal
from amqp_session_router.relay.pipes import Pipe
from amqp_session_router.relay.splice_flow import SpliceFlow
from amqp_session_router.session import journal_entry, transfer
from amqp_session_router.session.acceptor import OpenListener
from amqp_session_router.session.dead_peers import DeadPeers
from amqp_session_router.session.interfaces import SessionStages
from amqp_session_router.session.leaving import Leaving
from amqp_session_router.session.session import LiveSession


class SessionTable:
    """See `session.Host`. Sessions come by a connection or from another process, and are here until they end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        routing: Routing,
        limits: Limits,
        authorizer: Authorizer,
        client_name: Callable[[str], Awaitable[str]] | None = None,
        journal: Journal | None = None,
        names: Names | None = None,
    ) -> None:
        """`client_name`: returns the name of a client's IP; None: it is not looked up."""
        self.loop = loop
        self.routing = routing
        self.limits = limits
        self.authorizer = authorizer
        self.learned = LearnedOffers()
        routing.on_greeting = self._greeted
        self.deadlines = Deadlines(loop)
        self.relay = RelayContext(loop, journal)
        self.dialer = Dialer(loop, self.relay.poller, lambda: self.routing.timeouts, names)
        self.host_name = socket.gethostname()
        self.journal = journal
        self.live: dict[str, LiveSession] = {}
        """By their id."""
        self.on_opened: Callable[[LiveSession], None] = lambda session: None
        """Called with each session that opens, but not with one that `adopt` takes."""
        self._client_name = client_name
        self._dead_peers = DeadPeers(loop, lambda: self.live.values(), lambda: self.routing.timeouts.dead_peer)
        self._leaving = Leaving(loop, lambda: self.live, self._cut_all)
        self.leaving = False
        """No more are to come: by a client's connection, that is."""
        self.gone = asyncio.Event()
        """Set once the process is leaving and its last session is gone."""

    def _greeted(self, backend: str, start: bytes) -> None:
        """See `model.Routing.on_greeting`."""
        with contextlib.suppress(ProtocolError):
            _, properties, mechanisms = codec.read_start(start)
            tables.fields(properties)
            self.learned.greeted(backend, Greeting(properties, mechanisms))

    # --- how sessions come ------------------------------------------------------------------------------------------

    def take_in(self, sock: socket.SocketType, peer: tuple[str, int], opened: OpenListener) -> None:
        """Begin a session with a client that has connected, unless a limit refuses it; see `acceptor.TakeIn`."""
        address = peer[0].removeprefix("::ffff:")
        behind_proxy = opened.settings.proxy_protocol
        if not behind_proxy and self.limits.denies(opened.settings, address):
            sock.close()
            return
        lease = self.limits.accept(None if behind_proxy else address)
        if isinstance(lease, Refusal):
            # No handshake has begun that could carry a Close.
            sock.close()
            return
        transport, client = SocketTransport(self.loop, sock, self.relay.poller), f"{address}:{peer[1]}"
        session = LiveSession(self, opened.settings.name, lease, transport, client)
        self.live[session.id] = session
        self.routing.registered(session)
        session.begin(opened.settings, (address, peer[1]), opened.context)
        # Most clients' protocol header is there already: an event of the poller costs more than a fruitless read.
        transport.look()

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
        lease = self.limits.adopt(facts["identity"]["vhost"], facts["identity"]["user"], backend.name)
        session = transfer.import_session(self, facts, client, broker, backend, lease, pipes, slot)
        self.live[session.id] = session
        self.routing.registered(session)
        for flow, state, pipe in zip(session.flows, facts["flows"], pipes, strict=True):
            assert isinstance(flow, SpliceFlow)
            import_flow(flow, flow_state(state), pipe)
        self.routing.opened(session)
        session.resume(facts["paused"])

    # --- what sessions need -----------------------------------------------------------------------------------------

    async def client_name(self, address: str) -> str:
        """Return the name and port of the client at `address` (IP and port) for the broker."""
        if self._client_name is None:
            return address
        host, _, port = address.rpartition(":")
        return f"{await self._client_name(host)}:{port}"

    def cell_of(self, session: LiveSession) -> int:
        """Enter the session in the journal, unless it is there; return the first cell that its flows write to."""
        return NO_CELLS if self.journal is None else journal_entry.enter(self.journal, session)

    def paused(self, session: SessionStages, blocked_sent: bool) -> None:
        """See `interfaces.SessionHost`."""
        if self.journal is not None:
            journal_entry.note_pause(self.journal, session, blocked_sent)

    def remove_from_journal(self, session: LiveSession) -> None:
        """A session's descriptors are about to be closed."""
        if self.journal is not None:
            journal_entry.remove(self.journal, session)

    def opened(self, session: LiveSession) -> None:
        """A session's Open-Ok is on its way."""
        self.routing.opened(session)
        self.on_opened(session)

    def closed(self, session: LiveSession, how: End, text: str) -> None:
        """A session is over."""
        self.live.pop(session.id, None)
        self.routing.closed(session, how, text)
        self.check_gone()

    # --- how they all go --------------------------------------------------------------------------------------------

    def leave(self, drain: float, rate: float | None) -> None:
        """Close (320) to all, `rate` a second (None: at once); what is left after `drain` seconds is cut. Called again,
        it may only be sooner."""
        self.leaving = True
        self._leaving.begin(drain, rate)
        self.check_gone()

    def _cut_all(self) -> None:
        for session in [*self.live.values()]:
            session.force()
        self.gone.set()

    def check_gone(self) -> None:
        """Set `gone` if the process is leaving and the last session is gone."""
        if self.leaving and not self.live:
            self.gone.set()

    def close(self) -> None:
        """Cut all sessions, and release everything."""
        for session in [*self.live.values()]:
            session.force()
        self._dead_peers.close()
        self.relay.close()
