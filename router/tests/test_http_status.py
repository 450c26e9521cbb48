"""The status page towards clients that do not read."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable

import pytest

from amqp_session_router.telemetry import http_status
from amqp_session_router.telemetry.http_status import Answer, StatusServer, json_answer

BODY = b"x" * (8 << 20)


async def page() -> Answer:
    return 200, "text/plain", BODY


async def ready() -> Answer:
    return json_answer(200, {"status": "ready"})


async def asked(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    return reader, writer


def served(scene: Callable[[StatusServer], Awaitable[None]]) -> None:
    async def run() -> None:
        server = StatusServer({"/metrics": page, "/ready": ready})
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(60):
                await scene(server)
        finally:
            await server.stop()

    asyncio.run(run())


def bodies() -> int:
    """How many connections of the server are there."""
    gc.collect()
    return sum(getattr(task.get_coro(), "__qualname__", "").endswith("_serve") for task in asyncio.all_tasks())


def test_who_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_status, "_ANSWERED", 0.3)

    async def scene(server: StatusServer) -> None:
        waiting = [await asked(server.port, "/metrics") for _ in range(30)]
        while not bodies():
            await asyncio.sleep(0.01)
        while bodies():
            await asyncio.sleep(0.01)
        for _, writer in waiting:
            writer.close()

    served(scene)


def test_large_answers_under_way_have_a_bound_and_small_ones_none() -> None:
    async def scene(server: StatusServer) -> None:
        waiting = [await asked(server.port, "/metrics") for _ in range(http_status._MOST)]
        while server._large < http_status._MOST:
            await asyncio.sleep(0.01)
        for path, status in (("/metrics", b"503"), ("/ready", b"200")):
            reader, writer = await asked(server.port, path)
            assert (await reader.readline()).split()[1] == status
            writer.close()
        # One of them reads: there is room for another.
        reader, writer = waiting.pop()
        while len(await reader.read(1 << 20)):
            pass
        writer.close()
        while server._large >= http_status._MOST:
            await asyncio.sleep(0.01)
        for _, writer in waiting:
            writer.transport.abort()

    served(scene)
