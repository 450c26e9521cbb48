"""Connections to hosts: one kept-open channel each, commands with their times, clocks, files and forwarded ports.

A host is reached by SSH, or directly where the inventory says `ansible_connection: local`. Everything above this module
sees the same `HostConnection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import shlex
import signal
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import asyncssh

from brokerdrill.base.clock import Clock, Sample, estimate, now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.inventory.topology import Host

CONNECT_TIMEOUT_S = 15
COPY_TIMEOUT_S = 600
COPY_CHUNK = 1 << 18
CLOCK_SAMPLES = 15
ENDING_S = 5.0
_AGENT_SOURCE = (Path(__file__).parent / "agent.py").read_text()


@dataclass(frozen=True)
class Result:
    """What a script did: exit status, output, and its begin and end in ns on the host's monotonic clock."""

    rc: int
    out: str
    err: str
    t0_ns: int
    t1_ns: int


@dataclass(frozen=True)
class Ending:
    """How a process ended, in words, and all that it wrote to standard error where that is the channel's own."""

    how: str
    said: str = ""


class Channel(Protocol):
    """A process with line-wise pipes, wherever it runs."""

    async def write(self, line: str) -> None: ...

    async def lines(self) -> AsyncIterator[str]:
        yield ""

    async def end_input(self) -> None: ...

    async def ending(self) -> Ending:
        """Wait until it has ended; return how."""
        ...

    async def close(self) -> None: ...


class _SshChannel:
    def __init__(self, process: asyncssh.SSHClientProcess) -> None:
        self._process = process

    async def write(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[str]:
        # The library hands out a line that outgrows its buffer (2 MiB) in pieces: a long log comes in one line.
        pieces: list[str] = []
        async for piece in self._process.stdout:
            pieces.append(piece)
            if piece.endswith("\n"):
                yield "".join(pieces)
                pieces.clear()

    async def end_input(self) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            self._process.stdin.write_eof()

    async def ending(self) -> Ending:
        try:
            done = await self._process.wait(timeout=ENDING_S)
        except (OSError, TimeoutError, asyncssh.Error):
            return Ending("its connection was lost")
        if done.exit_signal:
            how = f"signal {done.exit_signal[0]}"
        else:
            how = "no status" if done.exit_status is None else f"status {done.exit_status}"
        return Ending(f"it ended with {how}", str(done.stderr or ""))

    async def close(self) -> None:
        await self.end_input()
        self._process.close()


class _LocalChannel:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[str]:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield line.decode(errors="replace")

    async def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def ending(self) -> Ending:
        status = await self._process.wait()
        how = f"signal {signal.Signals(-status).name[3:]}" if status < 0 else f"status {status}"
        return Ending(f"it ended with {how}")

    async def close(self) -> None:
        await self.end_input()
        with contextlib.suppress(ProcessLookupError, asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), 5)


