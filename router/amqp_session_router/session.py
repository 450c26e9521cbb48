"""One session: a client's connection, the broker's that was found for it, and everything that may become of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

from amqp_session_router import proxy_protocol, sasl, wire
from amqp_session_router.flow import Flow
from amqp_session_router.handshake import BrokerHandshake, ClientHandshake, Refused, Relayed, Stage
from amqp_session_router.model import (
    CONNECTION_FORCED,
    AuthRequest,
    Backend,
    Counters,
    Denied,
    End,
    Identity,
    Lease,
    Listener,
    Phase,
    Reject,
    Route,
    Tune,
)
from amqp_session_router.stream_flow import AnyFlow, StreamFlow
from amqp_session_router.wire import ProtocolError
from amqp_session_router.wires import SocketWire, StreamWire, Wire

if TYPE_CHECKING:
    from amqp_session_router.server import Listeners

log = logging.getLogger(__name__)

_PROXY_MAX = 4112 + 107
PAUSED_TEXT = "the router has paused this session"


class _Over(Exception):
    """The handshake ends here; the client gets a Close with `code` (0: none)."""

    def __init__(self, how: End, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.how = how
        self.text = text
        self.code = code


class _Drain:
    """Reads and drops what a peer still sends after our Close, until its Close-Ok or its end."""

    def __init__(self, connection: Wire, done: Callable[[], None]) -> None:
        self._connection = connection
        self._done = done
        self._tail = b""
        connection.watch(self._got)

    def _got(self, data: bytes) -> None:
        # The position in the stream may be unknown; a body that holds these bytes only ends the wait early.
        seen = self._tail + data
        if not data or wire.CLOSE_OK_FRAME in seen:
            self._connection.unwatch()
            self._done()
            return
        close = seen.find(b"\x00\x0a\x00\x32", max(0, len(self._tail) - 4))
        if close >= 7 and seen[close - 7 : close - 4] == b"\x01\x00\x00":
            # Both closed at once (specification 2.2.4): each answers the other.
            self._connection.send(wire.CLOSE_OK_FRAME)
        self._tail = seen[-11:]


class LiveSession:
    """See `model.Session`. `run` makes it; afterwards it lives in callbacks of its flows."""

    def __init__(
        self,
        server: Listeners,
        listener: Listener,
        lease: Lease,
        sock: socket.socket,
        peer: tuple[str, int],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.id = os.urandom(6).hex()
        self.identity: Identity | None = None
        self.route: Route | None = None
        self.backend: Backend | None = None
        self.phase = Phase.HANDSHAKE
        self.listener = listener.name
        self.client = f"{peer[0]}:{peer[1]}"
        self.started = time.time()
        self.tune = Tune()
        self.blocked_capable = False
        self.flows: tuple[AnyFlow, ...] = ()
        self.broker_wire: Wire | None = None
        self.slot: int | None = None
        self._counters = Counters()
        self._server = server
        self._loop = server.loop
        self._listener: Listener | None = listener
        self._lease = lease
        self._peer = peer
        self._context = context
        self.client_wire: Wire = SocketWire(server.loop, sock)
        self._handshake: ClientHandshake | None = None
        self._task: asyncio.Task[None] | None = None
        self._over: _Over | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._meter: asyncio.TimerHandle | None = None
        self._blocked_sent = False
        self._ended: list[int] = []
        self._waiting_for = 0
        self._closed = False
        self._sni = ""
        self._certificate_name = ""
        self._drains: list[_Drain] = []

    # --- what others read -------------------------------------------------------------------------------------------

    @property
    def counters(self) -> Counters:
        """The session's counters, up to date."""
        if self.flows:
            self._counters.bytes_from_client, self._counters.bytes_from_broker = (flow.total for flow in self.flows)
        return self._counters

    @property
    def kernel(self) -> bool:
        """Do its bytes outlive this process, in sockets, pipes or the hold?"""
        return bool(self.flows) and isinstance(self.flows[0], Flow)

    # --- handshake --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the handshake."""
        self._task = self._loop.create_task(self.run())

    async def run(self) -> None:
        """Do the handshake; never raises."""
        timeouts = self._server.routing.timeouts
        self._deadline = self._loop.call_later(
            timeouts.handshake, self._interrupt, End.HANDSHAKE_TIMEOUT, "the handshake took too long", CONNECTION_FORCED
        )
        try:
            try:
                await self._shake_hands()
            except _Over as over:
                await self._say_goodbye(over)
            except asyncio.CancelledError:
                if self._over is None:
                    raise
                await self._say_goodbye(self._over)
        except asyncio.CancelledError:
            self._finish(End.ROUTER_CLOSED, "the router ends", reset=True)
        except OSError as error:
            how = End.CLIENT_CLOSED if self._handshake is None else End.CLIENT_LOST
            self._finish(how, f"the client's connection broke: {error.strerror or error}")
        except Exception:
            log.exception("a session failed", extra={"session": self.id})
            self._finish(End.INTERNAL, "a fault of the router", reset=True)
        finally:
            self._task = None

    def _interrupt(self, how: End, text: str, code: int = 0) -> None:
        """End the handshake from outside."""
        if self._task is not None and self._over is None:
            self._over = _Over(how, text, code)
            self._task.cancel()

    async def _say_goodbye(self, over: _Over) -> None:
        """Send the client what it is to get, a Close with a reason where it can have one."""
        self.phase = Phase.CLOSING
        self._over = over
        self._cancel_timers()
        client = self.client_wire
        client.unwatch()
        if self._handshake is not None:
            client.send(self._handshake.take())
        if over.code and self._handshake is not None and self._handshake.credentials is not None:
            client.send(wire.close(over.code, over.text))
            client.on_drained = None
            tail = bytes(self._handshake.buffer[-11:])
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(self._server.routing.timeouts.close):
                    while wire.CLOSE_OK_FRAME not in tail:
                        if not (data := await client.recv()):
                            break
                        tail = tail[-11:] + data
        elif self._handshake is not None and not self._handshake.gone:
            # What the client has sent and nobody reads would turn the close into a reset, and the answer be lost.
            client.finish()
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(min(1.0, self._server.routing.timeouts.close)):
                    while await client.recv():
                        pass
        self._finish(over.how, over.text)

    async def _shake_hands(self) -> None:
        await self._prelude()
        handshake = self._handshake
        assert handshake is not None
        client = self.client_wire
        while handshake.stage is not Stage.WAITING and not handshake.gone:
            if not (data := await client.recv()):
                early = handshake.stage is Stage.HEADER and not handshake.buffer
                raise _Over(End.CLIENT_CLOSED if early else End.CLIENT_LOST, "the client ended its connection")
            self._receive(data)
        if handshake.gone:
            raise _Over(End.CLIENT_CLOSED, "the client closed during the handshake")
        client.watch(self._while_connecting)
        self._schedule_beat()
        identity = await self._identify(handshake)
        await self._place(identity, handshake)

    async def _prelude(self) -> None:
        """Read a PROXY header and do the TLS handshake, where the listener has them."""
        listener = self._listener
        assert listener is not None
        sni = ""
        if listener.proxy_protocol:
            header = await self._proxy_header()
            sni = header.authority
            if header.source is not None:
                self._peer = header.source
                self.client = f"{header.source[0]}:{header.source[1]}"
        certificate_name = ""
        mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
        if self._context is not None:
            raw = self.client_wire
            assert isinstance(raw, SocketWire) and raw.kernel is not None
            # From here on the socket is uvloop's, whatever becomes of the TLS handshake.
            stream = StreamWire(self._loop)
            self.client_wire = stream
            try:
                # What uvloop returns as the protocol is its own, not the one that was made.
                await self._loop.connect_accepted_socket(lambda: stream, raw.kernel, ssl=self._context)
            except (OSError, ssl.SSLError) as error:
                raise _Over(End.PROTOCOL_ERROR, f"TLS failed: {getattr(error, 'reason', None) or error}") from None
            tls = stream.tls()
            sni = str(getattr(tls, "asked_for", "") or sni)
            certificate_name = _common_name(tls)
            if certificate_name:
                mechanisms = ("EXTERNAL", *mechanisms)
        self._certificate_name = certificate_name
        self._sni = sni
        self._handshake = ClientHandshake(
            self._server.learned, self._server.routing.tune, mechanisms, self._server.limits.largest_frame(None)
        )

    async def _proxy_header(self) -> proxy_protocol.Header:
        """Take the PROXY header off the socket, and not one byte more: what follows may be TLS."""
        raw = self.client_wire
        assert isinstance(raw, SocketWire) and raw.kernel is not None
        seen = -1
        while True:
            await raw.readable()
            data = raw.kernel.recv(_PROXY_MAX, socket.MSG_PEEK)
            if not data:
                raise _Over(End.CLIENT_CLOSED, "the connection ended before its PROXY header")
            try:
                found = proxy_protocol.parse(data)
            except proxy_protocol.ProxyError as error:
                raise _Over(End.PROTOCOL_ERROR, str(error)) from None
            if found is not None:
                raw.kernel.recv(found[1])
                if self._server.trusts(self.listener, self._peer[0]):
                    return found[0]
                raise _Over(End.PROTOCOL_ERROR, "a PROXY header came from an address that is not trusted")
            if len(data) == seen:
                # Peeked bytes keep the socket readable: look again only when there may be more.
                await asyncio.sleep(0.01)
            seen = len(data)

    def _receive(self, data: bytes) -> None:
        """Give bytes of the client to its handshake, send the answer; raises _Over."""
        handshake = self._handshake
        assert handshake is not None
        try:
            handshake.receive(data)
        except ProtocolError as error:
            raise _Over(End.PROTOCOL_ERROR, error.text, error.code) from None
        self.client_wire.send(handshake.take())

    def _while_connecting(self, data: bytes) -> None:
        """The client said something, or went, between Open and Open-Ok."""
        if not data:
            self._interrupt(End.CLIENT_LOST, "the client ended its connection before Open-Ok")
            return
        try:
            self._receive(data)
        except _Over as over:
            self._interrupt(over.how, over.text, over.code)
            return
        if self._handshake is not None and self._handshake.gone:
            self._interrupt(End.CLIENT_CLOSED, "the client closed before Open-Ok")

    async def _identify(self, handshake: ClientHandshake) -> Identity:
        """Find out who it is, ask the limits and the authorisation hook, and wait while the vhost is paused."""
        credentials = handshake.credentials
        assert credentials is not None
        identity = Identity(
            vhost=handshake.vhost,
            user=sasl.user(credentials.mechanism, credentials.response, self._certificate_name),
            client_id=credentials.client_id,
            source_ip=self._peer[0],
            sni_host=self._sni,
            listener=self.listener,
        )
        self.identity = identity
        answer = await self._server.authorizer.authorize(
            AuthRequest(identity, credentials.mechanism, credentials.response)
        )
        if isinstance(answer, Denied):
            raise _Over(End.REJECTED, answer.text, answer.code)
        if answer.roles:
            identity = replace(identity, roles=answer.roles)
            self.identity = identity
        if answer.mechanism is not None:
            handshake.credentials = replace(credentials, mechanism=answer.mechanism, response=answer.response or b"")
        refusal = self._lease.open(identity.vhost, identity.user)
        if refusal is not None:
            raise _Over(End.LIMITED, refusal.text, refusal.code)
        self.phase = Phase.WAITING
        if (deadline := self._deadline) is not None:
            left = deadline.when() - self._loop.time()
            deadline.cancel()
            await self._server.routing.unpaused(identity.vhost)
            self._deadline = self._loop.call_later(
                max(0.0, left),
                self._interrupt,
                End.HANDSHAKE_TIMEOUT,
                "no backend has opened the session in time",
                CONNECTION_FORCED,
            )
        return identity

    async def _place(self, identity: Identity, handshake: ClientHandshake) -> None:
        """Try the candidates until one says Open-Ok."""
        routing = self._server.routing
        self.phase = Phase.CONNECTING
        decision = routing.decide(identity)
        if isinstance(decision, Reject):
            raise _Over(End.REJECTED, decision.text, decision.code)
        self.route = replace(decision, candidates=iter(()))
        assert handshake.credentials is not None
        properties = await self._properties()
        last = "there is none"
        for backend in decision.candidates:
            self.backend = backend
            talk = BrokerHandshake(
                handshake.credentials, handshake.tune, decision.vhost_for(backend), self._server.learned, properties
            )
            try:
                broker = await self._attempt(backend, identity, talk)
            except Refused as refused:
                last = f"{backend.name}: {refused}"
                routing.attempted(self, backend, False, str(refused))
                continue
            except Relayed as relayed:
                routing.attempted(self, backend, True, f"{relayed.code} {relayed.text}")
                raise _Over(End.REJECTED, relayed.text, relayed.code) from None
            routing.attempted(self, backend, True)
            self._open(handshake, talk, broker)
            return
        self.backend = None
        tries = self._counters.attempts
        raise _Over(
            End.NO_BACKEND,
            f"no backend of {decision.target} takes the session, {tries} tried; the last: {last}",
            CONNECTION_FORCED,
        )

    async def _properties(self) -> dict[str, str]:
        """Return what is added to the client properties, for who looks at the broker's list of connections."""
        return {
            "proxy_client": await self._server.client_name(self.client),
            "proxy_host": self._server.host_name,
            "proxy_session": self.id,
        }

    async def _attempt(self, backend: Backend, identity: Identity, talk: BrokerHandshake) -> Wire:
        """Return a connection to `backend` on which `talk` has come to Open-Ok; raises Refused or Relayed."""
        broker = await self._server.dialler.dial(backend, identity, self._ends)
        limit = self._server.routing.timeouts.backend_handshake
        try:
            broker.send(talk.first)
            async with asyncio.timeout(limit):
                while True:
                    if not (data := await broker.recv()):
                        raise Refused("it ended the connection during the handshake")
                    if talk.receive(data):
                        return broker
                    broker.send(talk.take())
        except TimeoutError:
            broker.abort()
            raise Refused(f"no Open-Ok within {limit:g} s") from None
        except OSError as error:
            broker.abort()
            raise Refused(f"the connection broke: {error.strerror or error}") from None
        except Relayed:
            broker.send(wire.CLOSE_OK_FRAME)
            broker.close()
            raise
        except BaseException:
            broker.abort()
            raise

    def _ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        raw = self.client_wire
        own = ("0.0.0.0", 0)
        if raw.kernel is not None:
            own = raw.kernel.getsockname()[:2]
        elif isinstance(raw, StreamWire):
            own = raw.own_address()
        return self._peer, own

    # --- open -------------------------------------------------------------------------------------------------------

    def _open(self, handshake: ClientHandshake, talk: BrokerHandshake, broker: Wire) -> None:
        """Open-Ok: from here on the flows have it."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        self.client_wire.unwatch()
        self.tune = talk.tune
        assert handshake.credentials is not None
        self.blocked_capable = handshake.credentials.blocked_capable
        self.broker_wire = broker
        self._handshake = None
        self._listener = None
        self._context = None
        self.make_flows()
        self.phase = Phase.OPEN
        self._counters.handshake_seconds = time.time() - self.started
        self._lease.authenticated()
        self._server.opened(self)
        from_client, from_broker = self.flows
        from_broker.feed(talk.open_ok + bytes(talk.buffer))
        if handshake.buffer:
            from_client.feed(bytes(handshake.buffer))
        if not self._closed:
            from_client.start()
            from_broker.start()

    def make_flows(self) -> None:
        """Make both flows of the connections that are there."""
        client, broker = self.client_wire, self.broker_wire
        assert broker is not None
        identity = self.identity
        allowed = self._server.limits.largest_frame(identity.vhost if identity is not None else None)
        agreed = self.tune.frame_max
        most = min(allowed, agreed) if allowed and agreed else allowed or agreed
        if client.kernel is not None and broker.kernel is not None:
            plane, cell = self._server.plane, self._server.cell_of(self)
            channels = self.tune.channel_max
            self.flows = (
                Flow(self, plane, 0, client.kernel, broker.kernel, (most, channels), cell),
                Flow(self, plane, 1, broker.kernel, client.kernel, (agreed, channels), cell),
            )
        else:
            self.flows = (StreamFlow(self, 0, client, broker, most), StreamFlow(self, 1, broker, client, agreed))
        self.flows[0].metered = self._lease.metered

    # from one process to the next

    def facts(self) -> dict[str, Any]:
        """Return what a successor must know and does not change any more."""
        assert self.identity is not None and self.route is not None and self.backend is not None
        return {
            "id": self.id,
            "listener": self.listener,
            "client": self.client,
            "started": self.started,
            "identity": asdict(self.identity),
            "backend": self.backend.name,
            "route": [self.route.target, self.route.key, self.route.vhost],
            "tune": [self.tune.frame_max, self.tune.channel_max, self.tune.heartbeat],
            "blocked_capable": self.blocked_capable,
            "attempts": self._counters.attempts,
        }

    def surrender(self) -> tuple[dict[str, Any], list[int]]:
        """Stop, and return all that a successor needs: facts, and descriptors (client, broker, pipes in use)."""
        assert self.kernel and self.client_wire.kernel is not None
        assert self.broker_wire is not None and self.broker_wire.kernel is not None
        descriptors = [self.client_wire.kernel.fileno(), self.broker_wire.kernel.fileno()]
        states = []
        for flow in self.flows:
            assert isinstance(flow, Flow)
            state, pipe = flow.surrender()
            states.append(state)
            if pipe is not None:
                descriptors += [pipe.read, pipe.write]
        paused = self.phase is Phase.PAUSED
        more = {"flows": states, "paused": paused, "blocked_sent": self._blocked_sent, "ended": self._ended}
        return self.facts() | more, descriptors

    def relieved(self) -> None:
        """A successor has it."""
        self._finish(End.HANDED_OVER)

    @classmethod
    def adopt(
        cls,
        server: Listeners,
        facts: dict[str, Any],
        client: socket.socket,
        broker: socket.socket,
        backend: Backend,
        lease: Lease,
    ) -> LiveSession:
        """Return the session that another process had, with flows that do not run yet."""
        host, _, port = facts["client"].rpartition(":")
        session = cls(server, Listener(facts["listener"]), lease, client, (host, int(port)))
        session.id = facts["id"]
        session.started = facts["started"]
        identity = facts["identity"]
        session.identity = Identity(**identity | {"roles": tuple(identity["roles"])})
        target, key, vhost = facts["route"]
        session.route = Route(target, key, vhost, iter(()))
        session.backend = backend
        session.tune = Tune(*facts["tune"])
        session.blocked_capable = facts["blocked_capable"]
        session._counters.attempts = facts["attempts"]
        session._blocked_sent = facts.get("blocked_sent", False)
        session._ended = [*facts.get("ended", ())]
        session._listener = None
        session.broker_wire = SocketWire(server.loop, broker)
        session.phase = Phase.OPEN
        lease.open(session.identity.vhost, session.identity.user)
        lease.authenticated()
        session.make_flows()
        return session

    def go_on(self, paused: bool) -> None:
        """Start what `adopt` made."""
        for flow in self.flows:
            if flow.index not in self._ended and not (paused and flow.index == 0):
                flow.start()
        if paused:
            self.pause()

    # what flows tell

    def flow_moved(self, flow: AnyFlow, count: int) -> None:
        """Charge the limits."""
        if flow.index == 0 and (wait := self._lease.take(count)) > 0 and self._meter is None:
            flow.halt()
            self._meter = self._loop.call_later(wait, self._metered)

    def _metered(self) -> None:
        self._meter = None
        if self.phase is Phase.OPEN:
            self.flows[0].start()

    def meter(self) -> None:
        """Look again whether the limits want to know of bytes."""
        if self.flows:
            self.flows[0].metered = self._lease.metered

    def flow_frame_too_large(self, flow: AnyFlow, size: int) -> None:
        """End a session of which one side breaks what was agreed."""
        flow.halt()
        side = "client" if flow.index == 0 else "broker"
        self._end_gracefully(
            wire.FRAME_ERROR, f"the {side} sent a frame of {size} bytes, above the limit", End.PROTOCOL_ERROR
        )

    def flow_ended(self, flow: AnyFlow) -> None:
        """One side sent its last byte."""
        self._ended.append(flow.index)
        if self.phase is Phase.CLOSING:
            return
        if len(self._ended) == 2:
            self._finish(*self._verdict())
            return
        clean = any(one.last_method in (wire.CLOSE, wire.CLOSE_OK) for one in self.flows)
        if flow.index == 1:
            if not clean:
                self._broker_lost("the broker ended the connection")
                return
            other = self.client_wire
        else:
            assert self.broker_wire is not None
            other = self.broker_wire
        other.finish()
        if other.kernel is None:
            # TLS has no half-closed state: nothing can come back, so nobody would tell us of the end.
            self._finish(*self._verdict())
            return
        if clean and self._deadline is None:
            # The other side has nothing left to say; it has had as long as a Close may take.
            self._deadline = self._loop.call_later(
                self._server.routing.timeouts.close, lambda: self._finish(*self._verdict())
            )

    def _verdict(self) -> tuple[End, str]:
        """Return how a session ended that both sides let go."""
        from_client, from_broker = self.flows
        if from_client.last_method == wire.CLOSE:
            return End.CLIENT_CLOSED, ""
        if from_broker.last_method == wire.CLOSE:
            return End.BROKER_CLOSED, ""
        if self._ended[:1] == [1]:
            return End.BROKER_LOST, "the broker ended the connection without a Close"
        return End.CLIENT_LOST, "the client ended the connection without a Close"

    def flow_broke(self, flow: AnyFlow, at_source: bool, error: OSError) -> None:
        """A socket failed."""
        if self.phase is Phase.CLOSING:
            return
        of_client = (flow.index == 0) == at_source
        other = self.flows[1 - flow.index]
        if not at_source and not other.halted:
            # The socket that takes no more may hold a Close that it still gives: the other flow sees its end.
            flow.halt()
            self._ended.append(flow.index)
            return
        why = error.strerror or str(error)
        clean = any(one.last_method in (wire.CLOSE, wire.CLOSE_OK) for one in self.flows)
        if clean:
            self._finish(*self._verdict())
        elif of_client:
            self._finish(End.CLIENT_LOST, f"the client's connection broke: {why}", reset=True)
        else:
            self._broker_lost(f"the broker's connection broke: {why}")

    def _broker_lost(self, text: str, how: End = End.BROKER_LOST) -> None:
        """Tell the client that its broker is gone: by Close between two frames, else by a reset."""
        self.phase = Phase.CLOSING
        self._cancel_timers()
        from_client, from_broker = self.flows
        from_client.halt()
        from_broker.halt()
        if not from_broker.known_boundary():
            self._finish(how, text, reset=True)
            return
        name = self.backend.name if self.backend is not None else ""
        from_broker.inject(wire.close(CONNECTION_FORCED, f"{text} (backend {name})"))
        from_client.stop()
        if self._closed:
            return
        assert self.broker_wire is not None
        self.broker_wire.abort()
        self._deadline = self._loop.call_later(
            self._server.routing.timeouts.close, lambda: self._finish(how, text, reset=True)
        )
        self._drains = [_Drain(self.client_wire, lambda: self._finish(how, text))]

    # --- what control does ------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading from the client and tell it by Connection.Blocked; keep both sides' heartbeats. Idempotent."""
        if self.phase is not Phase.OPEN:
            return
        self.phase = Phase.PAUSED
        from_client, from_broker = self.flows
        from_client.at_boundary(lambda: self.phase is Phase.PAUSED)
        if self.blocked_capable:
            from_broker.at_boundary(self._send_blocked)
        self._schedule_beat()

    def _send_blocked(self) -> bool:
        if self.phase is Phase.PAUSED and not self._blocked_sent:
            self._blocked_sent = True
            self.flows[1].inject(wire.blocked(PAUSED_TEXT))
        return False

    def _send_unblocked(self) -> bool:
        if self.phase is Phase.OPEN and self._blocked_sent:
            self._blocked_sent = False
            self.flows[1].inject(wire.UNBLOCKED_FRAME)
        return False

    def unpause(self) -> None:
        """Read again, Connection.Unblocked. Idempotent."""
        if self.phase is not Phase.PAUSED:
            return
        self.phase = Phase.OPEN
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        self.flows[1].at_boundary(self._send_unblocked)
        if self._meter is None and 0 not in self._ended:
            self.flows[0].start()

    def disconnect(self, code: int, text: str) -> None:
        """End it gracefully: Connection.Close to both sides on a frame boundary, RST where there is none."""
        if self.phase in (Phase.OPEN, Phase.PAUSED):
            self._end_gracefully(code, text, End.ROUTER_CLOSED)
        elif self.phase is not Phase.CLOSING:
            self._interrupt(End.ROUTER_CLOSED, text, code)

    def _end_gracefully(self, code: int, text: str, how: End) -> None:
        if self.phase is Phase.CLOSING:
            return
        self.phase = Phase.CLOSING
        self._cancel_timers()
        self._waiting_for = 2
        self._deadline = self._loop.call_later(
            self._server.routing.timeouts.close, self._boundary_missed, code, text, how
        )
        for flow in self.flows:
            flow.at_boundary(lambda: self._boundary_reached(code, text, how))

    def _boundary_reached(self, code: int, text: str, how: End) -> bool:
        self._waiting_for -= 1
        if not self._waiting_for:
            # Once both flows stand still: a Close-Ok must not travel on to the other side.
            self._loop.call_soon(self._close_both, code, text, how)
        return True

    def _boundary_missed(self, code: int, text: str, how: End) -> None:
        """One side is in the middle of a frame and stays there: a Close for the client if it is not the client's."""
        if self._closed:
            return
        if self.flows[1].known_boundary():
            for flow in self.flows:
                flow.halt()
            self._close_both(code, text, how, broker_too=False)
        else:
            self._finish(how, text, reset=True)

    def _close_both(self, code: int, text: str, how: End, broker_too: bool = True) -> None:
        if self._closed:
            return
        self._cancel_timers()
        from_client, from_broker = self.flows
        assert self.broker_wire is not None
        from_broker.inject(wire.close(code, text))
        if broker_too:
            from_client.inject(wire.close(CONNECTION_FORCED, text))
        if self._closed:
            return
        from_client.halt()
        from_broker.halt()
        self._waiting_for = 1 + broker_too

        def done() -> None:
            self._waiting_for -= 1
            if not self._waiting_for:
                self._finish(how, text)

        self._deadline = self._loop.call_later(
            self._server.routing.timeouts.close, lambda: self._finish(how, text, reset=True)
        )
        self._drains = [_Drain(self.client_wire, done)]
        if broker_too:
            self._drains.append(_Drain(self.broker_wire, done))
        else:
            from_client.stop()
            self.broker_wire.abort()

    def force(self) -> None:
        """Cut both sockets at once."""
        if self._task is not None:
            self._interrupt(End.ROUTER_CLOSED, "cut by the router's operator")
            self.client_wire.abort()
        else:
            self._finish(End.ROUTER_CLOSED, "cut by the router's operator", reset=True)

    def disconnect_backend(self) -> None:
        """Cut the broker's side at once; the client gets a Close with a reason."""
        if self.phase in (Phase.OPEN, Phase.PAUSED):
            self._broker_lost("the router's operator cut the connection to the broker", End.ROUTER_CLOSED)
        elif self.phase is not Phase.CLOSING:
            self._interrupt(End.ROUTER_CLOSED, "cut by the router's operator", CONNECTION_FORCED)

    # --- heartbeats that pass no broker -----------------------------------------------------------------------------

    def _schedule_beat(self) -> None:
        heartbeat = self._handshake.tune.heartbeat if self._handshake is not None else self.tune.heartbeat
        if heartbeat:
            self._beat = self._loop.call_later(heartbeat / 2, self._send_beat)

    def _send_beat(self) -> None:
        if self.phase is Phase.PAUSED:
            # The broker's own come through to the client; the client's do not reach the broker.
            if self.flows[0].halted and self.flows[0].known_boundary() and self.flows[0].clear:
                self.flows[0].inject(wire.HEARTBEAT)
        elif self._handshake is not None and not self.client_wire.full:
            self.client_wire.send(wire.HEARTBEAT)
        if not self._closed:
            self._schedule_beat()

    # --- the end ----------------------------------------------------------------------------------------------------

    def _cancel_timers(self) -> None:
        for timer in (self._deadline, self._beat, self._meter):
            if timer is not None:
                timer.cancel()
        self._deadline = self._beat = self._meter = None

    def _finish(self, how: End, text: str = "", reset: bool = False) -> None:
        """It is over. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.phase = Phase.CLOSING
        self._cancel_timers()
        counters = self.counters
        self._server.strike(self)
        for flow in self.flows:
            flow.stop()
        for connection in (self.client_wire, self.broker_wire):
            if connection is not None:
                if reset:
                    connection.abort()
                else:
                    connection.close()
        self._counters = counters
        self._lease.release()
        self._server.closed(self, how, text)


def _common_name(tls: ssl.SSLObject | None) -> str:
    """Return the common name of a verified client certificate, empty without one."""
    certificate = tls.getpeercert() if tls is not None else None
    if not certificate:
        return ""
    subject = cast(tuple[tuple[tuple[str, str], ...], ...], certificate.get("subject", ()))
    return next((value for names in subject for key, value in names if key == "commonName"), "")
