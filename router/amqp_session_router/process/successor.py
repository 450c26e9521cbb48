"""The successor's side of a planned restart: it asks the process before it for everything."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from amqp_session_router.base.background_tasks import BackgroundTasks
from amqp_session_router.base.errors import RouterError
from amqp_session_router.control import saved_state
from amqp_session_router.process.adoption import BackendOf, adopt_sent
from amqp_session_router.process.descriptors import close_all
from amqp_session_router.process.shared_memory import SharedMemory
from amqp_session_router.relay.journal import PROGRESS, RELIEVED, TAKING_OVER, Journal
from amqp_session_router.session.handover import TIMEOUT, receive, say, send
from amqp_session_router.session.listeners import Listeners
from amqp_session_router.session.session_table import SessionTable


def running_of(predecessor: socket.socket) -> saved_state.Running:
    """Ask a predecessor what control changed; raises RouterError if it does not answer in time."""
    predecessor.settimeout(TIMEOUT)
    try:
        send(predecessor, {"ask": "state"})
        # What was meant for a successor that is dead may come first.
        while (answer := receive(predecessor)) is not None and "base" not in answer[0]:
            close_all(answer[1])
    except OSError as error:
        raise RouterError(f"the process to relieve does not answer: {error}") from None
    if answer is None:
        raise RouterError("the process to relieve is gone")
    return saved_state.Running(answer[0]["base"], answer[0]["config"], tuple(answer[0]["paused"]))


class Successor:
    """Takes over from a predecessor, or from the keeper that stands in for it. What came is served at once, while the
    rest comes."""

    def __init__(
        self,
        line: socket.socket,
        journal: Journal,
        shared: SharedMemory,
        listeners: Listeners,
        sessions: SessionTable,
        backend_of: BackendOf,
    ) -> None:
        """`line`: where the predecessor answers."""
        self._line: socket.socket | None = line
        self._journal = journal
        self._shared = shared
        self._listeners = listeners
        self._sessions = sessions
        self._backend_of = backend_of
        self._settled = asyncio.Event()
        """Set once the predecessor keeps nothing that the listeners or endpoints need."""
        self._tasks = BackgroundTasks()

    async def take_over(self) -> None:
        """Ask for everything; returns once the predecessor keeps nothing that the listeners or endpoints need."""
        line = self._line
        assert line is not None
        line.setblocking(False)
        # From here on the supervisor must not go back to the predecessor.
        self._journal.cells[PROGRESS] = TAKING_OVER
        self._go(line)
        asyncio.get_running_loop().add_reader(line.fileno(), self._heard)
        # If the peer exits with data unread, the socket reports an error and asyncio delivers no more events.
        self._sessions.relay.poller.watch(line.fileno(), self)
        await self._settled.wait()

    def _go(self, line: socket.socket) -> None:
        """Ask for all that is not here yet."""
        ask = {"ask": "go", "has": [*self._sessions.live], "settled": self._settled.is_set()}
        self._tasks.spawn(say(line, ask))

    def drain_on_error(self) -> None:
        """The predecessor is gone: read all that it sent before."""
        while self._heard():
            pass

    def _heard(self) -> bool:
        """Take in one packet; sessions that were in their handshake come when that is done. False: there is none."""
        line = self._line
        if line is None:
            return False
        try:
            packet = receive(line)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        if packet is None or packet[0].get("end"):
            self._over(line)
            return False
        message, descriptors = packet
        if message.get("settled"):
            self._settled.set()
        elif message.get("again"):
            # It was killed; its keeper does not know what it had given.
            self._go(line)
        else:
            self._take(message, descriptors)
            if "sessions" in message:
                self._tasks.spawn(say(line, {"ask": "more"}))
        return True

    def _over(self, line: socket.socket) -> None:
        """The predecessor has ended, with nothing left."""
        asyncio.get_running_loop().remove_reader(line.fileno())
        self._sessions.relay.poller.leave(line.fileno())
        # The supervisor has the same descriptor: it must not hand this closed number to a later worker.
        self._journal.cells[RELIEVED] = 1
        line.close()
        self._line = None
        self._settled.set()
        self._shared.predecessor_gone()

    def _take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Take a listener, or sessions."""
        if "listener" in message:
            name, host, port = message["listener"]
            self._listeners.inherit(name, host, port, [socket.socket(fileno=number) for number in descriptors])
        for facts in message.get("sessions", ()):
            own, descriptors = descriptors[: facts["descriptors"]], descriptors[facts["descriptors"] :]
            if facts["id"] in self._sessions.live:
                # Sent a second time after the first successor died: what the journal had of it is newer.
                close_all(own)
            else:
                adopt_sent(self._sessions, self._backend_of, facts, own)
