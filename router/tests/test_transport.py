"""Connections between real sockets: all that came before a failure is read, whoever reads."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import select
import socket
import struct
import termios
import time
from collections.abc import Callable

import pytest
from test_flow import FRAME_MAX, Owner, pair, run, stream_of

from amqp_session_router.net.tcp_info import counts
from amqp_session_router.net.transport import SocketTransport
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.splice_flow import SpliceFlow


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


def test_a_failure_that_a_send_saw_is_told_to_the_reader() -> None:
    async def scene() -> None:
        relay = RelayContext(asyncio.get_running_loop())
        sock, _ = reset_with(b"")
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        assert poll.poll(20_000)
        transport = SocketTransport(relay.loop, sock, relay.poller)
        transport.send(b"the kernel tells this call of the reset, and only this one")
        got: list[bytes] = []
        transport.watch(got.append)
        await until(lambda: got == [b""])
        assert isinstance(transport.error, ConnectionResetError)
        transport.close()
        relay.close()

    run(scene)


@pytest.mark.parametrize("again", [False, True], ids=["at once", "with pauses"])
def test_all_is_read_before_a_failure_shows(again: bool) -> None:
    async def scene() -> None:
        relay = RelayContext(asyncio.get_running_loop())
        sock, size = reset_with(bytes(400_000))
        transport = SocketTransport(relay.loop, sock, relay.poller)
        got: list[bytes] = []

        def heard(data: bytes) -> None:
            got.append(data)
            if again and data:
                transport.unwatch()
                relay.loop.call_later(0.01, transport.watch, heard)

        transport.watch(heard)
        await until(lambda: got and not got[-1])
        assert sum(map(len, got)) == size
        assert isinstance(transport.error, ConnectionResetError)
        transport.close()
        relay.close()

    run(scene)


def test_a_failure_goes_with_the_socket_to_who_reads_next() -> None:
    async def scene() -> None:
        relay = RelayContext(asyncio.get_running_loop())
        data = stream_of(3, 400_000, small=True)
        sock, size = reset_with(data)
        sink, reader = pair()
        sink.setblocking(False)
        reader.setblocking(False)
        transport = SocketTransport(relay.loop, sock, relay.poller)
        owner = Owner()
        flow = SpliceFlow(owner, relay, 0, sock, sink, (FRAME_MAX, 2047))
        got = bytearray()

        def heard(first: bytes) -> None:
            got.extend(first)
            transport.relinquish()
            flow.feed(first)
            # Not in the turn in which the poller told of the failure.
            relay.loop.call_later(0.05, flow.start)

        transport.watch(heard)
        arrived = bytearray()

        def all_arrived() -> bool:
            with contextlib.suppress(BlockingIOError):
                arrived.extend(reader.recv(1 << 20))
            return len(arrived) == size

        await until(all_arrived)
        assert arrived == data and len(got) < size
        await until(lambda: owner.broke == [True])
        flow.stop()
        transport.close()
        for one in (sink, reader):
            one.close()
        relay.close()

    run(scene)


def test_who_was_handed_a_connection_and_does_not_read_costs_nothing() -> None:
    async def scene() -> None:
        relay = RelayContext(asyncio.get_running_loop())
        peer, sock = pair()
        sock.setblocking(False)
        transport = SocketTransport(relay.loop, sock, relay.poller)
        turns: list[bytes] = []
        transport.watch(turns.append)
        transport.relinquish()
        peer.sendall(b"unread")
        began = time.process_time()
        await asyncio.sleep(0.5)
        assert not turns and time.process_time() - began < 0.1
        transport.watch(turns.append)
        await until(lambda: turns)
        assert turns == [b"unread"]
        transport.close()
        peer.close()
        relay.close()

    run(scene)


def test_a_wire_counts_as_the_kernel_does() -> None:
    async def scene() -> None:
        relay = RelayContext(asyncio.get_running_loop())
        peer, sock = pair()
        sock.setblocking(False)
        transport = SocketTransport(relay.loop, sock, relay.poller)
        got: list[bytes] = []
        peer.sendall(b"PROXY header")
        await transport.readable()
        assert transport.take(5, socket.MSG_PEEK) == transport.take(5) == b"PROXY"
        assert transport.counts() == counts(sock) == (5, 0)
        transport.watch(got.append)
        peer.sendall(bytes(100_000))
        await until(lambda: sum(map(len, got)) == 100_007)
        transport.send(b"an answer")
        assert transport.counts() == counts(sock) == (100_012, 9)
        # More than fits: what waits in the process is not written.
        while not transport.full:
            transport.send(bytes(1 << 20))
        assert transport.counts() == counts(sock)
        peer.setblocking(False)
        while transport.full:
            with contextlib.suppress(BlockingIOError):
                peer.recv(1 << 20)
            await asyncio.sleep(0)
        assert transport.counts() == counts(sock)
        adopted = SocketTransport(relay.loop, sock, relay.poller, past=True)
        assert adopted.counts() == transport.counts()
        transport.close()
        peer.close()
        relay.close()

    run(scene)
