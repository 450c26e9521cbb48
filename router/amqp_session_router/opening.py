"""How a session comes to be open: the handshake with its client, who that is, and a broker that says Open-Ok."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

from amqp_session_router import sasl, wire
from amqp_session_router.handshake import ClientHandshake, Over, Stage
from amqp_session_router.model import CONNECTION_FORCED, AuthRequest, Denied, End, Identity, Listener, Phase
from amqp_session_router.placing import place
from amqp_session_router.prelude import accept_tls, proxy_header
from amqp_session_router.wire import ProtocolError
from amqp_session_router.wires import SocketWire, StreamWire

if TYPE_CHECKING:
    from amqp_session_router.session import LiveSession

log = logging.getLogger(__name__)


class Opening:
    """The opening of one session, a task. It ends in `LiveSession.opened` or in `LiveSession.finish`."""

    def __init__(
        self, session: LiveSession, listener: Listener, peer: tuple[str, int], context: ssl.SSLContext | None
    ) -> None:
        self._session = session
        self._server = session.server
        self._loop = session.server.loop
        self._listener = listener
        self._context = context
        self._peer = peer
        self._sni = ""
        self._certificate_name = ""
        self._handshake: ClientHandshake | None = None
        self._over: Over | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._run())

    def interrupt(self, how: End, text: str, code: int = 0) -> None:
        """End it from outside; the client gets a Close with `code` (0: none). Without effect once it is ending."""
        if self._over is None:
            self._over = Over(how, text, code)
            self._task.cancel()

    def cancel_timers(self) -> None:
        """Wait for nothing more, send no more heartbeats."""
        for timer in (self._deadline, self._beat):
            if timer is not None:
                timer.cancel()
        self._deadline = self._beat = None

    async def _run(self) -> None:
        """Do all of it; never raises."""
        session = self._session
        self._deadline = self._loop.call_later(
            self._server.routing.timeouts.handshake,
            self.interrupt,
            End.HANDSHAKE_TIMEOUT,
            "the handshake took too long",
            CONNECTION_FORCED,
        )
        try:
            try:
                await self._shake_hands()
            except Over as over:
                await self._say_goodbye(over)
            except asyncio.CancelledError:
                if self._over is None:
                    raise
                await self._say_goodbye(self._over)
        except asyncio.CancelledError:
            session.finish(End.ROUTER_CLOSED, "the router ends", reset=True)
        except OSError as error:
            how = End.CLIENT_CLOSED if self._handshake is None else End.CLIENT_LOST
            session.finish(how, f"the client's connection broke: {error.strerror or error}")
        except Exception:
            log.exception("a session failed", extra={"session": session.id})
            session.finish(End.INTERNAL, "a fault of the router", reset=True)

    async def _say_goodbye(self, over: Over) -> None:
        """Send the client what it is to get, a Close with a reason where it can have one."""
        session = self._session
        session.phase = Phase.CLOSING
        self._over = over
        self.cancel_timers()
        client = session.client_wire
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
        session.finish(over.how, over.text)

    async def _shake_hands(self) -> None:
        session = self._session
        mechanisms = await self._prelude()
        self._handshake = handshake = ClientHandshake(
            self._server.learned, self._server.routing.tune, mechanisms, self._server.limits.largest_frame(None)
        )
        client = session.client_wire
        while handshake.stage is not Stage.WAITING and not handshake.gone:
            if not (data := await client.recv()):
                early = handshake.stage is Stage.HEADER and not handshake.buffer
                raise Over(End.CLIENT_CLOSED if early else End.CLIENT_LOST, "the client ended its connection")
            self._receive(data)
        if handshake.gone:
            raise Over(End.CLIENT_CLOSED, "the client closed during the handshake")
        client.watch(self._while_connecting)
        self._schedule_beat()
        identity = await self._identify(handshake)
        assert handshake.credentials is not None
        broker, talk = await place(session, identity, handshake.credentials, handshake.tune, self._ends)
        self.cancel_timers()
        client.unwatch()
        session.opened(
            broker,
            talk.tune,
            handshake.credentials.blocked_capable,
            bytes(handshake.buffer),
            talk.open_ok + bytes(talk.buffer),
        )

    async def _prelude(self) -> tuple[str, ...]:
        """Read a PROXY header and do the TLS handshake, where the listener has them; return the SASL mechanisms."""
        session = self._session
        mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
        raw = session.client_wire
        assert isinstance(raw, SocketWire) and raw.kernel is not None
        if self._listener.proxy_protocol:
            header = await proxy_header(raw, lambda: self._server.trusts(session.listener, self._peer[0]))
            self._sni = header.authority
            if header.source is not None:
                self._peer = header.source
                session.client = f"{header.source[0]}:{header.source[1]}"
        if self._context is not None:
            # From here on the socket is uvloop's, whatever becomes of the TLS handshake.
            session.client_wire = stream = StreamWire(self._loop)
            name, self._certificate_name = await accept_tls(self._loop, raw.kernel, stream, self._context)
            self._sni = name or self._sni
            if self._certificate_name:
                mechanisms = ("EXTERNAL", *mechanisms)
        return mechanisms

    def _receive(self, data: bytes) -> None:
        """Give bytes of the client to its handshake, send the answer; raises Over."""
        handshake = self._handshake
        assert handshake is not None
        try:
            handshake.receive(data)
        except ProtocolError as error:
            raise Over(End.PROTOCOL_ERROR, error.text, error.code) from None
        self._session.client_wire.send(handshake.take())

    def _while_connecting(self, data: bytes) -> None:
        """The client said something, or went, between Open and Open-Ok."""
        if not data:
            self.interrupt(End.CLIENT_LOST, "the client ended its connection before Open-Ok")
            return
        try:
            self._receive(data)
        except Over as over:
            self.interrupt(over.how, over.text, over.code)
            return
        if self._handshake is not None and self._handshake.gone:
            self.interrupt(End.CLIENT_CLOSED, "the client closed before Open-Ok")

    async def _identify(self, handshake: ClientHandshake) -> Identity:
        """Find out who it is, ask the limits and the authorisation hook, and wait while the vhost is paused."""
        session = self._session
        credentials = handshake.credentials
        assert credentials is not None
        session.identity = identity = Identity(
            vhost=handshake.vhost,
            user=sasl.user(credentials.mechanism, credentials.response, self._certificate_name),
            client_id=credentials.client_id,
            source_ip=self._peer[0],
            sni_host=self._sni,
            listener=session.listener,
        )
        answer = await self._server.authorizer.authorize(
            AuthRequest(identity, credentials.mechanism, credentials.response)
        )
        if isinstance(answer, Denied):
            raise Over(End.REJECTED, answer.text, answer.code)
        if answer.roles:
            session.identity = identity = replace(identity, roles=answer.roles)
        if answer.mechanism is not None:
            handshake.credentials = replace(credentials, mechanism=answer.mechanism, response=answer.response or b"")
        refusal = session.lease.open(identity.vhost, identity.user)
        if refusal is not None:
            raise Over(End.LIMITED, refusal.text, refusal.code)
        session.phase = Phase.WAITING
        if (deadline := self._deadline) is not None:
            left = deadline.when() - self._loop.time()
            deadline.cancel()
            await self._server.routing.unpaused(identity.vhost)
            self._deadline = self._loop.call_later(
                max(0.0, left),
                self.interrupt,
                End.HANDSHAKE_TIMEOUT,
                "no backend has opened the session in time",
                CONNECTION_FORCED,
            )
        return identity

    def _ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        raw = self._session.client_wire
        own = ("0.0.0.0", 0)
        if raw.kernel is not None:
            own = raw.kernel.getsockname()[:2]
        elif isinstance(raw, StreamWire):
            own = raw.own_address()
        return self._peer, own

    def _schedule_beat(self) -> None:
        assert self._handshake is not None
        heartbeat = self._handshake.tune.heartbeat
        if heartbeat:
            self._beat = self._loop.call_later(heartbeat / 2, self._send_beat)

    def _send_beat(self) -> None:
        client = self._session.client_wire
        if not client.full:
            client.send(wire.HEARTBEAT)
        self._schedule_beat()
