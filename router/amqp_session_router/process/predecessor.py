"""The predecessor's side of a planned restart: it answers its successor, gives it everything, and leaves."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from amqp_session_router.base.background_tasks import BackgroundTasks
from amqp_session_router.control import saved_state
from amqp_session_router.relay.journal import LEAVING, LEFT, PROGRESS, Journal
from amqp_session_router.session.handing_over import HandingOver
from amqp_session_router.session.handover import TIMEOUT, receive, say, send_when_possible
from amqp_session_router.session.listeners import Listeners
from amqp_session_router.session.session_table import SessionTable

log = logging.getLogger(__name__)


class Predecessor:
    """Any worker, once a successor asks. If that is killed, another one asks again."""

    def __init__(
        self,
        line: socket.socket,
        journal: Journal,
        listeners: Listeners,
        sessions: SessionTable,
        running: Callable[[], saved_state.Running],
        retire: Callable[[], Awaitable[None]],
    ) -> None:
        """`line`: where a successor asks; `running`: returns what control changed; `retire`: stops what a successor
        needs the addresses and files of."""
        self._line = line
        self._journal = journal
        self._listeners = listeners
        self._sessions = sessions
        self._running = running
        self._retire = retire
        self._handing_over: HandingOver | None = None
        self._taken = asyncio.Event()
        self._settled = False
        """Whether all was retired that a successor needs."""
        self._left = asyncio.Event()
        self._tasks = BackgroundTasks()

    @property
    def relieved(self) -> bool:
        """Whether a successor has begun to take over."""
        return self._handing_over is not None

    async def left(self) -> None:
        """Return once nothing is left here."""
        await self._left.wait()

    def answer(self) -> None:
        """Answer successors from here on."""
        self._line.setblocking(False)
        asyncio.get_running_loop().add_reader(self._line.fileno(), self._asked)

    def _asked(self) -> None:
        try:
            packet = receive(self._line)
        except BlockingIOError:
            return
        if packet is None:
            asyncio.get_running_loop().remove_reader(self._line.fileno())
            return
        match packet[0]["ask"]:
            case "state":
                running = self._running()
                state = {"base": running.base, "config": running.config, "paused": running.paused}
                self._tasks.spawn(say(self._line, state))
            case "go":
                self._go()
            case "more":
                self._taken.set()

    def _go(self) -> None:
        """Begin to give; to another successor, after the first one died, what that may have got."""
        if self._handing_over is not None:
            self._tasks.spawn(self._repeat(self._handing_over))
            return
        self._journal.cells[PROGRESS] = LEAVING
        self._handing_over = HandingOver(self._listeners, self._sessions, self._give, self._taken_over)
        self._tasks.spawn(self._leave(self._handing_over))

    async def _repeat(self, handing_over: HandingOver) -> None:
        try:
            await handing_over.repeat()
            if self._settled:
                await self._give({"settled": True})
        except OSError as error:
            log.error("the handover failed: %s", error)

    async def _give(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        await send_when_possible(self._line, message, descriptors)

    async def _taken_over(self) -> None:
        """Return when the successor has taken the last packet of sessions; raises TimeoutError."""
        async with asyncio.timeout(TIMEOUT):
            await self._taken.wait()
        self._taken.clear()

    async def _leave(self, handing_over: HandingOver) -> None:
        """Give everything away, and stop what the successor needs the addresses and files of."""
        try:
            given = await handing_over.give_all()
            log.info("handed over", extra={"sessions": given})
        except OSError as error:
            log.error("the handover failed: %s", error or "no answer", extra={"sessions": len(self._sessions.live)})
        await self._retire()
        self._settled = True
        await say(self._line, {"settled": True})
        handing_over.close_listeners()
        # Handshakes under way end in time by themselves; TLS sessions were sent a Close.
        await self._sessions.gone.wait()
        await say(self._line, {"end": True})
        self._journal.cells[PROGRESS] = LEFT
        self._left.set()
