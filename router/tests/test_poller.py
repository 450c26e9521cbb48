"""What happens at sockets is told to who reads them, compiled or not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from test_flow import pair, run
from test_pure import pure
from test_transport import until

from amqp_session_router.base import native
from amqp_session_router.net import poller

KINDS = pytest.mark.parametrize("module", [poller, pure(poller)], ids=["compiled", "pure"])


class Keeper:
    """Notes that its socket failed."""

    def __init__(self) -> None:
        self.told = 0

    def drain_on_error(self) -> None:
        self.told += 1


def reset(sock: socket.socket) -> None:
    """End a connection so that its peer sees an error."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@KINDS
def test_a_reader_is_called_while_it_reads(module: Any) -> None:
    async def scene() -> None:
        polled = module.Poller(asyncio.get_running_loop())
        peer, sock = pair()
        got: list[bytes] = []
        polled.watch(sock.fileno(), Keeper())

        def read() -> None:
            got.append(sock.recv(100))

        for turn in range(3):
            peer.sendall(b"x")
            began = time.process_time()
            await asyncio.sleep(0.2)
            # Nor does it cost anything that nobody wants it.
            assert len(got) == turn and time.process_time() - began < 0.1
            polled.read(sock.fileno(), read)
            await until(lambda turn=turn: len(got) == turn + 1)  # type: ignore[misc]
            polled.unread(sock.fileno())
        polled.forget(sock.fileno())
        polled.close()
        for one in (peer, sock):
            one.close()

    run(scene)


@KINDS
def test_a_failure_is_told_once_and_to_who_comes_later(module: Any) -> None:
    async def scene() -> None:
        polled = module.Poller(asyncio.get_running_loop())
        peer, sock = pair()
        first, second = Keeper(), Keeper()
        polled.watch(sock.fileno(), first)
        await asyncio.sleep(0.05)
        assert not first.told
        reset(peer)
        await until(lambda: first.told)
        began = time.process_time()
        await asyncio.sleep(0.2)
        assert first.told == 1 and time.process_time() - began < 0.1
        polled.watch(sock.fileno(), second)
        await until(lambda: second.told)
        polled.leave(sock.fileno())
        polled.close()
        sock.close()

    run(scene)


@KINDS
def test_a_number_that_is_anothers_by_now_has_not_failed(module: Any) -> None:
    """Of two events of one turn the first closes the second's socket, and a new one gets its number."""

    async def scene() -> None:
        polled = module.Poller(asyncio.get_running_loop())
        pairs = [pair(), pair()]
        number = {sock.fileno(): sock for _, sock in pairs}
        fresh, peer = pair()
        fresh.setblocking(False)
        old, keeper, got = Keeper(), Keeper(), list[bytes | None]()

        def first(fd: int) -> Callable[[], None]:
            def replace() -> None:
                (other,) = set(number) - {fd}
                polled.unread(fd)
                polled.unread(other)
                polled.forget(other)
                # Closes the socket that had the number, too.
                os.dup2(fresh.fileno(), other)
                polled.watch(other, keeper)
                polled.read(other, lambda: got.append(native.receive(other)))

            return replace

        for fd in number:
            polled.watch(fd, old)
            polled.read(fd, first(fd))
        for other, _ in pairs:
            reset(other)
        await asyncio.sleep(0.1)
        peer.sendall(b"new")
        await until(lambda: b"new" in got)
        assert set(got) <= {None, b"new"} and not keeper.told
        polled.close()
        for sock in (*number.values(), fresh, peer):
            sock.close()

    run(scene)


@KINDS
def test_a_reader_that_fails_holds_up_no_other(module: Any) -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: told.append(context))
        polled = module.Poller(loop)
        pairs = [pair(), pair()]
        got: list[bytes] = []

        def fail() -> None:
            polled.unread(pairs[0][1].fileno())
            raise ValueError("a fault")

        for reader, (peer, sock) in zip((fail, lambda: got.append(pairs[1][1].recv(100))), pairs, strict=True):
            polled.watch(sock.fileno(), Keeper())
            polled.read(sock.fileno(), reader)
            peer.sendall(b"x")
        await until(lambda: got and told)
        assert isinstance(told[0]["exception"], ValueError) and len(told) == 1
        polled.close()
        for one in pairs:
            for sock in one:
                sock.close()

    run(scene)


@pytest.mark.parametrize("module", [native, pure(native)], ids=["compiled", "pure"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_connections_are_accepted_with_their_address(module: Any, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:
        listening.setblocking(False)
        assert module.accept(listening.fileno()) is None
        with socket.create_connection(listening.getsockname()[:2]) as client:
            sock, peer = module.accept(listening.fileno())
            with contextlib.closing(sock):
                assert peer == client.getsockname()[:2] == sock.getpeername()[:2]
                assert not sock.getblocking() and not os.get_inheritable(sock.fileno()) and sock.family == family
                assert module.receive(sock.fileno()) is None
                client.sendall(b"hello")
                assert sock.recv(1, socket.MSG_PEEK) == b"h" and module.receive(sock.fileno()) == b"hello"
                assert module.transmit(sock.fileno(), b"answer") == 6 and client.recv(100) == b"answer"
                while module.transmit(sock.fileno(), bytes(1 << 20)):
                    pass
                reno = (socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
                module.set_options(sock.fileno(), ((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), reno))
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert sock.getsockopt(*reno[:2], 16).startswith(b"reno\0")
                with pytest.raises(OSError, match="Protocol not available"):
                    module.set_options(sock.fileno(), ((socket.IPPROTO_TCP, 9999, 1),))
                reset(client)
                with pytest.raises(ConnectionError):
                    while True:
                        module.receive(sock.fileno())
        assert module.accept(listening.fileno()) is None


@KINDS
def test_a_timer_that_a_reader_sets_is_not_late(module: Any) -> None:
    """The loop waits in the poller by what it knew before."""

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        polled = module.Poller(loop)
        peer, sock = pair()
        sock.setblocking(False)
        late: asyncio.Future[float] = loop.create_future()
        began: list[float] = []

        def read() -> None:
            began.append(loop.time())
            sock.recv(100)
            loop.call_later(0.1, lambda: late.set_result(loop.time()))

        polled.watch(sock.fileno(), Keeper())
        polled.read(sock.fileno(), read)
        loop.call_later(30, lambda: None)
        sender = threading.Timer(0.2, peer.sendall, (b"x",))
        sender.start()
        assert await late - began[0] < 5
        sender.join()
        polled.close()
        for one in (peer, sock):
            one.close()

    run(scene)
