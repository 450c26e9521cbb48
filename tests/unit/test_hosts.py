"""Processes on hosts: a line is one line, however the SSH library hands it out; an end has its reason."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerdrill.hosts.connection import HostConnection, _SshChannel


async def pieces() -> AsyncIterator[str]:
    for piece in ("short\n", "a line that ", "outgrew the ", "buffer\n", "next\n", "torn off"):
        yield piece


def test_a_line_above_the_librarys_buffer_is_put_together_again() -> None:
    async def read() -> list[str]:
        channel = _SshChannel(cast(Any, SimpleNamespace(stdout=pieces())))
        return [line async for line in channel.lines()]

    assert asyncio.run(read()) == ["short\n", "a line that outgrew the buffer\n", "next\n"]


@pytest.mark.parametrize(
    ("words", "told"), [("exit 3", "it ended with status 3"), ("kill -9 $$", "it ended with signal KILL")]
)
def test_a_process_that_ends_early_says_how(words: str, told: str) -> None:
    async def ended() -> str:
        connection = HostConnection(host=cast(Any, None), _ssh=None, _agent=cast(Any, None))
        channel = await connection.open(["/bin/sh", "-c", words])
        assert [line async for line in channel.lines()] == []
        return await channel.ending()

    assert asyncio.run(ended()) == told
