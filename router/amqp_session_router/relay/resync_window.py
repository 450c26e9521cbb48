"""The resynchronisation window: the last bytes of a blind splice, from which the frame boundary is proven.

tee(2) keeps them in a second pipe without a copy; they are read only when the boundary is wanted.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

from amqp_session_router.amqp import codec
from amqp_session_router.amqp.boundary import Position, locate, walk, window
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.pipes import MOVE, Pipe

_libc = ctypes.CDLL(None, use_errno=True)
_tee = _libc.tee
_tee.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint)
_tee.restype = ctypes.c_ssize_t
_ANY_SIZE = 0xFFFFFFFF


class FrameBounds(NamedTuple):
    """What the frames of a stream keep to."""

    frame_max: int
    """Bytes of a body's whole frames, as was agreed."""
    channel_max: int
    """0: any channel."""
    header_max: int = 0
    """Bytes of the largest content header where those may be larger than a body's frames (0: they are not)."""


class ResyncWindow:
    """The window of one stream; `size` bytes are usually enough for a proof."""

    __slots__ = ("_bounds", "_count", "_kept", "_method", "_pipe", "_relay", "_start", "size")

    def __init__(self, relay: RelayContext, bounds: FrameBounds, start: Position | None) -> None:
        """`start`: the stream's position, from which all later bytes are a proof too; None if unknown.

        Raises OSError if there is no pipe.
        """
        self.size = window(bounds.frame_max, bounds.header_max)
        self._relay = relay
        self._bounds = bounds
        self._method = 0
        self._start = start
        self._pipe = relay.pool.acquire()
        self._count = 0
        self._kept = b""

    def remember(self, pipe: Pipe, count: int) -> None:
        """Keep a second reference to the next `count` bytes of the stream, which are in `pipe`."""
        if self._count + count > self._pipe.size // 2 and self._count:
            keep = 0 if count >= self.size else min(self._count, self.size - count)
            self._drop(self._count - keep)
        copied = _tee(pipe.read, self._pipe.write, count, MOVE)
        if copied < count:
            # No free slot: drop the older bytes.
            self._count += max(copied, 0)
            self.forget()
            copied = _tee(pipe.read, self._pipe.write, count, MOVE)
            if copied < count:
                self._count = max(copied, 0)
                self.forget()
                return
        self._count += copied

    def forget(self) -> None:
        """Drop all: bytes pass that are not kept."""
        self._kept = b""
        self._start = None
        self._drop(self._count)

    def _drop(self, count: int) -> None:
        """Drop the first `count` bytes in the pipe."""
        if count <= 0:
            return
        self._kept = b""
        self._start = None
        while count:
            count -= (gone := os.splice(self._pipe.read, self._relay.dev_null, count, flags=MOVE))
            self._count -= gone

    @property
    def enough(self) -> bool:
        """Whether there are enough bytes for a proof."""
        return self._start is not None or self._count + len(self._kept) >= self.size

    def find_boundary(self) -> Position | None:
        """Return the position behind these bytes, None if they do not prove it."""
        data = bytearray(self._kept)
        while self._count:
            data += (chunk := os.read(self._pipe.read, self._count))
            self._count -= len(chunk)
        self._kept = bytes(data[-self.size :])
        position = self._position(bytes(data))
        if position is not None and position.boundary:
            self._method = self._ends_with(bytes(data))
        return position

    def _position(self, data: bytes) -> Position | None:
        if (start := self._start) is not None:
            return position_behind(start.part + data, start.rest)
        return locate(data[-self.size :], *self._bounds)

    def _ends_with(self, data: bytes) -> int:
        """Return the method that ends these bytes, which end at a boundary: Close, Close-Ok, else 0.

        A body may end like one, so where that begins must be a boundary, too.
        """
        for method, begin in _CLOSES:
            at = data.rfind(begin) - _HEADER
            if at >= 0 and _is_last_frame(data, at) and (found := self._position(data[:at])) and found.boundary:
                return method
        return 0

    def last_method(self) -> int:
        """Return the method that ends the bytes of a boundary that was found: Close, Close-Ok, else 0."""
        return self._method

    def close(self) -> None:
        """Release the pipe."""
        self._relay.pool.release(self._pipe, not self._count)
        self._count = 0
        self._kept = b""
        self._start = None


def position_behind(whole: bytes, at: int) -> Position:
    """Return the position at the end of `whole`, given that a frame begins at offset `at`."""
    at, _, _ = walk(whole, at, _ANY_SIZE, len(whole))
    return Position(at - len(whole)) if at >= len(whole) else Position(0, whole[at:])


_HEADER = 7
_CLOSES = [(method, method.to_bytes(4, "big")) for method in (codec.CLOSE, codec.CLOSE_OK)]


def _is_last_frame(data: bytes, at: int) -> bool:
    """Return whether a method frame of channel 0 that begins at `at` would be the last of `data`."""
    size = int.from_bytes(data[at + 3 : at + _HEADER], "big")
    return data.startswith(b"\x01\x00\x00", at) and at + size + 8 == len(data)
