"""Flows between real sockets: every byte, in order, and the boundary known."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_boundary import frame, publish

from amqp_session_router.net import event_loop
from amqp_session_router.net.tcp_info import unread
from amqp_session_router.net.transport import SocketTransport
from amqp_session_router.relay import blind_splice
from amqp_session_router.relay.buffered_flow import BufferedFlow
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.flow_transfer import FlowState, import_flow
from amqp_session_router.relay.splice_flow import SpliceFlow
from amqp_session_router.relay.stream_profile import BUSY_READS, FAST_WITHIN

FRAME_MAX = 131072
HEARTBEAT = b"\x08\0\0\0\0\0\0\xce"


class Owner:
    """Notes what the flow tells."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.broke: list[bool] = []
        self.large: list[int] = []

    def flow_ended(self, flow: Any) -> None:
        self.ended.set()

    def flow_failed(self, flow: Any, at_source: bool, error: OSError) -> None:
        self.broke.append(at_source)
        self.ended.set()

    def flow_frame_too_large(self, flow: Any, size: int) -> None:
        self.large.append(size)
        flow.halt()
        self.ended.set()

    def flow_close_ok(self, flow: Any) -> None: ...

    def flow_alarmed(self, flow: Any) -> None: ...


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


class Bench:
    """writer → (source) flow (sink) → reader; writer and reader are blocking sockets of threads."""

    def __init__(self, kernel: bool = True, limit: int = 0) -> None:
        self.loop = asyncio.get_running_loop()
        self.writer, source = pair()
        sink, self.reader = pair()
        self.owner = Owner()
        self.relay = RelayContext(self.loop)
        self.sockets = [self.writer, source, sink, self.reader]
        source.setblocking(False)
        sink.setblocking(False)
        self.source, self.sink = source, sink
        self.flow: Any
        if kernel:
            self.flow = SpliceFlow(self.owner, self.relay, 0, source, sink, (FRAME_MAX, 2047), limit=limit)
        else:
            wires = [SocketTransport(self.loop, sock, self.relay.poller) for sock in (source, sink)]
            self.flow = BufferedFlow(self.owner, 0, wires[0], wires[1], limit)
        self.received = bytearray()

    def read_all(self, slowly: bool = False) -> threading.Thread:
        def read() -> None:
            while chunk := self.reader.recv(1000 if slowly else 1 << 20):
                self.received.extend(chunk)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def write(self, data: bytes, pieces: list[int] | None = None, end: bool = True) -> threading.Thread:
        def write() -> None:
            at = 0
            for piece in pieces or ():
                self.writer.sendall(data[at : at + piece])
                at += piece
            self.writer.sendall(data[at:])
            if end:
                self.writer.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        return thread

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.002)
        assert condition(), what

    async def end(self, reader: threading.Thread) -> None:
        """End the stream, and close all once `reader` has seen its end."""
        self.writer.shutdown(socket.SHUT_WR)
        await self.owner.ended.wait()
        self.sink.shutdown(socket.SHUT_WR)
        await self.until(lambda: not reader.is_alive(), "the reader ends")
        self.close()

    def close(self) -> None:
        self.flow.stop()
        for sock in self.sockets:
            sock.close()
        self.relay.close()


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    event_loop.run(asyncio.wait_for(scene(), 90))


