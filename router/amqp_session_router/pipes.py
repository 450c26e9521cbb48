"""Pipes for splicing, lent only while bytes are in flight: a user's pipe pages are limited, and idle sessions many."""

from __future__ import annotations

import fcntl
import os
import sys
import termios
from dataclasses import dataclass

SIZE = 1 << 20
_SPARE = 64


@dataclass(frozen=True, slots=True)
class Pipe:
    """Both ends of one pipe, how many bytes it holds at most, and both ends as one number for the journal."""

    read: int
    write: int
    size: int
    ends: int

    def filled(self) -> int:
        """Return how many bytes are in it."""
        return int.from_bytes(fcntl.ioctl(self.read, termios.FIONREAD, bytes(4)), sys.byteorder)

    def close(self) -> None:
        """Close both ends."""
        os.close(self.read)
        os.close(self.write)


def pipe_of(read: int, write: int) -> Pipe:
    """Return the pipe with these descriptors."""
    return Pipe(read, write, fcntl.fcntl(write, fcntl.F_GETPIPE_SZ), write << 32 | read)


class Pool:
    """Empty pipes. `free` holds at least one: a caller may use the last for a moment without taking it."""

    def __init__(self) -> None:
        self.free: list[Pipe] = [self._make()]

    def _make(self) -> Pipe:
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for size in (SIZE, SIZE // 4):
            try:
                fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, size)
                break
            except OSError:
                # An unprivileged user has used up pipe-user-pages-soft: the kernel's own size has to do.
                continue
        return pipe_of(read, write)

    def lend(self) -> Pipe:
        """Take the last out. Without descriptors for another it is closed, and OSError raised."""
        pipe = self.free.pop()
        if not self.free:
            try:
                self.free.append(self._make())
            except OSError:
                # What the caller had in it is lost, with its session; the next finds an empty one.
                pipe.close()
                self.free.append(self._make())
                raise
        return pipe

    def give_back(self, pipe: Pipe, empty: bool = True) -> None:
        """Take a pipe back; one that is not empty is closed."""
        if empty and len(self.free) < _SPARE:
            self.free.append(pipe)
        else:
            pipe.close()

    def close(self) -> None:
        """Close what is here."""
        for pipe in self.free:
            pipe.close()
        self.free.clear()
