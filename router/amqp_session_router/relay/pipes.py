"""A pool of pipes for splicing, and the flags of splice(2). A flow has a pipe only while bytes are in flight: a user's
pipe pages are limited."""

from __future__ import annotations

import fcntl
import os
import sys
import termios
from dataclasses import dataclass

MOVE = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
MOVE_MORE = MOVE | os.SPLICE_F_MORE
"""More data follows at once: do not send a partial segment."""
CHUNK = 1 << 20
"""Bytes asked for in one splice."""
SIZE = 1 << 20
_SPARE = 64


@dataclass(frozen=True, slots=True)
class Pipe:
    """Both ends of a pipe, its capacity in bytes, and both ends packed into one journal word."""

    read: int
    write: int
    size: int
    ends: int

    def filled(self) -> int:
        """Return the bytes in it."""
        return int.from_bytes(fcntl.ioctl(self.read, termios.FIONREAD, bytes(4)), sys.byteorder)

    def close(self) -> None:
        """Close both ends."""
        os.close(self.read)
        os.close(self.write)


def pipe_of(read: int, write: int) -> Pipe:
    """Return the pipe with these descriptors."""
    return Pipe(read, write, fcntl.fcntl(write, fcntl.F_GETPIPE_SZ), write << 32 | read)


class PipePool:
    """Empty pipes. `free` always holds one: within a callback a flow may use the last without acquiring it."""

    def __init__(self) -> None:
        self.free: list[Pipe] = [self._make()]

    def _make(self) -> Pipe:
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for size in (SIZE, SIZE // 4):
            try:
                fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, size)
                break
            except OSError:
                # The user has used up pipe-user-pages-soft: keep the kernel's default size.
                continue
        return pipe_of(read, write)

    def acquire(self) -> Pipe:
        """Take the last pipe out. Raises OSError, with it closed, if no descriptors are left for another."""
        pipe = self.free.pop()
        if not self.free:
            try:
                self.free.append(self._make())
            except OSError:
                # The bytes in it are lost with their session; the next caller gets an empty pipe.
                pipe.close()
                self.free.append(self._make())
                raise
        return pipe

    def release(self, pipe: Pipe, empty: bool = True) -> None:
        """Take a pipe back; close it unless it is empty."""
        if empty and len(self.free) < _SPARE:
            self.free.append(pipe)
        else:
            pipe.close()

    def close(self) -> None:
        """Close all."""
        for pipe in self.free:
            pipe.close()
        self.free.clear()
