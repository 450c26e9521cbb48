"""TLS over a plain connection, both ends of it the router's."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from test_clients import certificate
from test_flow import pair, run
from test_transport import until

from amqp_session_router.net import tls_transport
from amqp_session_router.net.event_loop import EventLoop
from amqp_session_router.net.poller import Poller
from amqp_session_router.net.tls_transport import TlsTransport
from amqp_session_router.net.transport import SocketTransport

VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])


def contexts(
    directory: Path, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a client, which trusts the server alone, and of the server."""
    cert, key = certificate(directory)
    client = ssl.create_default_context(cafile=str(cert))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    client.maximum_version = client.minimum_version = version
    return client, server


@contextlib.asynccontextmanager
async def ends(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost"
) -> AsyncIterator[tuple[TlsTransport, TlsTransport]]:
    """Give both ends of a connection, before their handshake."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, EventLoop)
    poller = Poller(loop)
    sockets = pair()
    for sock in sockets:
        sock.setblocking(False)
    first, second = (SocketTransport(loop, sock, poller) for sock in sockets)
    yield TlsTransport(loop, first, client, name), TlsTransport(loop, second, server)
    for raw in (first, second):
        raw.abort()
    poller.close()


async def shaken(*both: TlsTransport) -> list[BaseException | None]:
    """Do the handshakes of both ends; return how each ended."""
    return await asyncio.gather(*(one.handshake() for one in both), return_exceptions=True)


@VERSIONS
def test_all_arrives_as_it_was_sent_and_then_the_end(tmp_path: Path, version: ssl.TLSVersion) -> None:
    async def scene() -> None:
        async with ends(*contexts(tmp_path, version)) as (client, server):
            assert await shaken(client, server) == [None, None]
            # Before anybody reads, and then more than the kernel takes at once.
            client.send(b"early")
            got, back, told = bytearray(), bytearray(), list[bytes]()
            await asyncio.sleep(0.05)

            def take(data: bytes) -> None:
                got.extend(data)
                if not data:
                    told.append(b"")

            server.watch(take)
            large = bytes(range(256)) * 40_000
            client.send(large)
            assert client.full
            drained = asyncio.Event()
            client.on_drained = drained.set
            client.watch(back.extend)
            server.send(b"the other way")
            await drained.wait()
            await until(lambda: len(got) == len(large) + 5 and back)
            assert got == b"early" + large and back == b"the other way" and not client.full
            client.close()
            await until(lambda: told)
            assert told == [b""] and server.error is None
            # Nobody is asked again, and who comes later hears of the end, too.
            server.watch(take)
            await until(lambda: len(told) == 2)

    run(scene)


@VERSIONS
def test_who_stops_reading_gets_nothing_and_loses_nothing(tmp_path: Path, version: ssl.TLSVersion) -> None:
    async def scene() -> None:
        async with ends(*contexts(tmp_path, version)) as (client, server):
            assert await shaken(client, server) == [None, None]
            got = bytearray()
            large = bytes(range(256)) * 8_000

            def one_piece(data: bytes) -> None:
                got.extend(data)
                server.unwatch()

            client.send(large)
            while len(got) < len(large):
                seen = len(got)
                server.watch(one_piece)
                await until(lambda seen=seen: len(got) > seen)  # type: ignore[misc]
                now = len(got)
                await asyncio.sleep(0.002)
                assert len(got) == now
            assert got == large

    run(scene)


@VERSIONS
def test_a_peer_that_is_cut_off_is_an_end(tmp_path: Path, version: ssl.TLSVersion) -> None:
    async def scene() -> None:
        async with ends(*contexts(tmp_path, version)) as (client, server):
            assert await shaken(client, server) == [None, None]
            told: list[bytes] = []
            server.watch(told.append)
            client.abort()
            await until(lambda: told)
            assert told == [b""] and isinstance(server.error, ConnectionResetError)
            server.send(b"to nobody")
            server.close()

    run(scene)


@VERSIONS
def test_bytes_that_nobody_read_do_not_turn_the_end_into_a_reset(tmp_path: Path, version: ssl.TLSVersion) -> None:
    async def scene() -> None:
        async with ends(*contexts(tmp_path, version)) as (client, server):
            assert await shaken(client, server) == [None, None]
            got: list[bytes] = []
            client.send(bytes(100_000))
            server.send(b"the last word")
            server.close()
            server.close()
            await asyncio.sleep(0.05)
            client.send(bytes(100_000))
            client.watch(got.append)
            await until(lambda: got and not got[-1])
            assert b"".join(got) == b"the last word" and client.error is None
            client.close()
            await until(lambda: server.own_address() == ("0.0.0.0", 0))

    run(scene)


@VERSIONS
def test_a_peer_that_does_not_end_is_cut_off(
    tmp_path: Path, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_transport, "_LINGER", 0.1)

    async def scene() -> None:
        async with ends(*contexts(tmp_path, version)) as (client, server):
            assert await shaken(client, server) == [None, None]
            server.close()
            await until(lambda: server.own_address() == ("0.0.0.0", 0))
            client.abort()

    run(scene)


def test_what_waits_for_the_peers_word_is_sent_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where TLS 1.2 negotiates anew."""

    class Negotiating:
        """A TLS session that once cannot write before it has read."""

        def __init__(self, session: ssl.SSLObject) -> None:
            self.session, self.blocked = session, True

        def __getattr__(self, name: str) -> Any:
            return getattr(self.session, name)

        def write(self, data: bytes) -> int:
            if self.blocked:
                raise ssl.SSLWantReadError
            return self.session.write(data)

    async def scene() -> None:
        async with ends(*contexts(tmp_path, ssl.TLSVersion.TLSv1_2)) as (client, server):
            assert await shaken(client, server) == [None, None]
            session = Negotiating(client.tls)
            monkeypatch.setattr(client, "_tls", session)
            got, drained = bytearray(), asyncio.Event()
            client.on_drained = drained.set
            client.watch(lambda _: None)
            server.watch(got.extend)
            client.send(b"first")
            client.send(b" and second")
            assert client.full
            session.blocked = False
            server.send(b"go on")
            await drained.wait()
            assert not client.full
            await until(lambda: got == b"first and second")

    run(scene)