def stream_of(seed: int, size: int, small: bool) -> bytes:
    rng = random.Random(seed)
    out = bytearray()
    while len(out) < size:
        length = rng.randint(0, 200) if small else rng.choice([0, 10, 5000, 70000, 131064, 400000])
        out += publish(rng.randint(1, 9), rng.randbytes(length), FRAME_MAX)
    return bytes(out)


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "userland"])
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    small=st.booleans(),
    size=st.integers(0, 600_000),
    pieces=st.lists(st.integers(1, 9), max_size=60),
    slowly=st.booleans(),
)
def test_every_byte_arrives_in_order(
    kernel: bool, seed: int, small: bool, size: int, pieces: list[int], slowly: bool
) -> None:
    async def scene() -> None:
        bench = Bench(kernel)
        data = stream_of(seed, size, small)
        reader, writer = bench.read_all(slowly), bench.write(data, pieces)
        bench.flow.start()
        async with asyncio.timeout(60):
            await bench.owner.ended.wait()
        assert bench.flow.known_boundary() or bench.flow.blind
        bench.sink.shutdown(socket.SHUT_WR)
        await bench.until(lambda: not reader.is_alive() and not writer.is_alive(), "the threads end")
        assert bytes(bench.received) == data
        assert bench.flow.total == len(data)
        bench.close()

    run(scene)


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "userland"])
@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
def test_injections_come_between_frames(kernel: bool, small: bool) -> None:
    """Heartbeats put into a running stream; taken out again, the stream is what was sent, and frames are whole."""

    async def scene() -> None:
        bench = Bench(kernel)
        data, rest = stream_of(7, 30_000_000, small), stream_of(8, 1000, True)
        reader, writer = bench.read_all(), bench.write(data, end=False)
        done = 0

        def inject() -> bool:
            nonlocal done
            done += 1
            bench.flow.inject(HEARTBEAT)
            return False

        bench.flow.start()
        for _ in range(20):
            bench.flow.at_boundary(inject)
            await asyncio.sleep(0.005)
        await bench.until(lambda: done == 20, "every injection has found its boundary")
        await bench.until(lambda: not writer.is_alive(), "the bulk is written")
        bench.write(rest)
        async with asyncio.timeout(60):
            await bench.owner.ended.wait()
        bench.sink.shutdown(socket.SHUT_WR)
        await bench.until(lambda: not reader.is_alive() and not writer.is_alive(), "the threads end")
        at, out, beats = 0, bytearray(), 0
        while at < len(bench.received):
            size = int.from_bytes(bench.received[at + 3 : at + 7], "big") + 8
            assert bench.received[at + size - 1] == 0xCE
            if bench.received[at] == 8:
                beats += 1
            else:
                out += bench.received[at : at + size]
            at += size
        assert bytes(out) == data + rest
        assert beats == done
        bench.close()

    run(scene)


def test_a_crowd_of_small_frames_goes_unseen_and_is_found_again() -> None:
    async def scene() -> None:
        bench = Bench()
        data = stream_of(3, 40_000_000, True)
        seen: list[bool] = []
        reader, writer = bench.read_all(), bench.write(data, end=False)
        bench.flow.start()
        while bench.flow.total < len(data):
            seen.append(bench.flow.blind is not None)
            await asyncio.sleep(0.001)
        assert any(seen)
        await bench.until(lambda: bench.flow.clear, "all is written")
        # Found from what was moved last, with nothing more to come.
        assert bench.flow.known_boundary()
        bench.writer.sendall(HEARTBEAT)
        await bench.until(lambda: bench.flow.total == len(data) + 8, "the heartbeat passes")
        assert not bench.flow.blind and bench.flow.known_boundary()
        bench.writer.shutdown(socket.SHUT_WR)
        await bench.owner.ended.wait()
        bench.sink.shutdown(socket.SHUT_WR)
        await bench.until(lambda: not reader.is_alive() and not writer.is_alive(), "the threads end")
        bench.close()

    run(scene)


def test_long_bodies_are_looked_at_while_they_come_slowly() -> None:
    """Many sessions with large messages: each is busy, and none is fast."""

    async def scene() -> None:
        bench = Bench()
        body = publish(1, bytes(2_000_000), FRAME_MAX)
        reader = bench.read_all()
        bench.flow.start()
        for number in range(1, 17):
            bench.write(body, end=False)
            await bench.until(lambda number=number: bench.flow.total == number * len(body), "a body has passed")  # type: ignore[misc]
            assert bench.flow.blind is None and not bench.flow.profile.busy_reads
            await asyncio.sleep(2 * FAST_WITHIN)
        await bench.end(reader)

    run(scene)


