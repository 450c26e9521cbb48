"""The process that keeps the files of a worker that is being replaced, and stands in for it if it is killed.

It shares that worker's table of descriptors (clone(2) with CLONE_FILES), as the supervisor does with the newest worker:
however the worker dies, its sockets and pipes stay open here, and its journal says of them. If it ends before it has
left in order, its successor, or a later one, asks here for what it has not got yet. Sessions are given as they stand in
the journal; no byte is moved here.
"""

from __future__ import annotations

import ctypes
import select
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

_PR_SET_PDEATHSIG = 1
NAME = "keeper"
"""What the process is called in lists of processes (its `comm`)."""


def keep(worker: int, line: int, journal: int, store: int) -> None:
    """Wait for the end of a worker, and stand in for it if it did not leave in order.

    All are descriptors in its table: the worker's own (pidfd), its end of the line to a successor, its journal, and the
    last good configuration. Raises OSError.
    """
    # Without the supervisor nobody would start a successor that could ask.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    waiting = select.poll()
    waiting.register(worker, select.POLLIN)
    waiting.poll()
    from amqp_session_router.relay.journal import LEFT, PROGRESS, Journal

    book = Journal(journal)
    if book.cells[PROGRESS] != LEFT:
        _StandIn(socket.socket(fileno=line), book, store).serve()


class _StandIn:
    """Answers a successor in the place of a worker that is dead."""

    def __init__(self, line: socket.socket, book: Any, store: int) -> None:
        from amqp_session_router.process.config_store import ConfigStore
        from amqp_session_router.process.recovery import rescue
        from amqp_session_router.relay.pipes import PipePool

        self._line = line
        self._book = book
        self._config = ConfigStore(store)
        self._over = rescue(book, PipePool())
        self._rest: Iterator[tuple[dict[str, Any], list[int]]] | None = None
        """What is to be given yet; None before a successor asked for it."""

    def serve(self) -> None:
        """Answer until all was given; raises OSError."""
        from amqp_session_router.relay.journal import LEAVING, PROGRESS
        from amqp_session_router.session.handover import receive, send

        self._line.setblocking(True)
        if self._book.cells[PROGRESS] == LEAVING:
            # A successor has begun to take, and how far it came is known to it alone.
            send(self._line, {"again": True})
        while (packet := receive(self._line)) is not None:
            asked = packet[0]
            if asked["ask"] == "state":
                found = self._config.load()
                if found is None:
                    return
                running = found[1]
                send(self._line, {"base": running.base, "config": running.config, "paused": running.paused})
                continue
            if asked["ask"] == "go":
                self._rest = self._left({*asked["has"]})
                if not asked["settled"]:
                    for name, host, port, numbers in self._book.saved_listeners():
                        send(self._line, {"listener": [name, host, port]}, numbers)
            # Who took a packet of the dead worker and only then asks for all is no further by that.
            if self._rest is None:
                continue
            facts, numbers = next(self._rest, (None, []))
            if facts is None:
                send(self._line, {"settled": True})
                send(self._line, {"end": True})
                return
            send(self._line, {"sessions": [facts]}, numbers)

    def _left(self, has: set[str]) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield what `Listeners.adopt` goes on from, and the descriptors, of each session that a successor has not."""
        from amqp_session_router.process.recovery import carried

        for one in [*self._book.sessions()]:
            if one.facts["id"] in has:
                continue
            try:
                flows, pipes = carried(self._book, one, self._over)
            except OSError as error:
                print(f"amqp-session-router: session {one.facts['id']} is lost: {error.strerror}", file=sys.stderr)
                continue
            numbers = [one.client, one.broker]
            for flow, pipe in zip(flows, pipes, strict=True):
                if pipe is not None and flow["left"]:
                    numbers += [pipe.read, pipe.write]
            more = {"flows": flows, "paused": one.paused, "blocked_sent": one.blocked_sent, "descriptors": len(numbers)}
            yield one.facts | more, numbers