def test_closing_what_is_closed_waits_for_nobody(tmp_path: Path) -> None:
    async def scene() -> None:
        async with ends(*contexts(tmp_path), name="another") as (client, server):
            first, _ = await shaken(client, server)
            assert isinstance(first, ssl.SSLError)
            client.close()
            assert client._lingering is None

    run(scene)


@VERSIONS
def test_a_wrong_name_is_refused_and_the_peer_is_told(tmp_path: Path, version: ssl.TLSVersion) -> None:
    async def scene() -> None:
        async with ends(*contexts(tmp_path, version), name="another") as (client, server):
            told: list[bytes] = []
            first, second = await shaken(client, server)
            assert isinstance(first, ssl.SSLCertVerificationError) and "another" in first.verify_message
            if second is None:
                # In TLS 1.3 a server is done before its client.
                server.watch(told.append)
                await until(lambda: told)
                assert told == [b""]
            else:
                assert isinstance(second, ssl.SSLError) and second.reason == "SSLV3_ALERT_BAD_CERTIFICATE"

    run(scene)


def test_a_handshake_that_is_given_up_or_cut_off_ends(tmp_path: Path) -> None:
    async def scene() -> None:
        client, server = contexts(tmp_path)
        async with ends(client, server) as (first, second):
            waiting = asyncio.ensure_future(second.handshake())
            await asyncio.sleep(0.01)
            second.abort()
            with pytest.raises(ConnectionAbortedError):
                await waiting
            with pytest.raises(ConnectionResetError):
                await first.handshake()
        async with ends(client, server) as (first, second):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await first.handshake()
            with pytest.raises(OSError):
                await second.handshake()

    run(scene)


def test_what_is_no_tls_is_an_error(tmp_path: Path) -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, EventLoop)
        poller = Poller(loop)
        peer, sock = pair()
        sock.setblocking(False)
        server = TlsTransport(loop, SocketTransport(loop, sock, poller), contexts(tmp_path)[1])
        peer.sendall(b"AMQP\x00\x00\x09\x01")
        with pytest.raises(ssl.SSLError, match="WRONG_VERSION_NUMBER"):
            await server.handshake()
        peer.shutdown(socket.SHUT_WR)
        peer.close()
        poller.close()

    run(scene)
