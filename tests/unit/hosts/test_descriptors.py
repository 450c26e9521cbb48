"""Processes on hosts: a line is one line, however the SSH library hands it out; an end has its reason."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts import login
from brokerdrill.hosts.channels import SshChannel
from brokerdrill.hosts.connection import Result, connected
from brokerdrill.hosts.login import with_sudo
from brokerdrill.hosts.session import Session, _End
from brokerdrill.inventory.topology import Host


async def pieces() -> AsyncIterator[str]:
    for piece in ("short\n", "a line that ", "outgrew the ", "buffer\n", "next\n", "torn off"):
        yield piece


def test_a_line_above_the_librarys_buffer_is_put_together_again() -> None:
    async def read() -> list[str]:
        channel = SshChannel(cast(Any, SimpleNamespace(stdout=pieces())))
        return [line async for line in channel.lines()]

    assert asyncio.run(read()) == ["short\n", "a line that outgrew the buffer\n", "next\n"]


def test_a_long_line_of_a_process_on_this_machine_is_one_line() -> None:
    async def read() -> list[int]:
        channel = await Session(cast(Any, None), None, _End()).open(
            ["python3", "-c", "print('x' * 3_000_000); print('y'); print('z', end='')"]
        )
        return [len(line) async for line in channel.lines()]

    assert asyncio.run(read()) == [3_000_001, 2, 1]


@pytest.mark.parametrize(
    ("words", "told"), [("exit 3", "it ended with status 3"), ("kill -9 $$", "it ended with signal KILL")]
)
def test_a_process_that_ends_early_says_how(words: str, told: str) -> None:
    async def ended() -> str:
        channel = await Session(cast(Any, None), None, _End()).open(["/bin/sh", "-c", words])
        assert [line async for line in channel.lines()] == []
        return (await channel.ending()).how

    assert asyncio.run(ended()) == told


class Ssh:
    """A connection whose sudo waits for ever, or answers with `status`."""

    def __init__(self, status: int | None = None) -> None:
        self.status, self.closed = status, False

    async def run(self, *_: Any, **__: Any) -> SimpleNamespace:
        if self.status is None:
            await asyncio.Future()
        return SimpleNamespace(exit_status=self.status, stderr="")

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, _: str) -> None:
        return None


@pytest.mark.parametrize(
    ("status", "told"),
    [(None, "host h: sudo does not answer within 0.05 s"), (1, "host h: sudo asks u for a password")],
)
def test_a_sudo_that_does_not_let_in_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, status: int | None, told: str
) -> None:
    monkeypatch.setattr(login, "CONNECT_TIMEOUT_S", 0.05)
    ssh = Ssh(status)
    with pytest.raises(InfrastructureError, match=told):
        asyncio.run(with_sudo(Host("h", "h", 22, "u", None, (), {}), cast(Any, ssh)))
    assert ssh.closed


def test_sudo_by_its_full_name_is_sudo() -> None:
    host = Host("h", "h", 22, "u", None, (), {"ansible_become_method": "ansible.builtin.sudo"})
    assert asyncio.run(with_sudo(host, cast(Any, Ssh(0)))) == host


def test_a_script_that_cannot_be_begun_is_answered() -> None:
    async def told() -> Result:
        async with connected([Host("h", "h", 22, "root", None, (), {"ansible_connection": "local"})]) as connections:
            return await connections["h"].sh(f": {'x' * 200_000}", timeout=5)

    assert asyncio.run(told()).err.endswith("Argument list too long: '/bin/sh'")