@contextlib.contextmanager
def process(code: str, sock: socket.socket, data: bytes = b"") -> Iterator[None]:
    """Run Python's `code` with `sock` as `s` and `data` as `d` in a process of its own: threads of this one share its
    lock."""
    begin = f"import socket, sys; s, d = socket.socket(fileno={sock.fileno()}), sys.stdin.buffer.read()\n"
    running = subprocess.Popen([sys.executable, "-c", begin + code], pass_fds=[sock.fileno()], stdin=subprocess.PIPE)
    try:
        assert running.stdin is not None
        running.stdin.write(data)
        running.stdin.close()
        yield
    finally:
        running.kill()
        running.wait()


def test_long_bodies_that_come_fast_pass_unseen() -> None:
    """Whether a read takes a whole frame or a part of one."""

    async def scene() -> None:
        bench = Bench()
        body = publish(1, bytes(1_000_000), FRAME_MAX)
        with (
            process("while s.recv(1 << 20): pass", bench.reader),
            process("while True: s.sendall(d)", bench.writer, body),
        ):
            bench.flow.start()
            await bench.until(lambda: bench.flow.blind is not None, "the stream is fast")
        bench.close()

    run(scene)


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "userland"])
def test_halts_on_the_boundary_and_keeps_the_rest(kernel: bool) -> None:
    async def scene() -> None:
        bench = Bench(kernel)
        first, second = publish(1, b"a" * 300_000, FRAME_MAX), publish(2, b"b" * 50, FRAME_MAX)
        middle = len(first) - 1000
        bench.writer.sendall(first[:middle])
        bench.flow.start()
        reader = bench.read_all()
        await bench.until(lambda: bench.flow.total == middle, "a partial frame is forwarded at once")
        reached: list[bool] = []
        bench.flow.at_boundary(lambda: reached.append(True) or True)  # type: ignore[func-returns-value]
        assert not reached
        bench.writer.sendall(first[middle:] + second)
        await bench.until(lambda: reached, "the boundary")
        await bench.until(lambda: len(bench.received) == len(first), "the frame's rest")
        assert bench.flow.halted
        bench.flow.start()
        await bench.until(lambda: len(bench.received) == len(first + second), "the rest")
        await bench.end(reader)

    run(scene)


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "userland"])
def test_a_frame_above_the_limit_is_not_passed_on(kernel: bool) -> None:
    async def scene() -> None:
        bench = Bench(kernel, limit=FRAME_MAX)
        bench.writer.sendall(struct.pack(">BHI", 3, 1, FRAME_MAX) + b"x" * 100)
        bench.flow.start()
        async with asyncio.timeout(10):
            await bench.owner.ended.wait()
        assert bench.owner.large == [FRAME_MAX + 8] and bench.flow.total == 0
        bench.close()

    run(scene)


def test_last_method_is_seen() -> None:
    async def scene() -> None:
        bench = Bench()
        close = frame(1, 0, b"\x00\x0a\x00\x32\x00\xc8\x02ok\x00\x00\x00\x00")
        bench.writer.sendall(publish(1, b"z", FRAME_MAX) + close)
        bench.writer.shutdown(socket.SHUT_WR)
        bench.flow.start()
        await bench.owner.ended.wait()
        assert bench.flow.last_method == 10 << 16 | 50
        bench.close()

    run(scene)


def test_a_close_ok_is_told_once_and_behind_its_write() -> None:
    """What comes after it, though no method does, tells of none."""

    async def scene() -> None:
        bench = Bench()
        close_ok = frame(1, 0, b"\x00\x0a\x00\x33")
        written: list[bytes] = []
        bench.reader.setblocking(False)
        bench.owner.flow_close_ok = lambda flow: written.append(bench.reader.recv(100))  # type: ignore[method-assign]
        bench.flow.start()
        for data in (HEARTBEAT + close_ok, HEARTBEAT, publish(1, b"z", FRAME_MAX)):
            before = bench.flow.total
            bench.writer.sendall(data)
            await bench.until(lambda before=before, data=data: bench.flow.total == before + len(data), "it has passed")  # type: ignore[misc]
        assert written == [HEARTBEAT + close_ok]
        bench.close()

    run(scene)


