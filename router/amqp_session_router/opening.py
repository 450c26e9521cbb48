"""How a session comes to be open: the handshake with its client, who that is, and a broker that says Open-Ok."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amqp_session_router import sasl, wire
from amqp_session_router.closing import Drain
from amqp_session_router.deadlines import Deadline
from amqp_session_router.frames import ProtocolError
from amqp_session_router.handshake import ClientHandshake, Over, Stage
from amqp_session_router.model import CONNECTION_FORCED, AuthRequest, Denied, End, Identity, Listener, Phase
from amqp_session_router.placing import place
from amqp_session_router.prelude import accept_tls, proxy_header
from amqp_session_router.wires import SocketWire, StreamWire

if TYPE_CHECKING:
    from amqp_session_router.session import LiveSession

log = logging.getLogger(__name__)


class Opening:
    """The opening of one session. It ends in `LiveSession.opened` or in `LiveSession.finish`."""

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
        self._over = False
        self._deadline: Deadline | asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        """What it waits for where that is more than the client's next bytes."""

    def begin(self) -> None:
        """Start."""
        self._deadline = self._server.deadlines.after(self._server.routing.timeouts.handshake, self._late)
        if self._listener.proxy_protocol or self._context is not None:
            self._task = self._loop.create_task(self._run(self._prelude()))
        else:
            self._listen(("PLAIN", "AMQPLAIN"))

    def interrupt(self, how: End, text: str, code: int = 0) -> None:
        """End it; the client gets a Close with `code` (0: none). Without effect once it is ending."""
        if self._over or self._session.closed:
            return
        self.cancel()
        self._over = True
        session, client, handshake = self._session, self._session.client_wire, self._handshake
        session.phase = Phase.CLOSING
        limit = self._server.routing.timeouts.close
        if handshake is not None:
            client.send(handshake.take())
        if handshake is not None and code and handshake.credentials is not None:
            client.send(wire.close(code, text))
        elif handshake is not None and not handshake.gone:
            # What the client has sent and nobody reads would turn the close into a reset, and the answer be lost.
            client.finish()
            limit = min(1.0, limit)
        else:
            session.finish(how, text)
            return
        self._deadline = self._loop.call_later(limit, session.finish, how, text)
        Drain(client, lambda: session.finish(how, text))

    def _late(self) -> None:
        waits_for_client = self._session.phase is Phase.HANDSHAKE
        text = "the handshake took too long" if waits_for_client else "no backend has opened the session in time"
        self.interrupt(End.HANDSHAKE_TIMEOUT, text, CONNECTION_FORCED)

    def cancel(self) -> None:
        """Wait for nothing more, send no more heartbeats."""
        for waiting in (self._deadline, self._beat, self._task):
            if waiting is not None:
                waiting.cancel()
        self._deadline = self._beat = self._task = None

    async def _run(self, part: Coroutine[Any, Any, None]) -> None:
        """Do a part that waits; never raises."""
        try:
            await part
        except asyncio.CancelledError:
            if self._task is not None:
                self._task = None
                self._session.finish(End.ROUTER_CLOSED, "the router ends", reset=True)
        except Exception as error:
            self._task = None
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, Over):
            self.interrupt(error.how, error.text, error.code)
        elif isinstance(error, OSError):
            how = End.CLIENT_CLOSED if self._handshake is None else End.CLIENT_LOST
            self._session.finish(how, f"the client's connection broke: {error.strerror or error}")
        else:
            log.error("a session failed", exc_info=error, extra={"session": self._session.id})
            self._session.finish(End.INTERNAL, "a fault of the router", reset=True)

    # --- the client's side ------------------------------------------------------------------------------------------

    async def _prelude(self) -> None:
        """Read a PROXY header and do the TLS handshake, where the listener has them."""
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
        self._task = None
        self._listen(mechanisms)

    def _listen(self, mechanisms: tuple[str, ...]) -> None:
        """Have the client shake hands with us."""
        self._handshake = ClientHandshake(
            self._server.learned, self._server.routing.tune, mechanisms, self._server.limits.largest_frame(None)
        )
        self._session.client_wire.watch(self._heard)

    def _heard(self, data: bytes) -> None:
        """The client said something, or went."""
        try:
            self._answer(data)
        except Exception as error:
            self._failed(error)

    def _answer(self, data: bytes) -> None:
        """Give bytes of the client to its handshake, and the client what that says; raises Over."""
        handshake, client = self._handshake, self._session.client_wire
        assert handshake is not None
        connecting = self._task is not None
        if not data:
            if client.error is not None:
                raise client.error
            early = handshake.stage is Stage.HEADER and not handshake.buffer
            raise Over(
                End.CLIENT_CLOSED if early else End.CLIENT_LOST,
                "the client ended its connection" + (" before Open-Ok" if connecting else ""),
            )
        try:
            handshake.receive(data)
        except ProtocolError as error:
            raise Over(End.PROTOCOL_ERROR, error.text, error.code) from None
        client.send(handshake.take())
        if handshake.gone:
            raise Over(
                End.CLIENT_CLOSED, f"the client closed {'before Open-Ok' if connecting else 'during the handshake'}"
            )
        if handshake.stage is Stage.WAITING and not connecting:
            self._schedule_beat()
            self._task = self._loop.create_task(self._run(self._find_broker(handshake)))

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

    # --- the broker's side ------------------------------------------------------------------------------------------

    async def _find_broker(self, handshake: ClientHandshake) -> None:
        session = self._session
        identity = await self._identify(handshake)
        assert handshake.credentials is not None
        broker, talk = await place(session, identity, handshake.credentials, handshake.tune, self._ends)
        self._task = None
        self.cancel()
        session.client_wire.relinquish()
        session.opened(
            broker,
            talk.tune,
            handshake.credentials.blocked_capable,
            bytes(handshake.buffer),
            talk.open_ok + bytes(talk.buffer),
        )

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
            session.identity = identity = identity._replace(roles=answer.roles)
        if answer.mechanism is not None:
            handshake.credentials = replace(credentials, mechanism=answer.mechanism, response=answer.response or b"")
        refusal = session.lease.open(identity.vhost, identity.user)
        if refusal is not None:
            raise Over(End.LIMITED, refusal.text, refusal.code)
        session.phase = Phase.WAITING
        if self._server.routing.is_paused(identity.vhost) and self._deadline is not None:
            left = self._deadline.when() - self._loop.time()
            self._deadline.cancel()
            await self._server.routing.unpaused(identity.vhost)
            self._deadline = self._loop.call_later(max(0.0, left), self._late)
        return identity

    def _ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        raw = self._session.client_wire
        own = ("0.0.0.0", 0)
        if raw.kernel is not None:
            own = raw.kernel.getsockname()[:2]
        elif isinstance(raw, StreamWire):
            own = raw.own_address()
        return self._peer, own
