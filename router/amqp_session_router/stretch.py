"""The last bytes of a stream that goes by unseen, and where they prove that it stands.

A second pipe keeps what was moved last by tee(2), without a copy; it is read when the proof is wanted.
"""

from __future__ import annotations

import ctypes
import os

from amqp_session_router import wire
from amqp_session_router.boundary import Position, locate, window
from amqp_session_router.pipes import Pipe
from amqp_session_router.plane import MOVE, Plane

_libc = ctypes.CDLL(None, use_errno=True)
_tee = _libc.tee
_tee.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint)
_tee.restype = ctypes.c_ssize_t


class Stretch:
    """What is remembered of one stream: `window` bytes are enough for a proof, mostly."""

    __slots__ = ("_channel_max", "_count", "_frame_max", "_kept", "_pipe", "_plane", "_start", "window")

    def __init__(self, plane: Plane, frame_max: int, channel_max: int, start: Position | None) -> None:
        """`start`: where the stream stands, so that all bytes from there on would be a proof too. None: nobody knows.

        Raises OSError: there is no pipe for it.
        """
        self.window = window(frame_max)
        self._plane = plane
        self._frame_max = frame_max
        self._channel_max = channel_max
        self._start = start
        self._pipe = plane.pool.lend()
        self._count = 0
        self._kept = b""

    def remember(self, pipe: Pipe, count: int) -> None:
        """Keep a second reference to the `count` bytes in `pipe`, which come behind those that are here."""
        if self._count + count > self._pipe.size // 2 and self._count:
            keep = 0 if count >= self.window else min(self._count, self.window - count)
            self._drop(self._count - keep)
        copied = _tee(pipe.read, self._pipe.write, count, MOVE)
        if copied < count:
            # No slot is free: what is older goes, and the bytes before the gap with it.
            self._count += max(copied, 0)
            self.forget()
            copied = _tee(pipe.read, self._pipe.write, count, MOVE)
            if copied < count:
                self._count = max(copied, 0)
                self.forget()
                return
        self._count += copied

    def forget(self) -> None:
        """Begin anew: bytes pass that are not remembered."""
        self._kept = b""
        self._start = None
        self._drop(self._count)

    def _drop(self, count: int) -> None:
        """Forget the first `count` bytes of those in the pipe."""
        if count <= 0:
            return
        self._kept = b""
        self._start = None
        while count:
            count -= (gone := os.splice(self._pipe.read, self._plane.nowhere, count, flags=MOVE))
            self._count -= gone

    @property
    def enough(self) -> bool:
        """Is there as much as a proof needs?"""
        return self._start is not None or self._count + len(self._kept) >= self.window

    def find(self) -> Position | None:
        """Return where the stream stands behind these bytes; None if they do not prove it."""
        data = bytearray(self._kept)
        while self._count:
            data += (chunk := os.read(self._pipe.read, self._count))
            self._count -= len(chunk)
        self._kept = bytes(data[-self.window :])
        if (start := self._start) is not None:
            return walk(memoryview(start.part + data), start.rest, len(start.part) + len(data))
        return locate(self._kept, self._frame_max, self._channel_max)

    def last_method(self) -> int:
        """Return which method the bytes that were found to end between two frames end with: Close, Close-Ok, else 0."""
        return next((method for method, ends in _ENDS if ends(self._kept)), 0)

    def close(self) -> None:
        """Give the pipe back. Nothing is remembered after that."""
        self._plane.pool.give_back(self._pipe, not self._count)
        self._count = 0
        self._kept = b""
        self._start = None


def walk(view: memoryview, at: int, end: int) -> Position:
    """Return the position at `end`, if a frame begins at `at`."""
    while at + 7 <= end:
        at += int.from_bytes(view[at + 3 : at + 7], "big") + 8
    return Position(at - end) if at >= end else Position(0, bytes(view[at:end]))


def _ends_with_close(data: bytes) -> bool:
    start = data.rfind(b"\x00\x0a\x00\x32")
    return start >= 7 and start + int.from_bytes(data[start - 4 : start], "big") + 1 == len(data)


_ENDS = ((wire.CLOSE, _ends_with_close), (wire.CLOSE_OK, lambda data: data.endswith(wire.CLOSE_OK_FRAME)))
