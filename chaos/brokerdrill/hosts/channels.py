"""Processes on a host with line-wise pipes, over SSH or on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import asyncssh

ENDING_S = 5.0
READ_BYTES = 1 << 18


@dataclass(frozen=True)
class CommandEnd:
    """How a process ended, in words, and all that it wrote to standard error where that is the channel's own."""

    how: str
    said: str = ""


class Channel(Protocol):
    """A process with line-wise pipes, wherever it runs."""

    async def write(self, line: str) -> None: ...

    async def lines(self) -> AsyncIterator[str]:
        """Yield what it writes, by line, until it ends or is lost."""
        yield ""

    async def end_input(self) -> None: ...

    async def ending(self) -> CommandEnd:
        """Wait until it has ended; return how."""
        ...

    async def close(self) -> None: ...


class SshChannel:
    """A process over SSH."""

    def __init__(self, process: asyncssh.SSHClientProcess) -> None:
        self._process = process

    async def write(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[str]:
        # The library hands out a line that outgrows its buffer (2 MiB) in pieces: a long log comes in one line.
        pieces: list[str] = []
        try:
            async for piece in self._process.stdout:
                pieces.append(piece)
                if piece.endswith("\n"):
                    yield "".join(pieces)
                    pieces.clear()
        except (OSError, asyncssh.Error):
            return  # the connection was lost, as `ending` says

    async def end_input(self) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            self._process.stdin.write_eof()

    async def ending(self) -> CommandEnd:
        try:
            done = await self._process.wait(timeout=ENDING_S)
        except (OSError, TimeoutError, asyncssh.Error):
            return CommandEnd("its connection was lost")
        if done.exit_signal:
            how = f"signal {done.exit_signal[0]}"
        elif done.exit_status is None:
            # A host that restarts, or a network that is gone, leaves no status.
            return CommandEnd("its connection was lost", str(done.stderr or ""))
        else:
            how = f"status {done.exit_status}"
        return CommandEnd(f"it ended with {how}", str(done.stderr or ""))

    async def close(self) -> None:
        await self.end_input()
        self._process.close()


class LocalChannel:
    """A process on this machine."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[str]:
        assert self._process.stdout is not None
        # A stream's own lines end with an error above its limit: a long log comes in one line.
        pieces: list[bytes] = []
        while data := await self._process.stdout.read(READ_BYTES):
            *whole, rest = data.split(b"\n")
            for line in whole:
                yield b"".join((*pieces, line, b"\n")).decode(errors="replace")
                pieces.clear()
            pieces.append(rest)
        if left := b"".join(pieces):
            yield left.decode(errors="replace")

    async def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def ending(self) -> CommandEnd:
        status = await self._process.wait()
        how = f"signal {signal.Signals(-status).name[3:]}" if status < 0 else f"status {status}"
        return CommandEnd(f"it ended with {how}")

    async def close(self) -> None:
        await self.end_input()
        with contextlib.suppress(ProcessLookupError, asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), 5)
