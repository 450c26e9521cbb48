"""What follows from what the flows of an open session report: a peer's end, its failure, its Close-Ok, its alarm."""

from __future__ import annotations

import asyncio
from typing import Protocol

from amqp_session_router.amqp import frames
from amqp_session_router.base.model import End, Phase
from amqp_session_router.net.deadlines import Deadline
from amqp_session_router.net.tcp_info import unread
from amqp_session_router.net.transport import Transport
from amqp_session_router.relay.interfaces import Flow
from amqp_session_router.session.interfaces import SessionStages
from amqp_session_router.session.pausing import Pause
from amqp_session_router.session.verdict import clean, close_answered, close_exchanged, verdict

# As with a handshake's stages: not by its enum.
_CLOSING = Phase.CLOSING
_CLIENT_ENDS = 1.0
"""Seconds in which a client that was sent Close-Ok ends its connection; then the session is over all the same."""


class EventfulSession(SessionStages, Protocol):
    """A session, as these events change it."""

    pausing: Pause | None

    def close(self, code: int, text: str, how: End) -> None:
        """Begin to end it with a Close to both sides. Idempotent."""

    def broker_lost(self, text: str, how: End = End.BROKER_LOST) -> None:
        """Begin to end it with a Close to the client."""


class FlowEvents:
    """See `relay.interfaces.FlowOwner`: the owner of one session's flows."""

    __slots__ = ("_deadline", "_session")

    def __init__(self, session: EventfulSession) -> None:
        self._session = session
        self._deadline: Deadline | asyncio.TimerHandle | None = None
        """Until when the end of a session is waited for whose Close was answered."""

    def cancel(self) -> None:
        """Wait for no end any more."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def flow_ended(self, flow: Flow) -> None:
        """End of stream of one side."""
        session = self._session
        session.ended.append(flow.index)
        if session.phase is _CLOSING:
            return
        flows = session.flows
        if len(session.ended) == 2 or (flow.index == 0 and close_exchanged(flows)):
            self._finish()
            return
        closed = clean(flows)
        if flow.index == 1:
            if not closed:
                session.broker_lost("the broker ended the connection")
                return
            other = session.client_transport
        else:
            assert session.broker_transport is not None
            other = session.broker_transport
        other.finish()
        if other.kernel is None:
            # TLS has no half-closed state: nothing can come back, so no event would end the session.
            self._finish()
            return
        if closed and self._deadline is None:
            # After a Close handshake nothing more can come: wait for the end of stream as long as for a Close-Ok.
            self._deadline = session.host.loop.call_later(session.host.routing.timeouts.close, self._finish)

    def flow_failed(self, flow: Flow, at_source: bool, error: OSError) -> None:
        """A socket failed."""
        session = self._session
        if session.phase is _CLOSING:
            return
        of_client = (flow.index == 0) == at_source
        other = session.flows[1 - flow.index]
        if not at_source and not other.halted:
            # A socket that takes no more may still hold a Close to read: the other flow sees its end.
            flow.halt()
            session.ended.append(flow.index)
            return
        why = error.strerror or str(error)
        if clean(session.flows):
            self._finish()
        elif of_client:
            session.finish(End.CLIENT_LOST, f"the client's connection broke: {why}", reset=True)
        else:
            session.broker_lost(f"the broker's connection broke: {why}")

    def flow_frame_too_large(self, flow: Flow, size: int) -> None:
        """The client exceeded the limit of its frames: end the session."""
        flow.halt()
        self._session.close(frames.FRAME_ERROR, f"a frame of {size} bytes is above the limit", End.PROTOCOL_ERROR)

    def flow_alarmed(self, flow: Flow) -> None:
        """The broker's alarm began or ended: see `pausing`."""
        session = self._session
        if flow.index == 1:
            session.host.paused(session, session.pausing is not None and session.pausing.blocked_sent)
            if session.pausing is not None:
                session.pausing.broker_alarmed()

    def flow_close_ok(self, flow: Flow) -> None:
        """Close-Ok: who sent the Close ends the connection (2.2.4). A broker is not waited for. A client is, as brokers
        do: another of its threads may be in a call yet, for which a Close-Ok is an answer and an end of stream is none.
        """
        session = self._session
        if session.phase is _CLOSING or not close_answered(flow, session.flows[1 - flow.index]):
            return
        if flow.index == 0:
            self._finish_if_read(session.broker_transport)
        elif self._deadline is None:
            self._deadline = session.host.deadlines.after(_CLIENT_ENDS, self._client_is_late)

    def _client_is_late(self) -> None:
        self._deadline = None
        if not self._finish_if_read(self._session.client_transport):
            self._deadline = self._session.host.deadlines.after(_CLIENT_ENDS, self._client_is_late)

    def _finish_if_read(self, transport: Transport | None) -> bool:
        """End the session, but not while its peer has sent more than was read: close(2) would send a reset, which could
        overtake the Close-Ok. Returns whether it ended."""
        assert transport is not None and transport.kernel is not None
        if unread(transport.kernel):
            return False
        self._finish()
        return True

    def _finish(self) -> None:
        self._session.finish(*verdict(self._session.flows, self._session.ended))
