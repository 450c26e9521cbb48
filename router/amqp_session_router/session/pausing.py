"""Pausing an open session: its client is sent Connection.Blocked and not read, and both sides get heartbeats."""

from __future__ import annotations

import asyncio
import logging

from amqp_session_router.amqp import codec
from amqp_session_router.base.model import Phase
from amqp_session_router.session.interfaces import SessionStages

log = logging.getLogger(__name__)

PAUSED_TEXT = "the router has paused this session"


class BrokerHeartbeats:
    """Heartbeats to the broker of an open session while its client is not read."""

    def __init__(self, session: SessionStages) -> None:
        self._session = session
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Send one each half interval from now on. Idempotent."""
        heartbeat = self._session.tune.heartbeat
        if heartbeat and self._timer is None:
            self._timer = self._session.host.loop.call_later(heartbeat / 2, self._send)

    def cancel(self) -> None:
        """Send no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self) -> None:
        self._timer = None
        from_client = self._session.flows[0]
        if from_client.halted and from_client.known_boundary() and from_client.clear:
            from_client.inject(codec.HEARTBEAT)
        self.begin()


class Pause:
    """The pauses of one session. The broker's heartbeats reach the client; those to the broker are made here."""

    def __init__(self, session: SessionStages, blocked_sent: bool = False) -> None:
        """`blocked_sent`: the client has had a Connection.Blocked and no Unblocked since."""
        self.blocked_sent = blocked_sent
        self._session = session
        self._heartbeats = BrokerHeartbeats(session)
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The session's phase is PAUSED now."""
        from_client, from_broker = self._session.flows
        from_client.at_boundary(lambda: self._session.phase is Phase.PAUSED)
        host = self._session.host
        self._deadline = host.loop.call_later(host.routing.timeouts.close, self._hold)
        from_broker.heed(True)
        if self._session.blocked_capable:
            from_broker.at_boundary(self._send_blocked)
        self._heartbeats.begin()
        self._session.host.paused(self._session, self.blocked_sent)

    def broker_alarmed(self) -> None:
        """The broker's Blocked or Unblocked has passed: a client that is paused must not go by an Unblocked."""
        from_broker = self._session.flows[1]
        if self._session.phase is Phase.PAUSED and self.blocked_sent and not from_broker.blocked:
            self.blocked_sent = False
            from_broker.at_boundary(self._send_blocked)

    def end(self) -> None:
        """The session's phase is OPEN again."""
        self.cancel()
        self._session.host.paused(self._session, self.blocked_sent)
        self._session.flows[1].at_boundary(self._send_unblocked)

    def cancel(self) -> None:
        """Send no more heartbeats, and wait for no boundary."""
        self._heartbeats.cancel()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hold(self) -> None:
        """Read no more of a client whose frames pass unread and of which no boundary could be proven in time.

        No client may evade a pause by what it sends; the broker gets no heartbeats of it then.
        """
        self._deadline = None
        from_client = self._session.flows[0]
        if self._session.phase is Phase.PAUSED and not from_client.halted and from_client.unproven:
            log.warning("paused inside of a frame", extra={"session": self._session.id})
            from_client.halt()

    def _send_blocked(self) -> bool:
        if self._session.phase is Phase.PAUSED and not self.blocked_sent:
            self.blocked_sent = True
            self._session.host.paused(self._session, self.blocked_sent)
            self._session.flows[1].inject(codec.blocked(PAUSED_TEXT))
        return False

    def _send_unblocked(self) -> bool:
        if self._session.phase is Phase.OPEN and self.blocked_sent:
            from_broker = self._session.flows[1]
            self.blocked_sent = False
            from_broker.heed(False)
            self._session.host.paused(self._session, self.blocked_sent)
            if not from_broker.blocked:
                # Otherwise the broker's own says when its alarm is over.
                from_broker.inject(codec.UNBLOCKED_FRAME)
        return False
