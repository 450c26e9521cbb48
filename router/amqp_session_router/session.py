"""One session: a client's connection, the broker's that was found for it, and what becomes of them once both are open.

How it comes to be open is in `opening`, how the router ends it in `closing`, and how another process gets it in
`succession`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from typing import TYPE_CHECKING

from amqp_session_router import frames, wire
from amqp_session_router.closing import Closing
from amqp_session_router.flow import Flow
from amqp_session_router.model import (
    CONNECTION_FORCED,
    Backend,
    Counters,
    End,
    Identity,
    Lease,
    Listener,
    Phase,
    Route,
    Tune,
)
from amqp_session_router.opening import Opening
from amqp_session_router.pausing import Pause
from amqp_session_router.stream_flow import AnyFlow, StreamFlow
from amqp_session_router.tcp_counts import unread
from amqp_session_router.wires import Wire

if TYPE_CHECKING:
    from amqp_session_router.server import Listeners
_NOT_AGREED = Tune()


class LiveSession:
    """See `model.Session`. Once it is open it lives in callbacks of its flows."""

    def __init__(self, server: Listeners, listener: str, lease: Lease, client_wire: Wire, client: str) -> None:
        self.id = os.urandom(6).hex()
        self.identity: Identity | None = None
        self.route: Route | None = None
        self.backend: Backend | None = None
        self.phase = Phase.HANDSHAKE
        self.listener = listener
        self.client = client
        self.started = time.time()
        self.tune = _NOT_AGREED
        self.blocked_capable = False
        self.server = server
        self.lease = lease
        self.client_wire = client_wire
        self.broker_wire: Wire | None = None
        self.flows: tuple[AnyFlow, ...] = ()
        self.slot: int | None = None
        self.ended: list[int] = []
        """Indices of the flows whose source sent its last byte, in order."""
        self.pausing: Pause | None = None
        self.closed = False
        self._counters = Counters()
        self._opening: Opening | None = None
        self._closing: Closing | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._meter: asyncio.TimerHandle | None = None

    # --- what others read -------------------------------------------------------------------------------------------

    @property
    def counters(self) -> Counters:
        """The session's counters, up to date."""
        counters = self._counters
        if self.flows:
            from_client, from_broker = self.flows
            counters.bytes_from_client, counters.bytes_from_broker = from_client.total, from_broker.total
        return counters

    @property
    def kernel(self) -> bool:
        """Do its bytes outlive this process, in sockets, pipes or the hold?"""
        return bool(self.flows) and isinstance(self.flows[0], Flow)

    # --- from accept() to Open-Ok -----------------------------------------------------------------------------------

    def begin(self, listener: Listener, peer: tuple[str, int], context: ssl.SSLContext | None) -> None:
        """Start the handshake with the client at `peer`."""
        self._opening = Opening(self, listener, peer, context)
        self._opening.begin()

    def opened(self, broker: Wire, tune: Tune, blocked_capable: bool, from_client: bytes, from_broker: bytes) -> None:
        """Open-Ok: from here on the flows have it, what was read already first."""
        self._opening = None
        self.broker_wire = broker
        self.tune = tune
        self.blocked_capable = blocked_capable
        self.make_flows()
        self.phase = Phase.OPEN
        self._counters.handshake_seconds = time.time() - self.started
        self.lease.authenticated()
        self.server.opened(self)
        client_flow, broker_flow = self.flows
        broker_flow.feed(from_broker)
        if from_client:
            client_flow.feed(from_client)
        if not self.closed:
            client_flow.start()
            broker_flow.start()

    def make_flows(self) -> None:
        """Make both flows of the connections that are there."""
        client, broker = self.client_wire, self.broker_wire
        assert broker is not None
        allowed = self.server.limits.largest_frame(self.identity.vhost if self.identity is not None else None)
        agreed = self.tune.frame_max
        most = min(allowed, agreed) if allowed and agreed else allowed or agreed
        if client.kernel is not None and broker.kernel is not None:
            plane, cell = self.server.plane, self.server.cell_of(self)
            channels = self.tune.channel_max
            self.flows = (
                Flow(self, plane, 0, client.kernel, broker.kernel, (most, channels), cell),
                Flow(self, plane, 1, broker.kernel, client.kernel, (agreed, channels), cell),
            )
        else:
            self.flows = (StreamFlow(self, 0, client, broker, most), StreamFlow(self, 1, broker, client, agreed))
        self.flows[0].metered = self.lease.metered

    def go_on(self, paused: bool) -> None:
        """Start what another process began."""
        for flow in self.flows:
            if flow.index not in self.ended and not (paused and flow.index == 0):
                flow.start()
        if paused:
            self.pause()

    # --- what flows tell --------------------------------------------------------------------------------------------

    def flow_moved(self, flow: AnyFlow, count: int) -> None:
        """Charge the limits."""
        if flow.index == 0 and (wait := self.lease.take(count)) > 0 and self._meter is None:
            flow.halt()
            self._meter = self.server.loop.call_later(wait, self._metered)

    def _metered(self) -> None:
        self._meter = None
        # Who waits for the end of a frame must see it come.
        if 0 not in self.ended and (self.phase is Phase.OPEN or self.flows[0].awaited):
            self.flows[0].start()

    def meter(self) -> None:
        """Look again whether the limits want to know of bytes."""
        if self.flows:
            self.flows[0].metered = self.lease.metered

    def flow_frame_too_large(self, flow: AnyFlow, size: int) -> None:
        """End a session of which one side breaks what was agreed."""
        flow.halt()
        side = "client" if flow.index == 0 else "broker"
        self._close(frames.FRAME_ERROR, f"the {side} sent a frame of {size} bytes, above the limit", End.PROTOCOL_ERROR)

    def flow_ended(self, flow: AnyFlow) -> None:
        """One side sent its last byte."""
        self.ended.append(flow.index)
        if self.phase is Phase.CLOSING:
            return
        if len(self.ended) == 2:
            self.finish(*self._verdict())
            return
        if flow.index == 0 and self._taken_leave():
            self.finish(*self._verdict())
            return
        clean = self._clean()
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
            self.finish(*self._verdict())
            return
        if clean and self._deadline is None:
            # The other side has nothing left to say; it has had as long as a Close may take.
            self._deadline = self.server.loop.call_later(
                self.server.routing.timeouts.close, lambda: self.finish(*self._verdict())
            )

    def flow_took_leave(self, flow: AnyFlow) -> None:
        """One side answered a Close: all is said (2.2.4), and the session ends without waiting for theirs."""
        if self.phase is Phase.CLOSING:
            return
        other = self.flows[1 - flow.index]
        sink = self.client_wire if flow.index == 1 else self.broker_wire
        assert sink is not None and sink.kernel is not None
        if other.last_method == wire.CLOSE and other.clear and flow.known_boundary() and not unread(sink.kernel):
            # With bytes unread our close would be a reset, and could overtake the Close-Ok.
            self.finish(*self._verdict())

    def _clean(self) -> bool:
        """Was the last that one of both said a Close or a Close-Ok?"""
        return any(one.last_method in (wire.CLOSE, wire.CLOSE_OK) for one in self.flows)

    def _taken_leave(self) -> bool:
        """Has the client said Close, and the broker's Close-Ok gone out to it? Nothing may follow that (2.2.4)."""
        from_client, from_broker = self.flows
        said = from_client.last_method, from_broker.last_method
        return said == (wire.CLOSE, wire.CLOSE_OK) and from_client.clear and from_broker.clear

    def _verdict(self) -> tuple[End, str]:
        """Return how a session ended that both sides let go."""
        from_client, from_broker = self.flows
        if from_client.last_method == wire.CLOSE:
            return End.CLIENT_CLOSED, ""
        if from_broker.last_method == wire.CLOSE:
            return End.BROKER_CLOSED, ""
        if self.ended[:1] == [1]:
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
            self.ended.append(flow.index)
            return
        why = error.strerror or str(error)
        if self._clean():
            self.finish(*self._verdict())
        elif of_client:
            self.finish(End.CLIENT_LOST, f"the client's connection broke: {why}", reset=True)
        else:
            self._broker_lost(f"the broker's connection broke: {why}")

    # --- what control does ------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading from the client and tell it by Connection.Blocked; keep both sides' heartbeats. Idempotent."""
        if self.phase is not Phase.OPEN:
            return
        self.phase = Phase.PAUSED
        if self.pausing is None:
            self.pausing = Pause(self)
        self.pausing.begin()

    def unpause(self) -> None:
        """Read again, Connection.Unblocked. Idempotent."""
        if self.phase is not Phase.PAUSED:
            return
        self.phase = Phase.OPEN
        assert self.pausing is not None
        self.pausing.end()
        if self.phase is Phase.OPEN and self._meter is None and 0 not in self.ended:
            self.flows[0].start()

    def disconnect(self, code: int, text: str) -> None:
        """End it gracefully: Connection.Close to both sides on a frame boundary, RST where there is none."""
        if self._opening is not None:
            self._opening.interrupt(End.ROUTER_CLOSED, text, code)
        else:
            self._close(code, text, End.ROUTER_CLOSED)

    def force(self) -> None:
        """Cut both sockets at once."""
        self.finish(End.ROUTER_CLOSED, "cut by the router's operator", reset=True)

    def disconnect_backend(self) -> None:
        """Cut the broker's side at once; the client gets a Close with a reason."""
        if self._opening is not None:
            self._opening.interrupt(End.ROUTER_CLOSED, "cut by the router's operator", CONNECTION_FORCED)
        elif self.phase is not Phase.CLOSING:
            self._broker_lost("the router's operator cut the connection to the broker", End.ROUTER_CLOSED)

    # --- the end ----------------------------------------------------------------------------------------------------

    def relieved(self) -> None:
        """A successor has it."""
        self.finish(End.HANDED_OVER)

    def _close(self, code: int, text: str, how: End) -> None:
        if self.phase is Phase.CLOSING:
            return
        if self._meter is not None and 0 not in self.ended:
            # It stands where its data rate was used up, which may be in the middle of a frame.
            self.flows[0].start()
        self._begin_closing(how, text).both_sides(code)

    def _broker_lost(self, text: str, how: End = End.BROKER_LOST) -> None:
        self._begin_closing(how, text).client_only()

    def _begin_closing(self, how: End, text: str) -> Closing:
        self.phase = Phase.CLOSING
        self._cancel_timers()
        self._closing = Closing(self, how, text)
        return self._closing

    def _cancel_timers(self) -> None:
        for timer in (self._deadline, self._meter):
            if timer is not None:
                timer.cancel()
        self._deadline = self._meter = None
        if self.pausing is not None:
            self.pausing.cancel()

    def finish(self, how: End, text: str = "", reset: bool = False) -> None:
        """It is over. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self.phase = Phase.CLOSING
        self._cancel_timers()
        for stage in (self._opening, self._closing):
            if stage is not None:
                stage.cancel()
        self._opening = None
        self._counters = self.counters
        self.server.strike(self)
        for flow in self.flows:
            flow.stop()
        for connection in (self.client_wire, self.broker_wire):
            if connection is not None:
                if reset:
                    connection.abort()
                else:
                    connection.close()
        # Nothing here refers to itself in a circle: it is gone without the collector.
        self.flows, self.pausing, self._closing = (), None, None
        self.lease.release()
        self.server.closed(self, how, text)
