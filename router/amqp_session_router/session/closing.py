"""Ending an open session: Connection.Close to the peers between two frames, then their Close-Ok."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from amqp_session_router.amqp import codec
from amqp_session_router.base.model import CONNECTION_FORCED, End
from amqp_session_router.net.transport import Transport
from amqp_session_router.session.interfaces import SessionStages


class Closing:
    """The end of one open session, up to `finish`. Start it once, by `both_sides` or `client_only`."""

    def __init__(self, session: SessionStages, how: End, text: str) -> None:
        self._session = session
        self._how = how
        self._text = text
        self._timeout = session.host.routing.timeouts.close
        self._deadline: asyncio.TimerHandle | None = None
        self._waiting_for = 0

    def both_sides(self, code: int) -> None:
        """Send Close to both peers, once both flows are at a frame boundary."""
        self._waiting_for = 2
        self._until(self._boundary_missed, code)
        for flow in self._session.flows:
            flow.at_boundary(lambda: self._boundary_reached(code))

    def client_only(self) -> None:
        """The broker is lost: send the client a Close at a frame boundary, else reset."""
        session = self._session
        from_client, from_broker = session.flows
        from_client.halt()
        from_broker.halt()
        if not from_broker.known_boundary():
            self._cut()
            return
        name = session.backend.name if session.backend is not None else ""
        from_broker.inject(codec.close(CONNECTION_FORCED, f"{self._text} (backend {name})"))
        self._part_with_broker()
        self._wait_for(session.client_transport)

    def cancel(self) -> None:
        """Forget the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _boundary_reached(self, code: int) -> bool:
        self._waiting_for -= 1
        if not self._waiting_for:
            self.cancel()
            # Only once both flows have stopped: a Close-Ok must not be forwarded to the other side.
            self._session.host.loop.call_soon(self._close_both, code)
        return True

    def _close_both(self, code: int) -> None:
        session = self._session
        if session.closed:
            return
        from_client, from_broker = session.flows
        assert session.broker_transport is not None
        from_broker.inject(codec.close(code, self._text))
        from_client.inject(codec.close(CONNECTION_FORCED, self._text))
        from_client.halt()
        from_broker.halt()
        self._wait_for(session.client_transport, session.broker_transport)

    def _boundary_missed(self, code: int) -> None:
        """One side stays in the middle of a frame: send the client a Close if its own stream is at a boundary."""
        from_client, from_broker = self._session.flows
        if not from_broker.known_boundary():
            self._cut()
            return
        from_client.halt()
        from_broker.halt()
        from_broker.inject(codec.close(code, self._text))
        self._part_with_broker()
        self._wait_for(self._session.client_transport)

    def _part_with_broker(self) -> None:
        session = self._session
        session.flows[0].stop()
        assert session.broker_transport is not None
        session.broker_transport.abort()

    def _wait_for(self, *transports: Transport) -> None:
        """Finish once all of `transports` have sent Close-Ok or ended, and after the time-out with a reset."""
        self._waiting_for = len(transports)
        self._until(self._cut)
        for one in transports:
            Drain(one, self._drained)

    def _drained(self) -> None:
        self._waiting_for -= 1
        if not self._waiting_for:
            self._session.finish(self._how, self._text)

    def _cut(self) -> None:
        self._session.finish(self._how, self._text, reset=True)

    def _until(self, act: Callable[..., None], *arguments: int) -> None:
        self.cancel()
        self._deadline = self._session.host.loop.call_later(self._timeout, act, *arguments)


class Drain:
    """Reads and discards what a peer still sends after our Close, until its Close-Ok or end of stream."""

    def __init__(self, connection: Transport, done: Callable[[], None]) -> None:
        self._connection = connection
        self._done = done
        self._tail = b""
        connection.watch(self._got)

    def _got(self, data: bytes) -> None:
        # The position in the stream may be unknown; a body with these bytes only ends the wait early.
        seen = self._tail + data
        if not data or codec.CLOSE_OK_FRAME in seen:
            self._connection.unwatch()
            self._done()
            return
        close = seen.find(b"\x00\x0a\x00\x32", max(0, len(self._tail) - 4))
        if close >= 7 and seen[close - 7 : close - 4] == b"\x01\x00\x00":
            # Both closed at once (specification 2.2.4): each answers the other.
            self._connection.send(codec.CLOSE_OK_FRAME)
        self._tail = seen[-11:]