def test_no_byte_stays_behind_when_a_full_sink_meets_a_crowd() -> None:
    """A stream goes unseen in the very turn in which what was read does not fit into the sink."""

    async def scene() -> None:
        bench = Bench()
        filling = bytearray()
        with pytest.raises(BlockingIOError):
            while True:
                filling += bytes(bench.sink.send(bytes(100_000)))
        data = stream_of(1, 2_000_000, True)
        writer = bench.write(data)
        bench.flow.profile.busy_reads = BUSY_READS - 1
        bench.flow.start()
        await bench.until(lambda: bench.flow.backlog.left > 0, "a full sink")
        reader = bench.read_all()
        async with asyncio.timeout(20):
            await bench.owner.ended.wait()
        bench.sink.shutdown(socket.SHUT_WR)
        await bench.until(lambda: not reader.is_alive() and not writer.is_alive(), "the threads end")
        assert bytes(bench.received) == filling + data
        bench.close()

    run(scene)


def turn(flow: SpliceFlow) -> int:
    """Let the flow read once, and return how many bytes that moved."""
    before = flow.total
    flow.readable()
    return flow.total - before


def test_a_body_of_several_frames_is_moved_in_one_turn() -> None:
    async def scene() -> None:
        bench = Bench()
        bench.source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_000_000)
        bench.sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
        reader = bench.read_all()
        first, second = (publish(1, bytes(300_000), FRAME_MAX) for _ in range(2))
        for data in (first, second):
            bench.writer.sendall(data)
            await bench.until(lambda data=data: unread(bench.source) == len(data), "all is there")  # type: ignore[misc]
            moved = turn(bench.flow)
            if data is first:
                # Nothing had said yet that its frames are large.
                while bench.flow.total < len(first):
                    turn(bench.flow)
                    await asyncio.sleep(0)
            else:
                assert moved == len(second)
        assert bench.flow.known_boundary()
        bench.sink.shutdown(socket.SHUT_WR)
        await bench.until(lambda: not reader.is_alive(), "the reader ends")
        assert bench.received == first + second
        bench.close()

    run(scene)


@pytest.mark.parametrize("size", [16_000, 100_000, 250_000])
def test_single_messages_do_not_go_unseen(size: int) -> None:
    """Each waits for the one before: a boundary would be found again at once, which costs more than it spares."""

    async def scene() -> None:
        bench = Bench()
        reader = bench.read_all()
        bench.flow.start()
        data = publish(1, bytes(size), FRAME_MAX)
        for count in range(1, 41):
            writer = bench.write(data, end=False)
            await bench.until(lambda count=count: len(bench.received) == count * len(data), "the message")  # type: ignore[misc]
            await bench.until(lambda writer=writer: not writer.is_alive(), "the writer ends")  # type: ignore[misc]
            assert bench.flow.blind is None
        await bench.end(reader)

    run(scene)


@pytest.mark.parametrize(("size", "wide"), [(1_000, False), (60_000, True)])
def test_large_frames_widen_the_window_and_small_ones_still_pass_at_once(size: int, wide: bool) -> None:
    async def scene() -> None:
        bench = Bench()
        before = bench.source.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        reader = bench.read_all()
        bench.flow.start()
        for data in (publish(1, bytes(size), FRAME_MAX), HEARTBEAT):
            bench.received.clear()
            bench.writer.sendall(data)
            await bench.until(lambda data=data: len(bench.received) == len(data), "the bytes")  # type: ignore[misc]
        after = bench.source.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert after >= max(before, 1 << 18) if wide else after == before
        await bench.end(reader)

    run(scene)


def test_a_process_that_was_killed_while_it_widened_the_window_stalls_no_small_frame() -> None:
    async def scene() -> None:
        bench = Bench()
        bench.source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 18)
        reader = bench.read_all()
        import_flow(bench.flow, FlowState(rest=0), None)
        bench.flow.start()
        bench.writer.sendall(HEARTBEAT)
        await bench.until(lambda: len(bench.received) == len(HEARTBEAT), "the heartbeat")
        await bench.end(reader)

    run(scene)


