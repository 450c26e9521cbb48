"""One session: the client's connection, the broker's connection, and their flows once both are open.

The handshake is in `opening`, the end by a peer in `flow_events`, the end by the router in `closing`, the data rate in
`throttle`, the move to another process in `transfer`.
"""

from __future__ import annotations

import os
import ssl
import time
from typing import NamedTuple, Protocol

from amqp_session_router.base.model import (
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
from amqp_session_router.net.transport import Transport
from amqp_session_router.relay.interfaces import Flow
from amqp_session_router.relay.splice_flow import SpliceFlow
from amqp_session_router.session.closing import Closing
from amqp_session_router.session.flow_events import FlowEvents
from amqp_session_router.session.flow_factory import make_flows
from amqp_session_router.session.interfaces import SessionHost
from amqp_session_router.session.opening import Opening
from amqp_session_router.session.pausing import Pause
from amqp_session_router.session.throttle import Throttle

# As with a handshake's stages: not by their enum.
_HANDSHAKE, _OPEN, _PAUSED, _CLOSING = Phase.HANDSHAKE, Phase.OPEN, Phase.PAUSED, Phase.CLOSING
_NOT_AGREED = Tune()


class DirectionState(NamedTuple):
    """The state of one direction that comes from another process: bytes left of its frame (or `journal.UNKNOWN`), the
    journal's word for its pipe (0: none), and the bytes that were read and not yet written."""

    rest: int = 0
    pipe: int = 0
    in_flight: int = 0


_NOTHING_INHERITED = DirectionState(), DirectionState()


class Host(SessionHost, Protocol):
    """What a live session needs of its listeners besides what its stages need."""

    def cell_of(self, session: LiveSession) -> int:
        """Enter the session in the journal, unless it is there; return the index of its first cell."""

    def remove_from_journal(self, session: LiveSession) -> None:
        """The session's descriptors are about to be closed."""

    def opened(self, session: LiveSession) -> None:
        """Open-Ok is on its way to the client."""

    def closed(self, session: LiveSession, how: End, text: str) -> None:
        """The session is over."""


class LiveSession:
    """See `model.Session`. Once open it is driven by the callbacks of its flows."""

    def __init__(self, host: Host, listener: str, lease: Lease, client_transport: Transport, client: str) -> None:
        self.id = os.urandom(6).hex()
        self.identity: Identity | None = None
        self.route: Route | None = None
        self.backend: Backend | None = None
        self.phase = _HANDSHAKE
        self.listener = listener
        self.client = client
        self.started = time.time()
        self.tune = _NOT_AGREED
        self.blocked_capable = False
        self.host = host
        self.lease = lease
        self.client_transport = client_transport
        self.broker_transport: Transport | None = None
        self.flows: tuple[Flow, ...] = ()
        self.slot: int | None = None
        self.inherited = _NOTHING_INHERITED
        """What each direction brought along when the session was entered in the journal."""
        self.ended: list[int] = []
        self.pausing: Pause | None = None
        self.closed = False
        self._counters = Counters()
        self._opening: Opening | None = None
        self._events: FlowEvents | None = None
        self._throttle: Throttle | None = None
        self._closing: Closing | None = None

    # --- state ------------------------------------------------------------------------------------------------------

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
        """Whether its bytes outlive this process: in sockets, pipes or the staging area."""
        return bool(self.flows) and isinstance(self.flows[0], SpliceFlow)

    # --- from accept() to Open-Ok -----------------------------------------------------------------------------------

    def begin(self, listener: Listener, peer: tuple[str, int], context: ssl.SSLContext | None) -> None:
        """Start the handshake with the client at `peer`."""
        self._opening = Opening(self, listener, peer, context)
        self._opening.begin()

    def opened(
        self,
        broker: Transport,
        tune: Tune,
        client_frame_max: int,
        blocked_capable: bool,
        from_client: bytes,
        from_broker: bytes,
    ) -> None:
        """See `interfaces.SessionStages`."""
        self._opening = None
        self.broker_transport = broker
        self.tune = tune
        self.blocked_capable = blocked_capable
        self.make_flows(client_frame_max)
        self.phase = _OPEN
        self._counters.handshake_seconds = time.time() - self.started
        self.lease.authenticated()
        self.host.opened(self)
        client_flow, broker_flow = self.flows
        broker_flow.feed(from_broker)
        if from_client:
            client_flow.feed(from_client)
        if not self.closed:
            client_flow.start()
            broker_flow.start()

    def make_flows(self, client_frame_max: int) -> None:
        """Make both flows; `client_frame_max`: bytes of a frame that the client was offered (0: no limit)."""
        self._events = FlowEvents(self)
        self.flows = make_flows(self, self._events, client_frame_max, lambda: self.host.cell_of(self))
        self.meter()

    def resume(self, paused: bool) -> None:
        """Start the flows of a session that another process had."""
        for flow in self.flows:
            if flow.index not in self.ended and not (paused and flow.index == 0):
                flow.start()
        if paused:
            self.pause()
        elif self.pausing is not None:
            # The pause ended while no process was there that could send the client its Unblocked.
            self.pausing.end()

    # --- watched by `dead_peers` ------------------------------------------------------------------------------------

    @property
    def ends(self) -> tuple[Transport, ...]:
        """See `dead_peers.WatchedSession`."""
        if self.phase not in (_OPEN, _PAUSED) or self.broker_transport is None:
            return ()
        return self.client_transport, self.broker_transport

    def peer_dead(self, transport: Transport, seconds: float) -> None:
        """See `dead_peers.WatchedSession`."""
        if transport is self.client_transport:
            text = f"the client acknowledges nothing since {seconds:.0f} s"
            self.finish(End.CLIENT_LOST, text, reset=True)
        else:
            self.broker_lost(f"the broker acknowledges nothing since {seconds:.0f} s")

    # --- called by control ------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading from the client and send it Connection.Blocked; heartbeats to both sides go on. Idempotent."""
        if self.phase is not _OPEN:
            return
        self.phase = _PAUSED
        if self.pausing is None:
            self.pausing = Pause(self)
        self.pausing.begin()

    def unpause(self) -> None:
        """Read again, Connection.Unblocked. Idempotent."""
        if self.phase is not _PAUSED:
            return
        self.phase = _OPEN
        assert self.pausing is not None
        self.pausing.end()
        if self.phase is _OPEN and not self._throttled and 0 not in self.ended:
            self.flows[0].start()

    def meter(self) -> None:
        """Check again whether the limits count bytes."""
        if not self.flows:
            return
        if not self.lease.metered:
            self.flows[0].meter = None
            return
        self._throttle = self._throttle or Throttle(self)
        self.flows[0].meter = self._throttle.take

    def disconnect(self, code: int, text: str) -> None:
        """End it gracefully: Connection.Close to both sides on a frame boundary, RST where there is none."""
        if self._opening is not None:
            self._opening.interrupt(End.ROUTER_CLOSED, text, code)
        else:
            self.close(code, text, End.ROUTER_CLOSED)

    def force(self) -> None:
        """Cut both sockets at once."""
        self.finish(End.ROUTER_CLOSED, "cut by the router's operator", reset=True)

    def disconnect_backend(self) -> None:
        """Cut the broker's side at once; the client gets a Close with a reason."""
        if self._opening is not None:
            self._opening.interrupt(End.ROUTER_CLOSED, "cut by the router's operator", CONNECTION_FORCED)
        elif self.phase is not _CLOSING:
            self.broker_lost("the router's operator cut the connection to the broker", End.ROUTER_CLOSED)

    # --- the end ----------------------------------------------------------------------------------------------------

    def handed_over(self) -> None:
        """Another process has the session now."""
        self.finish(End.HANDED_OVER)

    @property
    def _throttled(self) -> bool:
        return self._throttle is not None and self._throttle.active

    def close(self, code: int, text: str, how: End) -> None:
        """Begin to end it with a Close to both sides. Idempotent."""
        if self.phase is _CLOSING:
            return
        if self._throttled and 0 not in self.ended:
            # The data rate may have stopped it in the middle of a frame.
            self.flows[0].start()
        self._begin_closing(how, text).both_sides(code)

    def broker_lost(self, text: str, how: End = End.BROKER_LOST) -> None:
        """Begin to end it with a Close to the client."""
        self._begin_closing(how, text).client_only()

    def _begin_closing(self, how: End, text: str) -> Closing:
        self.phase = _CLOSING
        self._cancel_timers()
        self._closing = Closing(self, how, text)
        return self._closing

    def _cancel_timers(self) -> None:
        for one in (self._events, self._throttle, self.pausing):
            if one is not None:
                one.cancel()

    def finish(self, how: End, text: str = "", reset: bool = False) -> None:
        """End the session; with `reset` by RST. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self.phase = _CLOSING
        self._cancel_timers()
        for stage in (self._opening, self._closing):
            if stage is not None:
                stage.cancel()
        self._opening = None
        self._counters = self.counters
        self.host.remove_from_journal(self)
        for flow in self.flows:
            flow.stop()
        for connection in (self.client_transport, self.broker_transport):
            if connection is not None:
                if reset:
                    connection.abort()
                else:
                    connection.close()
        # Break reference cycles, so that the session is freed without the garbage collector.
        self.flows, self.pausing = (), None
        self._events = self._throttle = self._closing = None
        self.lease.release()
        self.host.closed(self, how, text)
