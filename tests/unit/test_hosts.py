"""A line of a host's agent is one line, however the SSH library hands it out."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

from brokerdrill.hosts.connection import _SshChannel


async def pieces() -> AsyncIterator[str]:
    for piece in ("short\n", "a line that ", "outgrew the ", "buffer\n", "next\n", "torn off"):
        yield piece


def test_a_line_above_the_librarys_buffer_is_put_together_again() -> None:
    async def read() -> list[str]:
        channel = _SshChannel(cast(Any, SimpleNamespace(stdout=pieces())))
        return [line async for line in channel.lines()]

    assert asyncio.run(read()) == ["short\n", "a line that outgrew the buffer\n", "next\n"]
