"""Gives the listeners and the open sessions of one process to its successor, in a planned restart."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from amqp_session_router.base.background_tasks import BackgroundTasks
from amqp_session_router.base.model import CONNECTION_FORCED, Phase
from amqp_session_router.net.listening_sockets import close_all
from amqp_session_router.relay.pipes import pipe_of
from amqp_session_router.session import transfer
from amqp_session_router.session.handover import Send
from amqp_session_router.session.listeners import Listeners
from amqp_session_router.session.session import LiveSession
from amqp_session_router.session.session_table import SessionTable

log = logging.getLogger(__name__)

Exported = tuple[LiveSession, dict[str, Any], list[int]]
"""A session that stands still, its state, and its descriptors."""

_AT_ONCE = 40
"""Sessions that stand still together; each has at most six descriptors."""
_RESTARTS = "the router restarts; connect again"


class HandingOver:
    """One hand-over, from its begin on. A few sessions at a time: the others are served here meanwhile."""

    def __init__(
        self, listeners: Listeners, sessions: SessionTable, send: Send, taken: Callable[[], Awaitable[None]]
    ) -> None:
        """`send` sends to the successor; `taken` returns once that has taken what was sent last. Both raise OSError."""
        self._sessions = sessions
        self._send = send
        self._taken = taken
        self._failed = False
        """What has not been given stays with this process."""
        self._withdrawn = listeners.withdraw()
        self._giving = asyncio.Lock()
        self._batch: list[Exported] = []
        self._unacknowledged: list[Exported] = []
        self._exported: set[str] = set()
        """The ids of all that were ever in a batch."""
        self._late = BackgroundTasks()
        sessions.leaving = True
        sessions.on_opened = self._opened_late

    async def give_all(self) -> int:
        """Give the listeners, and the sessions that are open; the rest follow as they open. Returns how many.

        Raises OSError, with the sessions that were not sent going on here.
        """
        await self._give_listeners()
        given = 0
        for session in [*self._sessions.live.values()]:
            if session.phase is Phase.WAITING and self._waits_for_a_pause(session):
                # Only the successor will learn of the end of the pause.
                session.disconnect(CONNECTION_FORCED, _RESTARTS)
            elif session.phase in (Phase.OPEN, Phase.PAUSED) and session.id in self._sessions.live:
                self._export(session)
            if len(self._batch) == _AT_ONCE:
                given += await self._give()
        given += await self._give()
        self._sessions.check_gone()
        return given

    def _waits_for_a_pause(self, session: LiveSession) -> bool:
        identity = session.identity
        return identity is not None and self._sessions.routing.is_paused(identity.vhost)

    async def repeat(self) -> None:
        """Send again what a successor that is dead by now may have got; raises OSError."""
        await self._give_listeners()
        if self._unacknowledged:
            await self._send_sessions(self._unacknowledged)

    def close_listeners(self) -> None:
        """Close the listeners that the successor has now."""
        for opened in self._withdrawn.values():
            close_all(opened.sockets)
        self._withdrawn.clear()

    async def _give_listeners(self) -> None:
        for name, opened in self._withdrawn.items():
            message = {"listener": [name, opened.settings.host, opened.settings.port]}
            await self._send(message, [sock.fileno() for sock in opened.sockets])

    def _export(self, session: LiveSession) -> None:
        """Have a session stand still for the next packet. No effect on one that does: it may have opened while the
        others were given, and is met a second time then."""
        if session.id in self._exported:
            return
        if session.kernel:
            self._exported.add(session.id)
            self._batch.append((session, *transfer.export_session(session)))
        else:
            session.disconnect(CONNECTION_FORCED, _RESTARTS)

    async def _give(self) -> int:
        """Give what was exported, and close it here once it was taken."""
        async with self._giving:
            batch, self._batch = self._batch, []
            if not batch:
                return 0
            try:
                await self._send_sessions(batch)
            except OSError:
                self._failed = True
                self._take_back(batch)
                raise
            self._unacknowledged = batch
            await self._taken()
            self._unacknowledged = []
            for session, _, _ in batch:
                session.handed_over()
            return len(batch)

    async def _send_sessions(self, batch: list[Exported]) -> None:
        facts = [state | {"descriptors": len(numbers)} for _, state, numbers in batch]
        await self._send({"sessions": facts}, [number for _, _, numbers in batch for number in numbers])

    def _take_back(self, batch: list[Exported]) -> None:
        """Go on with sessions that nobody took."""
        # Between its end here and its adoption a session is nowhere: the last one does not count as gone.
        self._sessions.leaving = False
        for session, state, numbers in batch:
            client, broker, *ends = [os.dup(number) for number in numbers]
            pipes = [pipe_of(ends.pop(0), ends.pop(0)) if one["left"] else None for one in state["flows"]]
            backend = session.backend
            assert backend is not None
            session.handed_over()
            self._sessions.adopt(
                state, socket.socket(fileno=client), socket.socket(fileno=broker), backend, (pipes[0], pipes[1])
            )
        self._sessions.leaving = True

    def _opened_late(self, session: LiveSession) -> None:
        self._late.spawn(self._give_late(session))

    async def _give_late(self, session: LiveSession) -> None:
        if not self._failed and session.phase is Phase.OPEN:
            self._export(session)
            try:
                await self._give()
            except OSError as error:
                log.error("a session stays with this process: %s", error, extra={"session": session.id})
