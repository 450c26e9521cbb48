"""What a process that is killed between reading and writing had read is found again, to the byte."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import traceback
from collections.abc import Callable
from typing import NamedTuple

import pytest
import tracing
from test_boundary import frame
from test_flow import FRAME_MAX, HEARTBEAT, Owner, pair

from amqp_session_router.net import event_loop
from amqp_session_router.net.tcp_info import counts
from amqp_session_router.process.recovery import recovered, rescue
from amqp_session_router.relay import journal
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.journal import Journal
from amqp_session_router.relay.pipes import PipePool
from amqp_session_router.relay.splice_flow import SpliceFlow


class At(NamedTuple):
    """Where the process dies: at a system call, before it or after it; `length` is what it writes at most."""

    call: str
    after: bool
    length: int | None = None


class Death:
    """A session of which the process died in a turn of the flow from `writer` to `reader`."""

    def __init__(
        self,
        before: list[bytes],
        last: bytes,
        at: At | None = None,
        act: Callable[[socket.socket], None] = lambda sink: None,
    ) -> None:
        """It passes on `before`, does `act`, reads `last` and dies `at`; None: when the turn is over."""
        self.writer, source = pair()
        sink, self.reader = pair()
        for sock in (source, sink):
            sock.setblocking(False)
        self.sockets = (self.writer, source, sink, self.reader)
        number = journal.create()
        book = Journal(number)
        # The connections have a past.
        for one, other in ((self.writer, source), (self.reader, sink), (source, self.writer), (sink, self.reader)):
            one.send(b"handshake")
            other.setblocking(True)
            assert len(other.recv(9, socket.MSG_WAITALL)) == 9
            other.setblocking(other in (self.writer, self.reader))
        here, there = counts(source), counts(sink)
        slot = book.opened(
            {"id": "x"}, source.fileno(), sink.fileno(), (here.read - there.written, there.read - here.written)
        )
        assert slot is not None
        pid = os.fork()
        if not pid:
            # Whatever goes wrong, this copy of the test process must not go on with the tests beside it.
            try:
                self._live(number, book.first_cell(slot), before, last, at, act)
                os.kill(os.getpid(), signal.SIGKILL)
            finally:
                traceback.print_exc()
                os._exit(1)
        if at is None:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        else:
            tracing.kill_at(pid, *at)
        (self.left,) = Journal(number).sessions()
        self.book = book

    def _live(
        self,
        number: int,
        cell: int,
        before: list[bytes],
        last: bytes,
        at: At | None,
        act: Callable[[socket.socket], None],
    ) -> None:
        """The life of the process, with the journal `number`."""
        _, source, sink, _ = self.sockets
        flow = SpliceFlow(
            Owner(), RelayContext(event_loop.EventLoop(), Journal(number)), 0, source, sink, (FRAME_MAX, 2047), cell
        )
        flow.halted = False
        for data in before:
            self.writer.sendall(data)
            while flow.total < sum(map(len, before[: before.index(data) + 1])):
                flow.readable()
        flow.inject(HEARTBEAT)
        self.writer.sendall(last)
        act(sink)
        if at is not None:
            tracing.stop_here()
        flow.readable()

    def found(self) -> tuple[bytes, bytes]:
        """Return what the next worker has of each direction."""
        over = rescue(self.book, PipePool())
        (one,) = self.book.sessions()
        up, down = (
            (os.read(pipe.read, 1 << 20) if pipe else b"") + bytes.fromhex(state["outbox"])
            for state, pipe in zip(*recovered(self.book, one, over), strict=True)
        )
        return up, down

    def arrived(self) -> bytes:
        """Return all that was written, the past not counted."""
        self.sockets[2].shutdown(socket.SHUT_WR)
        got = bytearray()
        while data := self.reader.recv(1 << 20):
            got += data
        return bytes(got)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


READ = At("recvfrom", True)
NOTED = At("sendto", False)
PARTLY = At("sendto", True, 100)
WRITTEN = At("sendto", True)


@pytest.mark.parametrize("ended", [False, True], ids=["open", "ended"])
@pytest.mark.parametrize(
    ("at", "kept"),
    [(READ, 458), (NOTED, 458), (PARTLY, 358), (WRITTEN, 0), (None, 0)],
    ids=["read", "noted", "partly", "written", "after"],
)
def test_every_byte_is_found(at: At | None, kept: int, ended: bool) -> None:
    rng = random.Random(3)
    before = [frame(3, 1, rng.randbytes(size)) for size in (10, 3000, 60_000, 7)]
    last = frame(3, 1, rng.randbytes(200)) + frame(3, 1, rng.randbytes(242))
    death = Death(before, last, at)
    if ended:
        death.writer.shutdown(socket.SHUT_WR)
    held = death.found()
    assert held == (last[len(last) - kept :] if kept else b"", b"")
    assert death.left.rest == (0, 0)
    assert death.arrived() + held[0] == b"".join(before) + HEARTBEAT + last
    death.close()


def test_what_cannot_have_been_in_flight_is_not_made_up() -> None:
    death = Death([], frame(3, 1, bytes(300)), NOTED)
    # Somebody else read from the source: the counts say more than the hold had.
    death.writer.sendall(bytes(50))
    death.sockets[1].setblocking(True)
    assert len(death.sockets[1].recv(50, socket.MSG_WAITALL)) == 50
    with pytest.raises(OSError, match="how many bytes were in flight is unknown"):
        death.found()
    death.close()


def test_what_a_full_sink_did_not_take_is_in_a_pipe() -> None:
    def fill(sink: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sink.send(bytes(65536))

    death = Death([], frame(3, 1, bytes(300)), act=fill)
    assert death.left.pipes[0]
    assert rescue(death.book, PipePool()) == {}, "nothing of it is taken from the staging area, too"
    death.close()


def test_counts() -> None:
    one, other = pair()
    assert counts(one) == counts(other) == (0, 0)
    one.sendall(bytes(1000))
    assert len(other.recv(400, socket.MSG_WAITALL)) == 400
    assert counts(one) == (0, 1000)
    assert counts(other) == (400, 0)
    one.shutdown(socket.SHUT_WR)
    assert len(other.recv(599, socket.MSG_WAITALL)) == 599
    assert counts(other) == (999, 0)
    assert other.recv(10) == bytes(1)
    assert other.recv(10) == b""
    assert counts(other) == (1000, 0)
    # More than the peer's and our own buffers hold: what is not sent is written all the same.
    other.setblocking(False)
    size = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            size += other.send(bytes(65536))
    assert counts(other) == (1000, size)
    assert counts(one) == (0, 1000)
    one.close()
    other.close()
