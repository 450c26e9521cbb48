"""What keeps the files of a worker that is being replaced, and stands in for it if it is killed.

The supervisor makes a process that shares that worker's table of descriptors (clone(2) with CLONE_FILES), as it shares
the newest worker's itself: however the worker dies, its sockets and pipes stay open there, and its journal says of
them. If it ends before it has left in order, its successor, or a later one, asks here for what it has not got yet.
Sessions are given as they stand in the journal; no byte is moved.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Any

from amqp_session_router.process.config_store import ConfigStore
from amqp_session_router.process.recovery import recovered, rescue
from amqp_session_router.relay.journal import LEAVING, LEFT, PROGRESS, Journal
from amqp_session_router.relay.pipes import PipePool
from amqp_session_router.session.handover import receive, send


def stand_in(line: int, journal: int, store: int) -> None:
    """Stand in for a worker that has ended, if it did not leave in order.

    All are descriptors in its table: its end of the line to a successor, its journal, and the last good configuration.
    Raises OSError.
    """
    found = Journal(journal)
    if found.cells[PROGRESS] != LEFT:
        _StandIn(socket.socket(fileno=line), found, store).serve()


class _StandIn:
    """Answers a successor in the place of a worker that is dead."""

    def __init__(self, line: socket.socket, journal: Journal, store: int) -> None:
        self._line = line
        self._journal = journal
        self._config = ConfigStore(store)
        self._over = rescue(journal, PipePool())
        self._rest: Iterator[tuple[dict[str, Any], list[int]]] | None = None
        """What is left to give; None before a successor has asked for it."""

    def serve(self) -> None:
        """Answer until all was given; raises OSError."""
        self._line.setblocking(True)
        if self._journal.cells[PROGRESS] == LEAVING:
            # A successor has begun to take sessions; only it knows which ones it has.
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
                    for name, host, port, numbers in self._journal.saved_listeners():
                        send(self._line, {"listener": [name, host, port]}, numbers)
            # A late `more`, for a packet of the dead worker: `go` follows.
            if self._rest is None:
                continue
            facts, numbers = next(self._rest, (None, []))
            if facts is None:
                send(self._line, {"settled": True})
                send(self._line, {"end": True})
                return
            send(self._line, {"sessions": [facts]}, numbers)

    def _left(self, has: set[str]) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield what `SessionTable.adopt` goes on from, and the descriptors, of each session that is not in `has`."""
        for one in [*self._journal.sessions()]:
            if one.facts["id"] in has:
                continue
            try:
                flows, pipes = recovered(self._journal, one, self._over)
            except OSError as error:
                print(f"amqp-session-router: session {one.facts['id']} is lost: {error.strerror}", file=sys.stderr)
                continue
            numbers = [one.client, one.broker]
            for flow, pipe in zip(flows, pipes, strict=True):
                if pipe is not None and flow["left"]:
                    numbers += [pipe.read, pipe.write]
            more = {"flows": flows, "paused": one.paused, "blocked_sent": one.blocked_sent, "descriptors": len(numbers)}
            yield one.facts | more, numbers
