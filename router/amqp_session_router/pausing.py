"""How the client of an open session is held: nothing is read from it, it knows why, and both connections stay alive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amqp_session_router import wire
from amqp_session_router.model import Phase

if TYPE_CHECKING:
    from amqp_session_router.session import LiveSession

PAUSED_TEXT = "the router has paused this session"


class Pause:
    """The pauses of one session. The broker's heartbeats come through to the client; the broker gets them from here."""

    def __init__(self, session: LiveSession, told: bool = False) -> None:
        """`told`: the client has had a Connection.Blocked, and no Unblocked since."""
        self.told = told
        self._session = session
        self._beat: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The session's phase is PAUSED now."""
        from_client, from_broker = self._session.flows
        from_client.at_boundary(lambda: self._session.phase is Phase.PAUSED)
        if self._session.blocked_capable:
            from_broker.at_boundary(self._send_blocked)
        self._schedule_beat()

    def end(self) -> None:
        """The session's phase is OPEN again."""
        self.cancel()
        self._session.flows[1].at_boundary(self._send_unblocked)

    def cancel(self) -> None:
        """Send no more heartbeats."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _send_blocked(self) -> bool:
        if self._session.phase is Phase.PAUSED and not self.told:
            self.told = True
            self._session.flows[1].inject(wire.blocked(PAUSED_TEXT))
        return False

    def _send_unblocked(self) -> bool:
        if self._session.phase is Phase.OPEN and self.told:
            self.told = False
            self._session.flows[1].inject(wire.UNBLOCKED_FRAME)
        return False

    def _schedule_beat(self) -> None:
        heartbeat = self._session.tune.heartbeat
        if heartbeat and self._session.phase is Phase.PAUSED:
            self._beat = self._session.server.loop.call_later(heartbeat / 2, self._send_beat)

    def _send_beat(self) -> None:
        from_client = self._session.flows[0]
        if from_client.halted and from_client.known_boundary() and from_client.clear:
            from_client.inject(wire.HEARTBEAT)
        self._schedule_beat()
