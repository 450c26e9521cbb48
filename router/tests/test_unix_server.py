"""Who stops serving a Unix socket leaves its file to those who serve it on."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from amqp_session_router.net import unix_server


async def _ignored(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_the_file_stays_for_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "leader"

    async def served() -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen()
        server = await unix_server.serve(_ignored, listening.dup())
        server.close()
        await server.wait_closed()
        later = await unix_server.serve(_ignored, listening)
        reader, writer = await asyncio.open_unix_connection(str(path))
        assert await reader.read() == b""
        writer.close()
        later.close()

    asyncio.run(served())


@pytest.mark.parametrize(("version", "told"), [((3, 12, 9), {}), ((3, 13, 0), {"cleanup_socket": False})])
def test_a_python_that_would_remove_it_is_told_not_to(
    version: tuple[int, int, int], told: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Python is older than 3.13 the test before cannot fail."""
    seen: dict[str, Any] = {}

    async def start(handler: Any, **options: Any) -> None:
        seen.update(options)

    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(asyncio, "start_unix_server", start)
    with socket.socket(socket.AF_UNIX) as listening:
        asyncio.run(unix_server.serve(_ignored, listening, limit=7))
    assert seen == {"sock": listening, "limit": 7} | told
