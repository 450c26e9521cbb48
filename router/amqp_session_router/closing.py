"""How an open session is ended by the router: Connection.Close between two frames, then the peers' Close-Ok."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from amqp_session_router import wire
from amqp_session_router.model import CONNECTION_FORCED, End
from amqp_session_router.wires import Wire

if TYPE_CHECKING:
    from amqp_session_router.session import LiveSession


class Closing:
    """The end of one open session, which it brings to `LiveSession.finish`. Begin it once, by one of its ways."""

    def __init__(self, session: LiveSession, how: End, text: str) -> None:
        self._session = session
        self._how = how
        self._text = text
        self._timeout = session.server.routing.timeouts.close
        self._deadline: asyncio.TimerHandle | None = None
        self._waiting_for = 0

    def both_sides(self, code: int) -> None:
        """Close to both, once each stands between two frames."""
        self._waiting_for = 2
        self._until(self._boundary_missed, code)
        for flow in self._session.flows:
            flow.at_boundary(lambda: self._boundary_reached(code))

    def client_only(self) -> None:
        """The broker is lost: tell the client by Close between two frames, else by a reset."""
        session = self._session
        from_client, from_broker = session.flows
        from_client.halt()
        from_broker.halt()
        if not from_broker.known_boundary():
            self._cut()
            return
        name = session.backend.name if session.backend is not None else ""
        from_broker.inject(wire.close(CONNECTION_FORCED, f"{self._text} (backend {name})"))
        self._part_with_broker()
        self._wait_for(session.client_wire)

    def cancel(self) -> None:
        """Forget the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _boundary_reached(self, code: int) -> bool:
        self._waiting_for -= 1
        if not self._waiting_for:
            self.cancel()
            # Once both flows stand still: a Close-Ok must not travel on to the other side.
            self._session.server.loop.call_soon(self._close_both, code)
        return True

    def _close_both(self, code: int) -> None:
        session = self._session
        if session.closed:
            return
        from_client, from_broker = session.flows
        assert session.broker_wire is not None
        from_broker.inject(wire.close(code, self._text))
        from_client.inject(wire.close(CONNECTION_FORCED, self._text))
        from_client.halt()
        from_broker.halt()
        self._wait_for(session.client_wire, session.broker_wire)

    def _boundary_missed(self, code: int) -> None:
        """One side is in the middle of a frame and stays there: a Close for the client if it is not the client's."""
        from_client, from_broker = self._session.flows
        if not from_broker.known_boundary():
            self._cut()
            return
        from_client.halt()
        from_broker.halt()
        from_broker.inject(wire.close(code, self._text))
        self._part_with_broker()
        self._wait_for(self._session.client_wire)

    def _part_with_broker(self) -> None:
        session = self._session
        session.flows[0].stop()
        assert session.broker_wire is not None
        session.broker_wire.abort()

    def _wait_for(self, *wires: Wire) -> None:
        """Finish once all of `wires` have said Close-Ok or ended, and after the time-out with a reset."""
        self._waiting_for = len(wires)
        self._until(self._cut)
        for one in wires:
            Drain(one, self._drained)

    def _drained(self) -> None:
        self._waiting_for -= 1
        if not self._waiting_for:
            self._session.finish(self._how, self._text)

    def _cut(self) -> None:
        self._session.finish(self._how, self._text, reset=True)

    def _until(self, act: Callable[..., None], *arguments: int) -> None:
        self.cancel()
        self._deadline = self._session.server.loop.call_later(self._timeout, act, *arguments)


class Drain:
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
