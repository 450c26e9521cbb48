"""Connections between real sockets: all that came before a failure is read, whoever reads."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
from collections.abc import Callable

import pytest
from test_flow import FRAME_MAX, Owner, pair, run, stream_of

from amqp_session_router.flow import Flow
from amqp_session_router.plane import Plane
from amqp_session_router.tcp_counts import counts
from amqp_session_router.wires import SocketWire


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


def reset_with(data: bytes) -> tuple[socket.socket, int]:
    """Return a socket whose peer sent `data` and reset the connection, and how many bytes of it arrived."""
    peer, sock = pair()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * len(data))
    peer.sendall(data)
    while int.from_bytes(fcntl.ioctl(peer, termios.TIOCOUTQ, bytes(4)), "little"):
        pass
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    sock.setblocking(False)
    return sock, len(data)


@pytest.mark.parametrize("again", [False, True], ids=["at once", "with pauses"])
def test_all_is_read_before_a_failure_shows(again: bool) -> None:
    async def scene() -> None:
        plane = Plane(asyncio.get_running_loop())
        sock, size = reset_with(bytes(400_000))
        wire = SocketWire(plane.loop, sock, plane.failures)
        got: list[bytes] = []

        def heard(data: bytes) -> None:
            got.append(data)
            if again and data:
                wire.unwatch()
                plane.loop.call_later(0.01, wire.watch, heard)

        wire.watch(heard)
        await until(lambda: got and not got[-1])
        assert sum(map(len, got)) == size
        assert isinstance(wire.error, ConnectionResetError)
        wire.close()
        plane.close()

    run(scene)


def test_a_failure_goes_with_the_socket_to_who_reads_next() -> None:
    async def scene() -> None:
        plane = Plane(asyncio.get_running_loop())
        data = stream_of(3, 400_000, small=True)
        sock, size = reset_with(data)
        sink, reader = pair()
        sink.setblocking(False)
        reader.setblocking(False)
        wire = SocketWire(plane.loop, sock, plane.failures)
        owner = Owner()
        flow = Flow(owner, plane, 0, sock, sink, (FRAME_MAX, 2047))
        got = bytearray()

        def heard(first: bytes) -> None:
            got.extend(first)
            wire.relinquish()
            flow.feed(first)
            # Not in the turn in which libuv told of the failure.
            plane.loop.call_later(0.05, flow.start)

        wire.watch(heard)
        arrived = bytearray()

        def all_arrived() -> bool:
            with contextlib.suppress(BlockingIOError):
                arrived.extend(reader.recv(1 << 20))
            return len(arrived) == size

        await until(all_arrived)
        assert arrived == data and len(got) < size
        await until(lambda: owner.broke == [True])
        flow.stop()
        wire.close()
        for one in (sink, reader):
            one.close()
        plane.close()

    run(scene)


def test_who_was_handed_a_connection_and_does_not_read_costs_nothing() -> None:
    async def scene() -> None:
        plane = Plane(asyncio.get_running_loop())
        peer, sock = pair()
        sock.setblocking(False)
        wire = SocketWire(plane.loop, sock, plane.failures)
        turns: list[bytes] = []
        wire.watch(turns.append)
        wire.relinquish()
        peer.sendall(b"unread")
        await asyncio.sleep(0.05)
        assert not turns and not plane.loop.remove_reader(sock.fileno())
        wire.watch(turns.append)
        await until(lambda: turns)
        assert turns == [b"unread"]
        wire.close()
        peer.close()
        plane.close()

    run(scene)


def test_a_wire_counts_as_the_kernel_does() -> None:
    async def scene() -> None:
        plane = Plane(asyncio.get_running_loop())
        peer, sock = pair()
        sock.setblocking(False)
        wire = SocketWire(plane.loop, sock, plane.failures)
        got: list[bytes] = []
        peer.sendall(b"PROXY header")
        await wire.readable()
        assert wire.take(5, socket.MSG_PEEK) == wire.take(5) == b"PROXY"
        assert wire.counts() == counts(sock) == (5, 0)
        wire.watch(got.append)
        peer.sendall(bytes(100_000))
        await until(lambda: sum(map(len, got)) == 100_007)
        wire.send(b"an answer")
        assert wire.counts() == counts(sock) == (100_012, 9)
        # More than fits: what waits in the process is not written.
        while not wire.full:
            wire.send(bytes(1 << 20))
        assert wire.counts() == counts(sock)
        peer.setblocking(False)
        while wire.full:
            with contextlib.suppress(BlockingIOError):
                peer.recv(1 << 20)
            await asyncio.sleep(0)
        assert wire.counts() == counts(sock)
        adopted = SocketWire(plane.loop, sock, plane.failures, past=True)
        assert adopted.counts() == wire.counts()
        wire.close()
        peer.close()
        plane.close()

    run(scene)
