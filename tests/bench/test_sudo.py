"""A host whose user becomes root by a sudo that asks for a password: all that a drill does there, and what is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from brokerdrill.base import paths
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.bench import bench
from brokerdrill.bench.keys import ssh_command
from brokerdrill.hosts.connection import HostConnection, connect
from brokerdrill.inventory.topology import Host, load

pytestmark = pytest.mark.bench

ADDRESS = "172.30.252.11"
USER = "deployer"
PASSWORD = f"of {secrets.token_hex(8)} 'two' words"
INVENTORY = """\
all:
  vars:
    bench_subnet: 172.30.252.0/24
    bench_memory: 256m
    ansible_user: {user}
    ansible_ssh_private_key_file: {key}
    ansible_ssh_common_args: "-o StrictHostKeyChecking=no"
    secret_of_sudo: {password}
    ansible_become_password: "{{{{ secret_of_sudo }}}}"
  hosts:
    one: {{ansible_host: {address}}}
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    key = paths.cache() / "bench" / "id_ed25519"
    directory = tmp_path_factory.mktemp("inventories") / "sudo_selftest"
    directory.mkdir()

    def read(user: str) -> Host:
        text = INVENTORY.format(user=user, key=key, password=json.dumps(PASSWORD), address=ADDRESS)
        (directory / "hosts.yml").write_text(text)
        return load(directory).host("one")

    root = read("root")
    topology = load(directory)
    bench.down(topology.name)
    bench.up(topology)
    script = f"""set -e
    useradd -m -s /bin/bash -G sudo {USER}
    chpasswd
    cp -r /root/.ssh /home/{USER}/ && chown -R {USER}: /home/{USER}/.ssh"""
    subprocess.run([*ssh_command(root), script], input=f"{USER}:{PASSWORD}\n", text=True, check=True, timeout=60)
    yield read(USER)
    bench.down(topology.name)


@contextlib.asynccontextmanager
async def connected(host: Host) -> AsyncIterator[HostConnection]:
    connection = await connect(host)
    try:
        yield connection
    finally:
        await connection.close()


async def uses(connection: HostConnection, tmp_path: Path) -> None:
    """All that a drill does on a host, byte for byte."""
    assert (await connection.sh("id -u; cat", stdin="said")).out == "0\nsaid"
    sent, back = tmp_path / "sent", tmp_path / "back"
    sent.write_bytes(b"\x00first\nsecond\xff" * 100_000)
    await connection.put(sent, "/root/sent")
    await connection.fetch("/root/sent", back)
    assert back.read_bytes() == sent.read_bytes()
    channel = await connection.open(["sh", "-c", "id -u; cat; exit 3"])
    await channel.write("a line")
    await channel.end_input()
    assert [line async for line in channel.lines()] == ["0\n", "a line\n"]
    assert (await channel.ending()).how == "it ended with status 3"


def test_sudo_that_asks_is_given_the_inventorys_password(host: Host, tmp_path: Path) -> None:
    async def drill() -> None:
        async with connected(host) as connection:
            await uses(connection, tmp_path)
            waiting = await connection.open(["cat"])
            told = await connection.sh("ps axww -o args; journalctl -q --no-pager; cat /proc/[0-9]*/environ")
            assert "_serve()" in told.out and PASSWORD not in told.out
            await waiting.close()

    asyncio.run(drill())
    assert "ansible_become_password" not in host.vars


def test_a_password_is_not_said_to_a_sudo_that_does_not_ask(host: Host, tmp_path: Path) -> None:
    async def drill() -> None:
        async with connected(host) as connection:
            await connection.sh(f"echo '{USER} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{USER}", check=True)
            try:
                async with connected(host) as free:
                    await uses(free, tmp_path)
            finally:
                await connection.sh(f"rm /etc/sudoers.d/{USER}", check=True)

    asyncio.run(drill())


@pytest.mark.parametrize(
    ("password", "told"),
    [
        (None, "host one: sudo asks deployer for a password, and the inventory has none"),
        ("another", "host one: sudo does not take the inventory's password for deployer: sudo: .*incorrect password"),
    ],
)
def test_what_sudo_refuses_is_told(host: Host, password: str | None, told: str) -> None:
    with pytest.raises(InfrastructureError, match=told):
        asyncio.run(connect(replace(host, become_password=password)))
