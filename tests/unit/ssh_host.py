"""A host for tests: a real SSH server on loopback behind a network that can be cut, which can restart."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from brokerdrill.hosts import login, session
from brokerdrill.inventory.topology import Host
from tests.free_ports import free_port

KEY = asyncssh.generate_private_key("ssh-ed25519")


class _Server(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False

    def connection_requested(self, *_: Any) -> bool:
        return True


class SshHost:
    """The host `h`: each start has a boot id and a monotonic clock of its own, both in a file that its agent reads."""

    def __init__(self, folder: Path) -> None:
        self._start_file = folder / "start.json"
        self._network, self._listener = free_port(), free_port()
        self._server: asyncssh.SSHAcceptor | None = None
        self._outside: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._processes: set[asyncio.subprocess.Process] = set()
        self._through = asyncio.Event()
        self._relays: set[asyncio.Task[None]] = set()
        self.host = Host("h", "127.0.0.1", self._network, "root", None, (), {
            "ansible_ssh_common_args": "-o StrictHostKeyChecking=no",
            "drill_reconnect_s": 20,
        })  # fmt: skip

    def agent_source(self) -> str:
        """The agent's source, with the boot id and the clock of this host in place of the machine's."""
        source = session._AGENT_SOURCE
        boot = f'json.loads(pathlib.Path("{self._start_file}").read_text())'
        source = source.replace(
            'pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()', f'{boot}["boot_id"]'
        ).replace("time.monotonic_ns()", "(time.monotonic_ns() - _BEGAN)")
        return source.replace("_write_lock =", f'_BEGAN = {boot}["began_ns"]\n_write_lock =')

    async def start(self, began_ns: int = 0) -> None:
        """Let it run; its monotonic clock shows 0 when this machine's shows `began_ns`."""
        self._start_file.write_text(json.dumps({"boot_id": str(uuid.uuid4()), "began_ns": began_ns}))
        self._server = await asyncssh.listen(
            "127.0.0.1", self._listener, server_host_keys=[KEY], server_factory=_Server, process_factory=self._process
        )
        self._through.set()
        self._outside = await asyncio.start_server(self._accept, "127.0.0.1", self._network)

    async def stop(self) -> None:
        """Let it end, with all that runs on it."""
        for process in list(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        assert self._server is not None and self._outside is not None
        self._outside.close()
        self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()  # type: ignore[attr-defined]
        await self._server.wait_closed()

    def cut(self) -> None:
        """From now on nothing passes the network to it, in neither direction."""
        self._through.clear()

    def mend(self) -> None:
        """End the cut; what was sent meanwhile passes now."""
        self._through.set()

    async def _process(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        pipe = asyncio.subprocess.PIPE
        run = await asyncio.create_subprocess_shell(process.command or ":", stdin=pipe, stdout=pipe, stderr=pipe)
        self._processes.add(run)
        await process.redirect(stdin=run.stdin, stdout=run.stdout, stderr=run.stderr)
        status = await run.wait()
        self._processes.discard(run)
        process.exit(status)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._through.wait()
        try:
            inside, outside = await asyncio.open_connection("127.0.0.1", self._listener)
        except OSError:
            writer.transport.abort()  # type: ignore[attr-defined]
            return
        self._connections |= {writer, outside}
        self._relays |= {asyncio.create_task(self._relay(*pair)) for pair in ((reader, outside), (inside, writer))}

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                await self._through.wait()
                sink.write(data)
                await sink.drain()
            await self._through.wait()
            sink.close()

    async def end(self) -> None:
        with contextlib.suppress(AssertionError):
            await self.stop()
        for relay in self._relays:
            relay.cancel()


@contextlib.asynccontextmanager
async def ssh_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SshHost]:
    """Yield a host that runs. A lost connection to it is noticed within a second."""
    host = SshHost(folder)
    monkeypatch.setattr(login, "KEEPALIVE_S", 0.2)
    monkeypatch.setattr(session, "_AGENT_SOURCE", host.agent_source())
    await host.start()
    try:
        yield host
    finally:
        await host.end()
