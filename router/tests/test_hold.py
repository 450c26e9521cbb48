"""What a process that is killed between reading and writing had read is found again, to the byte."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from test_boundary import frame
from test_flow import FRAME_MAX, HEARTBEAT, Owner, pair

from amqp_session_router import journal
from amqp_session_router.app import held
from amqp_session_router.flow import Flow, Plane
from amqp_session_router.journal import Journal
from amqp_session_router.tcp_counts import counts


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """A socket whose user dies before or after a call, or after a part of it."""

    def __init__(
        self, sock: socket.socket, after_read: bool = False, before_write: bool = False, writes: int = -1
    ) -> None:
        self.sock = sock
        self.after_read = after_read
        self.before_write = before_write
        self.writes = writes
        self.fileno = sock.fileno

    def recv_into(self, *arguments: Any) -> int:
        got = self.sock.recv_into(*arguments)
        if self.after_read:
            die()
        return got

    def send(self, data: Any) -> int:
        if self.before_write:
            die()
        if self.writes >= 0:
            self.sock.send(data[: self.writes])
            die()
        return self.sock.send(data)


class Death:
    """A session of which the process died in a turn of the flow from `writer` to `reader`."""

    def __init__(
        self, before: list[bytes], last: bytes, act: Callable[[Flow, socket.socket, socket.socket], None]
    ) -> None:
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
            flow = Flow(
                Owner(),
                Plane(uvloop.new_event_loop(), Journal(number)),
                0,
                source,
                sink,
                (FRAME_MAX, 2047),
                book.first_cell(slot),
            )
            flow.halted = False
            for data in before:
                self.writer.sendall(data)
                while flow.total < sum(map(len, before[: before.index(data) + 1])):
                    flow._readable()
            flow.inject(HEARTBEAT)
            self.writer.sendall(last)
            act(flow, source, sink)
            flow._readable()
            die()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        (self.left,) = Journal(number).left()
        self.book = book
        self.held = held(book, self.left)

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


def read(flow: Flow, source: socket.socket, sink: socket.socket) -> None:
    flow.source = Deadly(source, after_read=True)  # type: ignore[assignment]


def noted(flow: Flow, source: socket.socket, sink: socket.socket) -> None:
    flow.sink = Deadly(sink, before_write=True)  # type: ignore[assignment]


def partly(flow: Flow, source: socket.socket, sink: socket.socket) -> None:
    flow.sink = Deadly(sink, writes=100)  # type: ignore[assignment]


def written(flow: Flow, source: socket.socket, sink: socket.socket) -> None:
    flow.sink = Deadly(sink, writes=1 << 20)  # type: ignore[assignment]


def after(flow: Flow, source: socket.socket, sink: socket.socket) -> None: ...


@pytest.mark.parametrize("ended", [False, True], ids=["open", "ended"])
@pytest.mark.parametrize(("act", "kept"), [(read, 458), (noted, 458), (partly, 358), (written, 0), (after, 0)])
def test_every_byte_is_found(act: Callable[..., None], kept: int, ended: bool) -> None:
    rng = random.Random(3)
    before = [frame(3, 1, rng.randbytes(size)) for size in (10, 3000, 60_000, 7)]
    last = frame(3, 1, rng.randbytes(200)) + frame(3, 1, rng.randbytes(242))
    death = Death(before, last, act)
    if ended:
        death.writer.shutdown(socket.SHUT_WR)
    assert death.held == (last[len(last) - kept :] if kept else b"", b"")
    assert death.left.rest == (0, 0)
    assert death.arrived() + death.held[0] == b"".join(before) + HEARTBEAT + last
    death.close()


def test_what_cannot_have_been_in_flight_is_not_made_up() -> None:
    death = Death([], frame(3, 1, bytes(300)), noted)
    # Somebody else read from the source: the counts say more than the hold had.
    death.writer.sendall(bytes(50))
    death.sockets[1].setblocking(True)
    assert len(death.sockets[1].recv(50, socket.MSG_WAITALL)) == 50
    with pytest.raises(OSError, match="358 bytes cannot have been in flight"):
        held(death.book, death.left)
    death.close()


def test_what_a_full_sink_did_not_take_is_in_a_pipe() -> None:
    def fill(flow: Flow, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sink.send(bytes(65536))

    death = Death([], frame(3, 1, bytes(300)), fill)
    assert death.left.lent[0]
    assert death.held == (b"", b"")
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