@dataclass
class HostConnection:
    """One host, connected: `sh` runs a script there, `clock` relates its monotonic clock to the controller's."""

    host: Host
    _ssh: asyncssh.SSHClientConnection | None
    _agent: Channel
    clock: Clock = field(default_factory=Clock)
    _ids: Iterable[int] = field(default_factory=itertools.count)
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _reader: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.host.name

    async def _read(self) -> None:
        async for line in self._agent.lines():
            with contextlib.suppress(ValueError):
                reply = json.loads(line)
                waiter = self._waiting.pop(reply["id"], None)
                if waiter and not waiter.done():
                    waiter.set_result(reply)
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(InfrastructureError(f"host {self.name} closed the connection"))

    async def _request(self, message: dict[str, Any], timeout: float) -> dict[str, Any]:
        request_id = next(iter(self._ids))
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            await self._agent.write(json.dumps({"id": request_id, **message}))
            # `wait_for` would take an answer that comes with a cancellation for the end of it, and go on.
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise InfrastructureError(f"host {self.name} does not answer within {timeout:.0f} s") from None
        except (OSError, asyncssh.Error) as error:
            raise InfrastructureError(f"host {self.name} is lost: {error}") from None
        finally:
            self._waiting.pop(request_id, None)

    async def sh(self, script: str, *, stdin: str = "", timeout: float = 30, check: bool = False) -> Result:
        """Run `script` with /bin/sh as root and return its Result.

        Raises InfrastructureError when the host does not answer or, with `check`, when the script fails.
        """
        reply = await self._request({"sh": script, "stdin": stdin, "timeout": timeout}, timeout + 10)
        result = Result(reply["rc"], reply["out"], reply["err"], reply["t0"], reply["t1"])
        if check and result.rc != 0:
            what = (result.err or result.out).strip().splitlines()
            raise InfrastructureError(f"host {self.name}: {what[-1] if what else f'exit status {result.rc}'}")
        return result

    async def measure_clock(self) -> Clock:
        """Ask the host's clock CLOCK_SAMPLES times and keep the estimate of the quickest answer."""
        samples = []
        for _ in range(CLOCK_SAMPLES):
            before = now_ns()
            reply = await self._request({"ping": True}, 10)
            samples.append(Sample(before, reply["t0"], now_ns()))
        self.clock = estimate(samples)
        return self.clock

    async def open(self, command: list[str], *, cwd: str = "/") -> Channel:
        """Start `command` on the host with its standard input and output piped to the returned Channel."""
        words = f"cd {shlex.quote(cwd)} && exec {shlex.join(command)}"
        if self._ssh is None:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=2**20,
                start_new_session=True,
            )
            return _LocalChannel(process)
        return _SshChannel(await self._as_root(words, encoding="utf-8"))

    async def _as_root(self, words: str, **options: Any) -> asyncssh.SSHClientProcess:
        """Start `words` as root over SSH, its input a pipe."""
        assert self._ssh is not None
        process = await self._ssh.create_process(_root_words(self.host, words), **options)
        if _asked(self.host):
            # By the pipe: a command line can be read by everybody on the host.
            line = f"{self.host.become_password}\n"
            process.stdin.write(line if options.get("encoding") else line.encode())
        return process

    async def fetch(self, remote: str, local: Path, *, offset: int = 0) -> None:
        """Copy the file `remote` of the host to `local`; from its byte `offset` on to the end of what is in `local`.
        Raises InfrastructureError when it cannot; what came by then is in `local`."""
        words = f"exec tail -c +{offset + 1} -- {shlex.quote(remote)}"
        if not offset:
            local.unlink(missing_ok=True)
        with _opened(local) as file:
            if self._ssh is None:
                await self._locally(words, asyncio.subprocess.DEVNULL, file)
            else:
                await self._copied(words, remote, sink=file)

    async def put(self, local: Path, remote: str) -> None:
        """Copy the local file to `remote` on the host. Raises InfrastructureError when it cannot."""
        words = f"exec cat > {shlex.quote(remote)}"
        with local.open("rb") as source:
            if self._ssh is None:
                await self._locally(words, source, asyncio.subprocess.DEVNULL)
            else:
                await self._copied(words, remote, source=source)

    async def _locally(self, words: str, stdin: Any, stdout: Any) -> None:
        try:
            process = await asyncio.create_subprocess_exec("/bin/sh", "-c", words, stdin=stdin, stdout=stdout)
            status = await process.wait()
        except OSError as error:
            raise InfrastructureError(f"host {self.name}: copying fails: {error}") from None
        if status != 0:
            raise InfrastructureError(f"host {self.name}: copying fails: {words!r} ends with status {status}")

    async def _copied(
        self, words: str, remote: str, *, source: BinaryIO | None = None, sink: io.FileIO | None = None
    ) -> None:
        """Run `words` as root over SSH with its input from `source` and its output added to `sink`, byte by byte."""
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
            why = str(error) or f"not done within {COPY_TIMEOUT_S} s"
            raise InfrastructureError(f"host {self.name}: copying {remote} fails: {why}") from None
        if status != 0:
            raise InfrastructureError(f"host {self.name}: copying {remote} ends with status {status}")

    async def forward(self, address: str, port: int) -> int:
        """Return a loopback port of the controller that leads to (`address`, `port`) as the host sees it."""
        if self._ssh is None:
            return port
        listener = await self._ssh.forward_local_port("127.0.0.1", 0, address, port)
        return listener.get_port()

    async def close(self) -> None:
        await self._agent.close()
        if self._reader:
            self._reader.cancel()
        if self._ssh is not None:
            self._ssh.close()
            with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
                await asyncio.wait_for(self._ssh.wait_closed(), 3)


def _opened(path: Path) -> io.FileIO:
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be written: {error.strerror}") from None


def _write(file: io.FileIO, data: bytes) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise InfrastructureError(f"{file.name} cannot be written: {error.strerror}") from None


def _asked(host: Host) -> bool:
    """Whether sudo asks for the password on that host."""
    return host.user != "root" and host.become_password is not None


