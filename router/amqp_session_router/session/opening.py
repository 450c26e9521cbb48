"""Opening a session: the handshake with the client, and a broker that says Open-Ok.

What precedes AMQP is in `preface`, who the client is in `identification`, which broker in `backend_attempts`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from typing import Any

from amqp_session_router.amqp import codec, sasl
from amqp_session_router.amqp.client_handshake import HEADER, WAITING, ClientHandshake
from amqp_session_router.amqp.frames import ProtocolError
from amqp_session_router.amqp.negotiation import HandshakeFailed
from amqp_session_router.base.model import (
    CONNECTION_FORCED,
    End,
    Listener,
    Phase,
)
from amqp_session_router.net.deadlines import Deadline
from amqp_session_router.net.eager_task import EagerTask
from amqp_session_router.net.tls_transport import TlsTransport
from amqp_session_router.session.backend_attempts import open_backend
from amqp_session_router.session.closing import Drain
from amqp_session_router.session.identification import identify
from amqp_session_router.session.interfaces import SessionStages
from amqp_session_router.session.preface import Origin, read_preface

log = logging.getLogger(__name__)

_MECHANISMS = ("PLAIN", "AMQPLAIN")
_WITH_EXTERNAL = (sasl.EXTERNAL, *_MECHANISMS)


class Opening:
    """The opening of one session. It ends in `LiveSession.opened` or in `LiveSession.finish`."""

    def __init__(
        self, session: SessionStages, listener: Listener, peer: tuple[str, int], context: ssl.SSLContext | None
    ) -> None:
        self._session = session
        self._host = session.host
        self._loop = session.host.loop
        self._listener = listener
        self._context = context
        self._origin = Origin(peer)
        self._handshake: ClientHandshake | None = None
        self._over = False
        self._deadline: Deadline | asyncio.TimerHandle | None = None
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._task: EagerTask | None = None
        """The running asynchronous part: preface, or identification and backend attempts."""

    def begin(self) -> None:
        """Start."""
        self._deadline = self._host.deadlines.after(self._host.routing.timeouts.handshake, self._late)
        if self._listener.proxy_protocol or self._context is not None:
            self._start(self._read_preface())
        else:
            self._listen()

    def interrupt(self, how: End, text: str, code: int = 0, because_of: int = 0) -> None:
        """End the opening; the client gets a Close with `code` (0: none) for the method `because_of`. No effect once it
        is ending."""
        if self._over or self._session.closed:
            return
        self.cancel()
        self._over = True
        # Its client has a while yet to read why; another's session may have the place.
        self._session.lease.vacate()
        session, client, handshake = self._session, self._session.client_transport, self._handshake
        session.phase = Phase.CLOSING
        limit = self._host.routing.timeouts.close
        if handshake is not None:
            client.send(handshake.take())
        if handshake is not None and code and handshake.credentials is not None:
            client.send(codec.close(code, text, because_of))
        elif handshake is not None and not handshake.gone:
            # Unread bytes would turn close(2) into a reset, and the answer would be lost.
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
        """Cancel deadline, heartbeats and the running part."""
        running = self._deadline, self._heartbeat_timer, self._task
        self._deadline = self._heartbeat_timer = self._task = None
        for one in running:
            if one is not None:
                one.cancel()

    def _start(self, part: Coroutine[Any, Any, None]) -> None:
        task = EagerTask(self._run(part))
        if not task.done:
            self._task = task

    async def _run(self, part: Coroutine[Any, Any, None]) -> None:
        """Await `part`; never raises."""
        try:
            await part
        except asyncio.CancelledError:
            # Not by `cancel`: what it waited for was, as all tasks are when the event loop ends.
            if self._task is not None:
                self._task = None
                self._session.finish(End.ROUTER_CLOSED, "the router ends", reset=True)
        except Exception as error:
            self._task = None
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, HandshakeFailed):
            self.interrupt(error.how, error.text, error.code, error.because_of)
        elif isinstance(error, OSError):
            how = End.CLIENT_CLOSED if self._handshake is None else End.CLIENT_LOST
            self._session.finish(how, f"the client's connection broke: {error.strerror or error}")
        else:
            log.error("a session failed", exc_info=error, extra={"session": self._session.id})
            self._session.finish(End.INTERNAL, "a fault of the router", reset=True)

    # --- the client's side ------------------------------------------------------------------------------------------

    async def _read_preface(self) -> None:
        self._origin = await read_preface(self._session, self._listener, self._origin.address, self._context)
        self._task = None
        self._listen()

    def _listen(self) -> None:
        """Start the AMQP handshake with the client."""
        routing, origin = self._host.routing, self._origin
        external = origin.certificate_name and self._host.authorizer.gives_credentials
        self._handshake = ClientHandshake(
            self._host.learned,
            routing.tune,
            _WITH_EXTERNAL if external else _MECHANISMS,
            self._host.limits.largest_frame(None),
            routing.reachable(self._session.listener, origin.address[0], origin.sni),
        )
        self._session.client_transport.watch(self._heard)

    def _heard(self, data: bytes) -> None:
        """Bytes of the client, empty at its end."""
        try:
            self._answer(data)
        except Exception as error:
            self._failed(error)

    def _answer(self, data: bytes) -> None:
        """Feed bytes of the client to its handshake and send the replies; raises HandshakeFailed."""
        handshake, client = self._handshake, self._session.client_transport
        assert handshake is not None
        connecting = self._task is not None
        if not data:
            if client.error is not None:
                raise client.error
            if connecting and handshake.buffer and self._session.phase is Phase.CONNECTING:
                # It has said all that it will say; the broker answers that, and sees the end itself.
                return
            early = handshake.stage is HEADER and not handshake.buffer
            raise HandshakeFailed(
                End.CLIENT_CLOSED if early else End.CLIENT_LOST,
                "the client ended its connection" + (" before Open-Ok" if connecting else ""),
            )
        try:
            handshake.receive(data)
        except ProtocolError as error:
            raise HandshakeFailed(End.PROTOCOL_ERROR, error.text, error.code) from None
        client.send(handshake.take())
        if handshake.gone:
            raise HandshakeFailed(
                End.CLIENT_CLOSED, f"the client closed {'before Open-Ok' if connecting else 'during the handshake'}"
            )
        if handshake.stage is not WAITING:
            return
        if not connecting:
            self._schedule_heartbeat()
            self._start(self._find_broker(handshake))
        if self._session.phase is Phase.WAITING:
            self._leave(handshake)
        if handshake.full and not self._over and self._session.phase in (Phase.WAITING, Phase.CONNECTING):
            # The rest waits in the socket; the broker will read it.
            client.unwatch()

    def _leave(self, handshake: ClientHandshake) -> None:
        """End the session of a client that does not want to wait for the end of a pause; raises HandshakeFailed."""
        if handshake.leave():
            raise HandshakeFailed(End.CLIENT_CLOSED, "the client closed before Open-Ok")

    def _schedule_heartbeat(self) -> None:
        assert self._handshake is not None
        heartbeat = self._handshake.tune.heartbeat
        if heartbeat:
            self._heartbeat_timer = self._loop.call_later(heartbeat / 2, self._send_heartbeat)

    def _send_heartbeat(self) -> None:
        client = self._session.client_transport
        if not client.full:
            client.send(codec.HEARTBEAT)
        self._schedule_heartbeat()

    # --- the broker's side ------------------------------------------------------------------------------------------

    async def _find_broker(self, handshake: ClientHandshake) -> None:
        session = self._session
        identity = await identify(session, handshake, self._origin)
        session.phase = Phase.WAITING
        if self._host.routing.is_paused(identity.vhost) and self._deadline is not None:
            await self._wait_for_vhost(identity.vhost, handshake, self._deadline)
        assert handshake.credentials is not None
        broker, talk = await open_backend(session, identity, handshake.credentials, handshake.tune, self._ends)
        # Not before: strangers would use the limits up for those who may come in.
        refusal = session.lease.open(identity.vhost, identity.user)
        if refusal is not None:
            broker.send(codec.close(refusal.code, refusal.text))
            broker.close()
            raise HandshakeFailed(End.LIMITED, refusal.text, refusal.code)
        self._task = None
        self.cancel()
        session.client_transport.relinquish()
        session.opened(
            broker,
            talk.tune,
            handshake.tune.frame_max,
            handshake.credentials.blocked_capable,
            bytes(handshake.buffer),
            talk.open_ok + bytes(talk.buffer),
        )

    async def _wait_for_vhost(
        self, vhost: str, handshake: ClientHandshake, deadline: Deadline | asyncio.TimerHandle
    ) -> None:
        """Wait while the vhost is paused, which takes no time off the handshake's deadline. Raises HandshakeFailed."""
        refusal = self._session.lease.wait(vhost)
        if refusal is not None:
            raise HandshakeFailed(End.LIMITED, refusal.text, refusal.code)
        left = deadline.when() - self._loop.time()
        deadline.cancel()
        self._leave(handshake)
        await self._host.routing.unpaused(vhost)
        self._deadline = self._loop.call_later(max(0.0, left), self._late)

    def _ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        raw = self._session.client_transport
        own = ("0.0.0.0", 0)
        if raw.kernel is not None:
            own = raw.kernel.getsockname()[:2]
        elif isinstance(raw, TlsTransport):
            own = raw.own_address()
        return self._origin.address, own