def test_a_crowd_without_a_pipe_to_remember_it_by_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []

    def nothing(*_: Any) -> None:
        tried.append(True)
        raise OSError(errno.EMFILE, "no descriptor is left")

    monkeypatch.setattr(blind_splice, "ResyncWindow", nothing)

    async def scene() -> None:
        bench = Bench()
        data = stream_of(4, 20_000_000, True)
        reader, writer = bench.read_all(), bench.write(data)
        bench.flow.start()
        async with asyncio.timeout(60):
            await bench.owner.ended.wait()
        assert tried and bench.flow.known_boundary()
        bench.sink.shutdown(socket.SHUT_WR)
        await bench.until(lambda: not reader.is_alive() and not writer.is_alive(), "the threads end")
        assert bench.received == data
        bench.close()

    run(scene)


@pytest.fixture
def fast_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, a few megabytes count as a fast stream."""
    monkeypatch.setattr(blind_splice, "FAST_WITHIN", 3600.0)


def polled(flow: SpliceFlow) -> bool:
    return flow.blind is not None and flow.blind.polled


@pytest.mark.usefixtures("fast_streams")
@pytest.mark.parametrize("halted", [False, True], ids=["on", "halted"])
def test_a_fast_stream_is_polled_and_polling_ends(halted: bool) -> None:
    """Every byte in order, polled and not, with a sink that is full again and again, halted and not."""

    async def scene() -> None:
        bench = Bench()
        data = stream_of(5, 4_000_000, True) * 15
        writer = bench.write(data, end=False)
        bench.flow.start()
        await bench.until(lambda: bench.flow.backlog.left > 0, "a full sink")
        reader = bench.read_all()
        seen_polled = 0
        while bench.flow.total < len(data):
            seen_polled += polled(bench.flow)
            if halted:
                bench.flow.halt()
                await asyncio.sleep(0.001)
                bench.flow.start()
            await asyncio.sleep(0.001)
        assert seen_polled
        await bench.until(lambda: bench.flow.clear and not polled(bench.flow), "polling is over")
        assert bench.flow.known_boundary()
        bench.flow.inject(HEARTBEAT)
        bench.writer.sendall(HEARTBEAT)
        bench.writer.shutdown(socket.SHUT_WR)
        await bench.owner.ended.wait()
        bench.sink.shutdown(socket.SHUT_WR)
        await bench.until(lambda: not reader.is_alive() and not writer.is_alive(), "the threads end")
        assert bench.received == data + 2 * HEARTBEAT
        bench.close()

    run(scene)


@pytest.mark.usefixtures("fast_streams")
@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_side_that_fails_while_polled_is_seen(side: str) -> None:
    async def scene() -> None:
        bench = Bench()
        bench.flow.start()
        reader = bench.read_all()
        stop = threading.Event()

        def write() -> None:
            block = stream_of(6, 1_000_000, True)
            with contextlib.suppress(OSError):
                while not stop.is_set():
                    bench.writer.sendall(block)

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        await bench.until(lambda: polled(bench.flow), "polling")
        if side == "sink":
            bench.reader.shutdown(socket.SHUT_RD)
            bench.reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await bench.until(lambda: not reader.is_alive(), "the reader ends")
            bench.reader.close()
        else:
            stop.set()
            await bench.until(lambda: not writer.is_alive(), "the writer ends")
            bench.writer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            bench.writer.close()
        async with asyncio.timeout(20):
            await bench.owner.ended.wait()
        assert bench.owner.broke == [side == "source"]
        stop.set()
        bench.flow.stop()
        for sock in (bench.source, bench.sink):
            sock.close()
        await bench.until(lambda: not reader.is_alive() and not writer.is_alive(), "the threads end")
        bench.close()

    run(scene)


def test_pipes_are_lent_only_while_bytes_are_stuck() -> None:
    async def scene() -> None:
        bench = Bench()
        bench.flow.start()
        writer = bench.write(stream_of(1, 20_000_000, False))
        await bench.until(lambda: bench.flow.backlog.left > 0, "a full sink")
        reader = bench.read_all()
        await bench.owner.ended.wait()
        assert (bench.flow.backlog.pipe, bench.flow.backlog.left) == (None, 0)
        bench.sink.shutdown(socket.SHUT_WR)
        await bench.until(lambda: not reader.is_alive() and not writer.is_alive(), "the threads end")
        bench.close()

    run(scene)
