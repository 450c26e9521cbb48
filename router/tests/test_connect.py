"""Connections to backends: at once, after a wait, and not at all."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import socket
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_flow import run
from tests.free_ports import free_port

from amqp_session_router.amqp.negotiation import AttemptFailed
from amqp_session_router.base.model import Backend, ClientTls, Identity, Timeouts
from amqp_session_router.net.dialer import Connector, Dialer
from amqp_session_router.net.reverse_dns import ReverseDns
from amqp_session_router.net.socket_options import set_congestion_control
from amqp_session_router.net.transport import Transport
from amqp_session_router.relay.context import RelayContext

UNVERIFIED = ClientTls(verify=False)


def busy() -> tuple[socket.socket, socket.socket]:
    """Return a listening socket whose queue is full, so that the kernel drops what comes, and who is in the queue."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=0)
    return listening, socket.create_connection(listening.getsockname())


def connector(limit: float) -> Connector:
    return Connector(asyncio.get_running_loop(), lambda: Timeouts(connect=limit))


def backend_at(port: int) -> Backend:
    return Backend("b0", "127.0.0.1", port)


def test_a_connection_that_takes_its_time() -> None:
    async def scene() -> None:
        listening, first = busy()
        attempt = asyncio.ensure_future(connector(10.0).connect(backend_at(listening.getsockname()[1])))
        await asyncio.sleep(0.1)
        assert not attempt.done()
        listening.accept()[0].close()
        # The kernel asks again after a second.
        sock = await attempt
        assert sock.getpeername() == listening.getsockname()
        for one in (sock, first, listening):
            one.close()

    run(scene)


def test_a_connection_that_does_not_come_in_time() -> None:
    async def scene() -> None:
        listening, first = busy()
        with pytest.raises(AttemptFailed, match=r"no connection within 0\.2 s"):
            await connector(0.2).connect(backend_at(listening.getsockname()[1]))
        first.close()
        listening.close()

    run(scene)


async def accepted(listening: socket.socket) -> socket.socket:
    listening.setblocking(False)
    peer, _ = await asyncio.get_running_loop().sock_accept(listening)
    return peer


def secure(port: int, limit: float, tls: ClientTls = UNVERIFIED) -> Coroutine[Any, Any, Transport]:
    relay = RelayContext(asyncio.get_running_loop())
    dialer = Dialer(relay.loop, relay.poller, lambda: Timeouts(connect=limit))
    return dialer.dial(replace(backend_at(port), tls=tls), Identity("/"), lambda: ())


def test_a_tls_handshake_that_nobody_answers_ends_in_time() -> None:
    async def scene() -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as listening,
            pytest.raises(AttemptFailed, match=r"no connection within 0\.2 s"),
        ):
            await secure(listening.getsockname()[1], 0.2)

    run(scene)


def test_a_name_that_no_certificate_has_is_a_failed_attempt() -> None:
    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            with pytest.raises(AttemptFailed, match="no certificate can have the name"):
                await secure(listening.getsockname()[1], 5.0, ClientTls(server_name=".a" * 40))
            peer, _ = listening.accept()
            # Nothing is left open.
            peer.settimeout(10)
            with pytest.raises(ConnectionResetError):
                peer.recv(1)
            peer.close()

    run(scene)


def test_a_tls_handshake_given_up_in_the_moment_it_fails_leaves_no_error_behind() -> None:
    async def scene() -> None:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(str(context)))
        before = asyncio.all_tasks()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            for turns in range(40):
                attempt = loop.create_task(secure(listening.getsockname()[1], 10.0))
                peer = await accepted(listening)
                await loop.sock_sendall(peer, b"this is no TLS at all")
                # The failure is told over several turns of the loop; given up at each of them.
                for _ in range(turns // 2):
                    await asyncio.sleep(0)
                attempt.cancel()
                with pytest.raises((asyncio.CancelledError, AttemptFailed)):
                    await attempt
                peer.close()
            # Every handshake has ended once its task is gone.
            while asyncio.all_tasks() - before:
                await asyncio.sleep(0.01)
            del attempt
            gc.collect()
        assert not told

    run(scene)


def congestion_control(sock: socket.socket) -> str:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def test_the_congestion_control_is_the_backend_s_and_none_that_paces_within_a_host() -> None:
    # The host's own is among those, and where it is reno nothing else can be told apart.
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    other = next((name for name in allowed if name != "reno"), "reno")

    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            for told, used in ((None, "reno"), (other, other)):
                backend = replace(backend_at(listening.getsockname()[1]), congestion_control=told)
                sock = await connector(5).connect(backend)
                assert congestion_control(sock) == used
                sock.close()

    run(scene)
    with socket.socket() as sock:
        own = congestion_control(sock)
        set_congestion_control(sock, None, "192.0.2.1")
        assert congestion_control(sock) == own


def test_nobody_listens() -> None:
    async def scene() -> None:
        port = free_port()
        with pytest.raises(AttemptFailed, match=f"127.0.0.1 port {port}: Connection refused"):
            await connector(5.0).connect(backend_at(port))

    run(scene)


def test_no_descriptor_is_left() -> None:
    """It is the attempt that fails: the client hears of it, and its connection is not said to have broken."""

    async def scene() -> None:
        port = free_port()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
        try:
            with pytest.raises(AttemptFailed, match="Too many open files"):
                await connector(5.0).connect(backend_at(port))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)

    run(scene)


