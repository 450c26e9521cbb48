"""One SSH connection to a host and the agent that it carries: what is lost together, and made anew together.

Where the inventory says `ansible_connection: local` there is no SSH, and the rest is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import asyncssh

from brokerdrill.base.clock import ClockOffset, Sample, estimate, now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts.channels import Channel, LocalChannel, SshChannel
from brokerdrill.hosts.login import CONNECT_TIMEOUT_S, asks_password, log_in, root_words, with_sudo
from brokerdrill.hosts.ssh_options import is_local
from brokerdrill.inventory.topology import Host

COPY_TIMEOUT_S = 600
COPY_CHUNK = 1 << 18
CLOCK_SAMPLES = 15
CLOSE_S = 3.0
READY = -1
_AGENT_SOURCE = (Path(__file__).parent / "agent.py").read_text()


class Lost(Exception):
    """The session broke off. `asked`: what was to be asked had been sent by then, so that it may have been done."""

    def __init__(self, why: str, asked: bool) -> None:
        super().__init__(why)
        self.asked = asked


@dataclass
class _End:
    """When (controller's clock, ns) and why a session was lost; None: it is not."""

    at_ns: int | None = None
    why: str = ""

    def came(self, why: str) -> None:
        if self.at_ns is None:
            self.at_ns, self.why = now_ns(), why


class _Client(asyncssh.SSHClient):
    """Takes note of the connection's end."""

    def __init__(self) -> None:
        self.end = _End()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end.came(str(exc) if exc else "the host closed the connection")


@dataclass
class Session:
    """A connection to `host` that lasts until `lost_ns` says when it was lost. `boot_id` and `clock` are those of the
    host as it runs now: another start of it has others."""

    host: Host
    ssh: asyncssh.SSHClientConnection | None
    end: _End
    boot_id: str = ""
    clock: ClockOffset = field(default_factory=ClockOffset)
    _agent: Channel | None = None
    _ids: Iterator[int] = field(default_factory=itertools.count)
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _reader: asyncio.Task[None] | None = None
    _forwards: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def lost_ns(self) -> int | None:
        """When it was lost (controller's clock, ns); None: it is not."""
        return self.end.at_ns

    async def start(self) -> None:
        """Start the agent and measure the host's clock. Raises InfrastructureError."""
        python = str(self.host.vars.get("ansible_python_interpreter", "python3"))
        python = python if python.startswith("/") else "python3"
        ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[READY] = ready
        try:
            self._agent = await self.open([python, "-u", "-c", _AGENT_SOURCE])
            self._reader = asyncio.create_task(self._read(self._agent))
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                self.boot_id = (await ready)["out"]
            await self.measure_clock()
        except TimeoutError:
            raise InfrastructureError(f"host {self.host.name}: python3 does not start there") from None
        except Lost as lost:
            raise InfrastructureError(f"host {self.host.name} is lost: {lost}") from None

    async def _read(self, agent: Channel) -> None:
        async for line in agent.lines():
            # What a login shell says is none of its answers, whatever it is.
            with contextlib.suppress(ValueError, TypeError, LookupError):
                reply = json.loads(line)
                waiter = self._waiting.pop(reply["id"], None)
                if waiter and not waiter.done():
                    waiter.set_result(reply)
        self.end.came("the host closed the connection")
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(Lost(self.end.why, asked=True))

    async def request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the agent's reply. Raises Lost, and InfrastructureError when it does not come within `timeout_s`."""
        if self.lost_ns is not None or self._agent is None:
            raise Lost(self.end.why, asked=False)
        request_id = next(self._ids)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            # `wait_for` would take an answer that comes with a cancellation for the end of it, and go on.
            async with asyncio.timeout(timeout_s):
                await self._agent.write(json.dumps({"id": request_id, **message}))
                return await future
        except TimeoutError:
            raise InfrastructureError(f"host {self.host.name} does not answer within {timeout_s:.0f} s") from None
        except (OSError, asyncssh.Error) as error:
            self.end.came(str(error) or type(error).__name__)
            raise Lost(self.end.why, asked=True) from None
        finally:
            self._waiting.pop(request_id, None)

    async def measure_clock(self) -> ClockOffset:
        """Ask the host's clock CLOCK_SAMPLES times, keep and return the estimate of the quickest answer. Raises as
        `request`."""
        samples = []
        for _ in range(CLOCK_SAMPLES):
            before = now_ns()
            reply = await self.request({"ping": True}, 10)
            samples.append(Sample(before, reply["t0"], now_ns()))
        self.clock = estimate(samples)
        return self.clock

    async def open(self, command: list[str], *, cwd: str = "/") -> Channel:
        """Start `command` with its standard input and output piped to the returned Channel. Raises Lost."""
        words = f"cd {shlex.quote(cwd)} && exec {shlex.join(command)}"
        if self.ssh is None:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
            return LocalChannel(process)
        try:
            return SshChannel(await self._as_root(words, encoding="utf-8"))
        except (OSError, asyncssh.Error) as error:
            self.end.came(str(error) or type(error).__name__)
            raise Lost(self.end.why, asked=True) from None

    async def _as_root(self, words: str, **options: Any) -> asyncssh.SSHClientProcess:
        """Start `words` as root over SSH, its input a pipe."""
        assert self.ssh is not None
        process = await self.ssh.create_process(root_words(self.host, words), **options)
        if asks_password(self.host):
            # By the pipe: a command line can be read by everybody on the host.
            line = f"{self.host.become_password}\n"
            process.stdin.write(line if options.get("encoding") else line.encode())
        return process

    async def copy(self, words: str, *, source: BinaryIO | None = None, sink: io.FileIO | None = None) -> None:
        """Run `words` as root, its input from `source` and its output added to `sink`, byte by byte. Raises Lost, and
        InfrastructureError when it cannot."""
        if self.ssh is None:
            await self._copy_here(words, source, sink)
            return
        try:
            process = await self._as_root(words, stderr=asyncssh.DEVNULL, encoding=None)
            # Copied here: the library ends the whole connection when a disk is full.
            async with process, asyncio.timeout(COPY_TIMEOUT_S):
                while source and (data := source.read(COPY_CHUNK)):
                    process.stdin.write(data)
                    await process.stdin.drain()
                process.stdin.write_eof()
                while chunk := await process.stdout.read(COPY_CHUNK):
                    if sink:
                        _write(sink, chunk)
                status = (await process.wait()).exit_status
        except (OSError, asyncssh.Error) as error:
            if self.lost_ns is not None:
                raise Lost(self.end.why, asked=True) from None
            why = str(error) or f"not done within {COPY_TIMEOUT_S} s"
            raise InfrastructureError(f"host {self.host.name}: copying fails: {why}: {words}") from None
        if self.lost_ns is not None:
            raise Lost(self.end.why, asked=True)
        if status != 0:
            raise InfrastructureError(f"host {self.host.name}: copying fails: {words!r} ends with status {status}")

    async def _copy_here(self, words: str, source: BinaryIO | None, sink: io.FileIO | None) -> None:
        nothing = asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", words, stdin=source or nothing, stdout=sink or nothing
            )
            status = await process.wait()
        except OSError as error:
            raise InfrastructureError(f"host {self.host.name}: copying fails: {error}") from None
        if status != 0:
            raise InfrastructureError(f"host {self.host.name}: copying fails: {words!r} ends with status {status}")

    async def forward(self, address: str, port: int) -> int:
        """Return a loopback port of the controller that leads to (`address`, `port`) as the host sees it, the same each
        time. Raises Lost."""
        if self.ssh is None:
            return port
        if (address, port) not in self._forwards:
            try:
                listener = await self.ssh.forward_local_port("127.0.0.1", 0, address, port)
            except (OSError, asyncssh.Error) as error:
                self.end.came(str(error) or type(error).__name__)
                raise Lost(self.end.why, asked=False) from None
            self._forwards[address, port] = listener.get_port()
        return self._forwards[address, port]

    async def close(self) -> None:
        """Close it, as far as it is not closed. Waits CLOSE_S at the most."""
        with contextlib.suppress(OSError, asyncssh.Error):
            if self._agent is not None:
                await self._agent.close()
        if self._reader:
            self._reader.cancel()
        if self.ssh is not None:
            self.ssh.close()
            with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
                await asyncio.wait_for(self.ssh.wait_closed(), CLOSE_S)


async def begin(host: Host, timeout_s: float = CONNECT_TIMEOUT_S) -> Session:
    """Connect to `host` and start the agent there; it lets us in within `timeout_s`. Raises AnotherHost and
    InfrastructureError, naming the host, when it cannot; nothing is left open then."""
    if is_local(host):
        session = Session(host, None, _End())
    else:
        ssh = await log_in(host, _Client, timeout_s)
        owner = ssh.get_owner()
        assert isinstance(owner, _Client)
        session = Session(await with_sudo(host, ssh), ssh, owner.end)
    try:
        await session.start()
    except BaseException:
        await session.close()
        raise
    return session


def _write(file: io.FileIO, data: bytes) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise InfrastructureError(f"{file.name} cannot be written: {error.strerror}") from None