def _root_words(host: Host, words: str) -> str:
    """`words` for a shell of the host's user, run by root. Where sudo asks for a password it reads it as the first line
    of the input: each time (-k), so that none is left over for the words themselves."""
    if host.user == "root":
        return words
    how = "-k -S -p ''" if _asked(host) else "-n"
    return f"sudo {how} /bin/sh -c {shlex.quote(words)}"


async def _may_be_root(host: Host, ssh: asyncssh.SSHClientConnection) -> Host:
    """Return `host` as its sudo is: without the password of the inventory where sudo asks for none.

    Raises InfrastructureError where the host's user cannot become root.
    """
    if host.user == "root":
        return host
    method = host.vars.get("ansible_become_method", "sudo")
    if str(method).removeprefix("ansible.builtin.") != "sudo":
        raise InfrastructureError(
            f"host {host.name}: a drill becomes root by sudo, not by {method} (ansible_become_method)"
        )
    without = replace(host, become_password=None)
    if (await ssh.run("sudo -k -n /bin/sh -c :")).exit_status == 0:
        return without
    if host.become_password is None:
        raise InfrastructureError(
            f"host {host.name}: sudo asks {host.user} for a password, and the inventory has none "
            "(ansible_become_password, or become_password_file of Ansible's configuration)"
        )
    tried = await ssh.run(_root_words(host, ":"), input=f"{host.become_password}\n")
    if tried.exit_status != 0:
        lines = str(tried.stderr or "").strip().splitlines()
        raise InfrastructureError(
            f"host {host.name}: sudo does not take the inventory's password for {host.user}"
            f"{f': {lines[-1]}' if lines else ''}"
        )
    return host


async def _with_sudo(host: Host, ssh: asyncssh.SSHClientConnection) -> Host:
    """As `_may_be_root`, in time: sudo may wait for a directory service that a fault has cut off. Where it raises, the
    connection is closed."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await _may_be_root(host, ssh)
    except BaseException as error:
        ssh.close()
        if isinstance(error, TimeoutError):
            raise InfrastructureError(f"host {host.name}: sudo does not answer within {CONNECT_TIMEOUT_S} s") from None
        if isinstance(error, (OSError, asyncssh.Error)):
            raise InfrastructureError(f"host {host.name} ({host.address}) cannot be reached: {error}") from None
        raise


async def connect(host: Host) -> HostConnection:
    """Connect to `host` and start the agent there. Raises InfrastructureError, naming the host, when it cannot."""
    python = str(host.vars.get("ansible_python_interpreter", "python3"))
    python = python if python.startswith("/") else "python3"
    ssh: asyncssh.SSHClientConnection | None = None
    connection = HostConnection(host, None, _agent=None)  # type: ignore[arg-type]
    if host.vars.get("ansible_connection") != "local":
        options: dict[str, Any] = {"client_keys": [host.key_file]} if host.key_file else {}
        if "StrictHostKeyChecking=no" in str(host.vars.get("ansible_ssh_common_args", "")):
            options["known_hosts"] = None
        try:
            ssh = await asyncio.wait_for(
                asyncssh.connect(host.address, host.port, username=host.user, keepalive_interval=5, **options),
                CONNECT_TIMEOUT_S,
            )
        except TimeoutError:
            raise InfrastructureError(
                f"host {host.name} ({host.address}) does not answer within {CONNECT_TIMEOUT_S} s"
            ) from None
        except (OSError, asyncssh.Error) as error:
            raise InfrastructureError(f"host {host.name} ({host.address}) cannot be reached: {error}") from None
        connection.host = await _with_sudo(host, ssh)
    connection._ssh = ssh
    connection._agent = await connection.open([python, "-u", "-c", _AGENT_SOURCE])
    ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    connection._waiting[-1] = ready
    connection._reader = asyncio.create_task(connection._read())
    try:
        await asyncio.wait_for(ready, CONNECT_TIMEOUT_S)
    except TimeoutError:
        raise InfrastructureError(f"host {host.name}: python3 does not start there") from None
    await connection.measure_clock()
    return connection


@contextlib.asynccontextmanager
async def connected(hosts: Iterable[Host]) -> AsyncIterator[dict[str, HostConnection]]:
    """Connect to all `hosts` at once; yield them by name; close them at the end."""
    tasks = [asyncio.ensure_future(connect(host)) for host in hosts]
    try:
        done = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome
        yield {task.result().name: task.result() for task in tasks}
    finally:
        for task in tasks:
            task.cancel()
        open_ones = [task.result() for task in tasks if task.done() and not task.cancelled() and not task.exception()]
        await asyncio.gather(*(connection.close() for connection in open_ones), return_exceptions=True)
