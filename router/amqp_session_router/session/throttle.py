"""Holds the client of an open session to its data rate."""

from __future__ import annotations

import asyncio

from amqp_session_router.base.model import Phase
from amqp_session_router.relay.interfaces import Flow
from amqp_session_router.session.interfaces import SessionStages
from amqp_session_router.session.pausing import BrokerHeartbeats

# As with a handshake's stages: not by its enum.
_OPEN = Phase.OPEN
_UNPROVEN = 1 << 20
"""Bytes in which a client that has used up its data rate comes to a provable frame boundary; else it stops without."""


class Throttle:
    """The limits count the client's bytes by `take`, and it is not read while its data rate is used up."""

    def __init__(self, session: SessionStages) -> None:
        self._session = session
        self._charge = session.lease.take
        self._timer: asyncio.TimerHandle | None = None
        """While the data rate is used up."""
        self._stops_by = 0
        """Total of bytes beyond which a client that has used up its data rate is not read, in a frame or not."""
        self._heartbeats: BrokerHeartbeats | None = None

    @property
    def active(self) -> bool:
        """Whether the data rate is used up."""
        return self._timer is not None

    def take(self, flow: Flow, count: int) -> None:
        """`count` bytes have come from the client by its flow. Hot path."""
        if (wait := self._charge(count)) <= 0:
            return
        session = self._session
        if self._timer is None:
            self._timer = session.host.loop.call_later(wait, self._go_on)
            self._stops_by = flow.total + _UNPROVEN
            if 0 < session.tune.heartbeat < 4 * wait:
                # The broker must hear of the client meanwhile, which it can only between two frames.
                flow.at_boundary(lambda: self._timer is not None)
                self._heartbeats = self._heartbeats or BrokerHeartbeats(session)
                self._heartbeats.begin()
            else:
                flow.halt()
        elif flow.total > self._stops_by and session.phase is _OPEN and not flow.halted:
            # No client may evade its data rate by what it sends; the broker gets no heartbeats of it then.
            flow.halt()

    def _go_on(self) -> None:
        self.cancel()
        session = self._session
        # While somebody waits for a frame boundary, reading goes on in every phase.
        if 0 not in session.ended and (session.phase is _OPEN or session.flows[0].boundary_awaited):
            session.flows[0].start()

    def cancel(self) -> None:
        """Whether the client is read is decided by others from now on. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heartbeats is not None:
            self._heartbeats.cancel()