class SlowNames:
    """The event loop, whose look-ups wait for `answer` and are counted."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.answer = asyncio.Event()
        self.asked: list[str] = []
        self.fails: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    async def getaddrinfo(self, host: str, port: int, **more: Any) -> list[Any]:
        self.asked.append(host)
        await self.answer.wait()
        if self.fails is not None:
            raise self.fails
        return await self.loop.getaddrinfo("127.0.0.1", port, **more)


def test_one_look_up_at_a_time_serves_all_who_wait_for_a_name() -> None:
    async def scene() -> None:
        names = SlowNames()
        connector = Connector(names, lambda: Timeouts(connect=10.0))  # type: ignore[arg-type]
        with socket.create_server(("127.0.0.1", 0), backlog=50) as listening:
            backend = Backend("b0", "rabbit.example.org", listening.getsockname()[1])
            attempts = [asyncio.ensure_future(connector.connect(backend)) for _ in range(20)]
            await asyncio.sleep(0)
            attempts.pop().cancel()
            names.answer.set()
            for sock in await asyncio.gather(*attempts):
                sock.close()
            assert names.asked == ["rabbit.example.org"]
            (await connector.connect(backend)).close()
            assert len(names.asked) == 2, "an answer is nobody's afterwards"

    run(scene)


def test_a_resolver_that_hangs_or_fails_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        names = SlowNames()
        names.answer.set()
        connector = Connector(names, lambda: Timeouts(connect=2.0))  # type: ignore[arg-type]
        with socket.create_server(("127.0.0.1", 0), backlog=50) as listening:
            backend = Backend("b0", "rabbit.example.org", listening.getsockname()[1])
            (await connector.connect(backend)).close()
            names.answer.clear()
            begin = names.loop.time()
            (await connector.connect(backend)).close()
            assert names.loop.time() - begin < 1.5, "a part of the time that an attempt has"
            names.answer.set()
            (await connector.connect(backend)).close()
            names.fails = socket.gaierror(socket.EAI_AGAIN, "try again")
            for _ in range(2):
                (await connector.connect(backend)).close()
            names.fails = socket.gaierror(socket.EAI_NONAME, "unknown")
            names.answer.clear()
            asking = asyncio.ensure_future(connector.connect(backend))
            await asyncio.sleep(0)
            names.answer.set()
            with pytest.raises(AttemptFailed, match=r"the name rabbit.example.org has no address: unknown"):
                await asking
            # That was an answer: what it had before counts no more.
            names.fails = socket.gaierror(socket.EAI_AGAIN, "try again")
            with pytest.raises(AttemptFailed, match="has no address: try again"):
                await connector.connect(backend)

    run(scene)
    words = [record.message for record in caplog.records]
    assert [word.partition(":")[0] for word in words if "answered for" in word] == [
        "a name is not answered for",
        "a name is answered for again",
        "a name is not answered for",
        "a name is answered for again",
    ]


def test_a_name_without_an_answer_yet_takes_an_attempts_time() -> None:
    async def scene() -> None:
        connector = Connector(SlowNames(), lambda: Timeouts(connect=0.3))  # type: ignore[arg-type]
        with pytest.raises(AttemptFailed, match=r"no connection within 0\.3 s"):
            await connector.connect(Backend("b0", "rabbit.example.org", 5672))

    run(scene)


def test_clients_names_that_do_not_come_hold_up_no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def name(address: tuple[str, int], _: int) -> tuple[str, str]:
        answer.wait(30)
        return f"host-{address[0]}", "0"

    monkeypatch.setattr(socket, "getnameinfo", name)

    async def scene() -> None:
        names, loop = ReverseDns(), asyncio.get_running_loop()
        begin = loop.time()
        asking = [asyncio.ensure_future(names.of(f"192.0.2.{number}")) for number in range(100)]
        for _ in range(20):
            await loop.getaddrinfo("localhost", 1)
        assert loop.time() - begin < 1
        assert await asyncio.gather(*asking) == [f"192.0.2.{number}" for number in range(100)]
        assert loop.time() - begin < 5
        answer.set()
        while await names.of("192.0.2.7") != "host-192.0.2.7":
            await asyncio.sleep(0.01)

    run(scene)
