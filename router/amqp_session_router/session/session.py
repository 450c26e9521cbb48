"""One session: the client's connection, the broker's connection, and their flows once both are open.

The handshake is in `opening`, the end by the router in `closing`, the move to another process in `transfer`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from typing import NamedTuple, Protocol

from amqp_session_router.amqp import codec, frames
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
from amqp_session_router.net.deadlines import Deadline
from amqp_session_router.net.tcp_info import unread
from amqp_session_router.net.transport import Transport
from amqp_session_router.relay.buffered_flow import BufferedFlow
from amqp_session_router.relay.interfaces import Flow
from amqp_session_router.relay.splice_flow import SpliceFlow
from amqp_session_router.relay.splitting_flow import SplittingFlow
from amqp_session_router.session.closing import Closing
from amqp_session_router.session.interfaces import SessionHost
from amqp_session_router.session.opening import Opening
from amqp_session_router.session.pausing import BrokerHeartbeats, Pause

# As with a handshake's stages: not by their enum.
_HANDSHAKE, _OPEN, _PAUSED, _CLOSING = Phase.HANDSHAKE, Phase.OPEN, Phase.PAUSED, Phase.CLOSING
_NOT_AGREED = Tune()
_UNPROVEN = 1 << 20
"""Bytes in which a client that has used up its data rate comes to a provable frame boundary; else it stops without."""
_CLIENT_ENDS = 1.0
"""Seconds in which a client that was sent Close-Ok ends its connection; then the session is over all the same."""


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
        """Indices of the flows whose source sent its last byte, in order."""
        self.pausing: Pause | None = None
        self._pacing: BrokerHeartbeats | None = None
        """While the data rate is used up."""
        self.closed = False
        self._counters = Counters()
        self._opening: Opening | None = None
        self._closing: Closing | None = None
        self._deadline: Deadline | asyncio.TimerHandle | None = None
        self._meter: asyncio.TimerHandle | None = None
        self._stops_by = 0
        """Total of bytes beyond which a client that has used up its data rate is not read, in a frame or not."""

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
        client, broker = self.client_transport, self.broker_transport
        assert broker is not None
        allowed = self.host.limits.largest_frame(self.identity.vhost if self.identity is not None else None)
        agreed = self.tune.frame_max
        if allowed and agreed and allowed >= agreed:
            # What both sides agreed to the broker holds itself, in its own words.
            allowed = 0
        if agreed and (not client_frame_max or client_frame_max > agreed):
            self.flows = (
                SplittingFlow(self, client, broker, agreed, allowed),
                BufferedFlow(self, 1, broker, client, 0),
            )
        elif client.kernel is not None and broker.kernel is not None:
            relay, cell = self.host.relay, self.host.cell_of(self)
            channels = self.tune.channel_max
            self.flows = (
                SpliceFlow(self, relay, 0, client.kernel, broker.kernel, (agreed, channels), cell, allowed),
                SpliceFlow(self, relay, 1, broker.kernel, client.kernel, (agreed, channels), cell),
            )
            self.flows[0].heed(bool(allowed))
        else:
            self.flows = (BufferedFlow(self, 0, client, broker, allowed), BufferedFlow(self, 1, broker, client, 0))
        self.flows[0].meter = self.flow_moved if self.lease.metered else None

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

    # --- called by the flows ----------------------------------------------------------------------------------------

    def flow_moved(self, flow: Flow, count: int) -> None:
        """Charge the limits."""
        if (wait := self.lease.take(count)) <= 0:
            return
        if self._meter is None:
            self._meter = self.host.loop.call_later(wait, self._metered)
            self._stops_by = flow.total + _UNPROVEN
            if 0 < self.tune.heartbeat < 4 * wait:
                # The broker must hear of the client meanwhile, which it can only between two frames.
                flow.at_boundary(lambda: self._meter is not None)
                self._pacing = self._pacing or BrokerHeartbeats(self)
                self._pacing.begin()
            else:
                flow.halt()
        elif flow.total > self._stops_by and self.phase is _OPEN and not flow.halted:
            # No client may evade its data rate by what it sends; the broker gets no heartbeats of it then.
            flow.halt()

    def _metered(self) -> None:
        self._meter = None
        if self._pacing is not None:
            self._pacing.cancel()
        # While somebody waits for a frame boundary, reading goes on in every phase.
        if 0 not in self.ended and (self.phase is _OPEN or self.flows[0].boundary_awaited):
            self.flows[0].start()

    def meter(self) -> None:
        """Check again whether the limits count bytes."""
        if self.flows:
            self.flows[0].meter = self.flow_moved if self.lease.metered else None

    def flow_frame_too_large(self, flow: Flow, size: int) -> None:
        """The client exceeded the limit of its frames: end the session."""
        flow.halt()
        self._close(frames.FRAME_ERROR, f"a frame of {size} bytes is above the limit", End.PROTOCOL_ERROR)

    def flow_ended(self, flow: Flow) -> None:
        """End of stream of one side."""
        self.ended.append(flow.index)
        if self.phase is _CLOSING:
            return
        if len(self.ended) == 2:
            self.finish(*self._verdict())
            return
        if flow.index == 0 and self._close_exchanged():
            self.finish(*self._verdict())
            return
        clean = self._clean()
        if flow.index == 1:
            if not clean:
                self._broker_lost("the broker ended the connection")
                return
            other = self.client_transport
        else:
            assert self.broker_transport is not None
            other = self.broker_transport
        other.finish()
        if other.kernel is None:
            # TLS has no half-closed state: nothing can come back, so no event would end the session.
            self.finish(*self._verdict())
            return
        if clean and self._deadline is None:
            # After a Close handshake nothing more can come: wait for the end of stream as long as for a Close-Ok.
            self._deadline = self.host.loop.call_later(
                self.host.routing.timeouts.close, lambda: self.finish(*self._verdict())
            )

    def flow_alarmed(self, flow: Flow) -> None:
        """The broker's alarm began or ended: see `pausing`."""
        if flow.index == 1:
            self.host.paused(self, self.pausing is not None and self.pausing.blocked_sent)
            if self.pausing is not None:
                self.pausing.broker_alarmed()

    def flow_close_ok(self, flow: Flow) -> None:
        """Close-Ok: who sent the Close ends the connection (2.2.4). A broker is not waited for. A client is, as brokers
        do: another of its threads may be in a call yet, for which a Close-Ok is an answer and an end of stream is none.
        """
        if self.phase is _CLOSING:
            return
        other = self.flows[1 - flow.index]
        if other.last_method != codec.CLOSE or not other.clear or not flow.known_boundary():
            return
        if flow.index == 0:
            self._finish_if_read(self.broker_transport)
        elif self._deadline is None:
            self._deadline = self.host.deadlines.after(_CLIENT_ENDS, self._client_is_late)

    def _client_is_late(self) -> None:
        self._deadline = None
        if not self._finish_if_read(self.client_transport):
            self._deadline = self.host.deadlines.after(_CLIENT_ENDS, self._client_is_late)

    def _finish_if_read(self, transport: Transport | None) -> bool:
        """End the session, but not while its peer has sent more than was read: close(2) would send a reset, which could
        overtake the Close-Ok. Returns whether it ended."""
        assert transport is not None and transport.kernel is not None
        if unread(transport.kernel):
            return False
        self.finish(*self._verdict())
        return True

    def _clean(self) -> bool:
        """Return whether the last method of either side was Close or Close-Ok."""
        return any(one.last_method in (codec.CLOSE, codec.CLOSE_OK) for one in self.flows)

    def _close_exchanged(self) -> bool:
        """Return whether the client sent Close and was sent the broker's Close-Ok: nothing may follow (2.2.4)."""
        from_client, from_broker = self.flows
        said = from_client.last_method, from_broker.last_method
        return said == (codec.CLOSE, codec.CLOSE_OK) and from_client.clear and from_broker.clear

    def _verdict(self) -> tuple[End, str]:
        """Return how a session ended that both sides closed."""
        from_client, from_broker = self.flows
        if from_client.last_method == codec.CLOSE:
            return End.CLIENT_CLOSED, ""
        if from_broker.last_method == codec.CLOSE:
            return End.BROKER_CLOSED, ""
        if self.ended[:1] == [1]:
            return End.BROKER_LOST, "the broker ended the connection without a Close"
        return End.CLIENT_LOST, "the client ended the connection without a Close"

    def flow_failed(self, flow: Flow, at_source: bool, error: OSError) -> None:
        """A socket failed."""
        if self.phase is _CLOSING:
            return
        of_client = (flow.index == 0) == at_source
        other = self.flows[1 - flow.index]
        if not at_source and not other.halted:
            # A socket that takes no more may still hold a Close to read: the other flow sees its end.
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
            self._broker_lost(f"the broker acknowledges nothing since {seconds:.0f} s")

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
        if self.phase is _OPEN and self._meter is None and 0 not in self.ended:
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
        elif self.phase is not _CLOSING:
            self._broker_lost("the router's operator cut the connection to the broker", End.ROUTER_CLOSED)

    # --- the end ----------------------------------------------------------------------------------------------------

    def handed_over(self) -> None:
        """Another process has the session now."""
        self.finish(End.HANDED_OVER)

    def _close(self, code: int, text: str, how: End) -> None:
        if self.phase is _CLOSING:
            return
        if self._meter is not None and 0 not in self.ended:
            # The data rate may have stopped it in the middle of a frame.
            self.flows[0].start()
        self._begin_closing(how, text).both_sides(code)

    def _broker_lost(self, text: str, how: End = End.BROKER_LOST) -> None:
        self._begin_closing(how, text).client_only()

    def _begin_closing(self, how: End, text: str) -> Closing:
        self.phase = _CLOSING
        self._cancel_timers()
        self._closing = Closing(self, how, text)
        return self._closing

    def _cancel_timers(self) -> None:
        for timer in (self._deadline, self._meter):
            if timer is not None:
                timer.cancel()
        self._deadline = self._meter = None
        if self._pacing is not None:
            self._pacing.cancel()
        if self.pausing is not None:
            self.pausing.cancel()

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
        self.flows, self.pausing, self._pacing, self._closing = (), None, None, None
        self.lease.release()
        self.host.closed(self, how, text)
