"""What one direction of a session does for each read, where `fastpath.pyx` could not be compiled: the reasons for
what it does stand there.

What is compiled is imported in its place. The tests of flows and sessions run with either.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from time import monotonic
from typing import cast

from amqp_session_router.amqp import codec
from amqp_session_router.relay.interfaces import BlindMover, Flow, FlowOwner
from amqp_session_router.relay.journal import (
    ACTIVE_FLOW,
    ACTIVE_PIPE,
    HEADROOM,
    READ_SIZE,
    STAGED,
    STAGED_FLAG,
    UNKNOWN,
)
from amqp_session_router.relay.pipes import CHUNK, MOVE, Pipe

LARGE_FRAME = READ_SIZE
"""Bytes of a frame that is spliced, not copied; the next header is then looked at by peeking."""
PEEK_LARGE = 256
"""Bytes to peek at behind a large frame: its successor is probably large too."""
BUSY_READS, BUSY_BYTES, QUIET_BYTES, LONG_BODY = 16, READ_SIZE, 1024, 3
"""BUSY_READS reads of at least BUSY_BYTES each (more was there than they could take, or they are of a body of LONG_BODY
frames and more) start a blind splice; a read below QUIET_BYTES restarts the count."""
FAST_BYTES, FAST_WITHIN = 1 << 22, 0.01
"""A stream that brings this many bytes within this many seconds is fast: its sender does not wait for replies. Reads of
a long body count from then on only: its headers cost less than a blind splice that is not polled."""
FRAMES = 8
"""Frames of the largest size that one flow moves behind its first, before other flows are served."""
MAX_RESYNC_FRAME = 1 << 17
"""The largest frame_max, in bytes, with which a frame boundary can be found again after a blind splice."""

_HEADER, _OVERHEAD = 7, 8


_ANY_SIZE = 1 << 40


class StagingBuffer:
    """The staging buffer, the cells of the journal (see `journal`) and the empty pipes, as the flows of one process use
    them."""

    __slots__ = ("bytes", "cells", "pipes", "read_area")

    def __init__(self, staging: memoryview, cells: memoryview, pipes: list[Pipe]) -> None:
        """`staging`: a writable buffer of HEADROOM + READ_SIZE bytes; `cells`: 64-bit words; `pipes`: see
        `pipes.PipePool.free`. Raises ValueError."""
        self.bytes = memoryview(staging).cast("B")
        self.cells = memoryview(cells)
        self.pipes = pipes
        if len(self.bytes) < HEADROOM + READ_SIZE:
            raise ValueError("the staging buffer is too small")
        self.read_area = self.bytes[HEADROOM : HEADROOM + READ_SIZE]


class FastPath:
    """The frame position of one direction, and its fast path from source to sink."""

    __slots__ = (
        "_alarmed",
        "_brought",
        "_close_ok",
        "_counted",
        "_full",
        "_most",
        "_seen_large",
        "_staging",
        "blind",
        "blocked",
        "boundary_waiters",
        "busy_reads",
        "cell",
        "fd_in",
        "fd_out",
        "frame_max",
        "last_method",
        "metered",
        "part",
        "peek_size",
        "rest",
        "total",
    )
    # The subclass's.
    owner: FlowOwner
    source: socket.SocketType
    sink: socket.SocketType

    def __init__(
        self, staging: StagingBuffer, fd_in: int, fd_out: int, cell: int, frame_max: int, limit: int = 0
    ) -> None:
        """`cell`: index of the flow's first cell; `frame_max`: bytes of a body's whole frames, as was agreed (0: any);
        `limit`: bytes of the largest frame that is let through (0: all). Raises IndexError for a cell out of range."""
        if cell >= len(staging.cells):
            raise IndexError("there is no such cell")
        self._staging = staging
        self.fd_in, self.fd_out = fd_in, fd_out
        self.cell = cell
        self.peek_size = READ_SIZE
        """Bytes that the next read or peek asks for."""
        self._close_ok = False
        """The frames that were read last end with a Close-Ok: the owner is called once they are written."""
        self._seen_large = False
        """A large frame has come."""
        self._full = 0
        """The last frames, in a row, that are as large as a frame may be: a body's, of which the next part follows."""
        self._counted, self._brought = 0.0, 0
        """Since when (s) the bytes of long bodies are counted, and how many came."""
        self.busy_reads = 0
        """Recent reads of many bytes."""
        self.rest = 0
        """Bytes left of the current frame."""
        self.part = b""
        """Behind a boundary: the first bytes of an incomplete header."""
        self.total = 0
        """Bytes read."""
        self.frame_max = frame_max or _ANY_SIZE
        self._most = (limit or _ANY_SIZE) - _OVERHEAD
        """Bytes of the largest payload that is let through."""
        self.blocked = False
        """The last of Connection.Blocked and Unblocked that was read is Blocked."""
        self._alarmed = False
        """`blocked` has changed: the owner is called once that is written."""
        self.last_method = 0
        """Class and method of the last method frame on channel 0."""
        self.metered = False
        self.blind: BlindMover | None = None
        """The blind splice in progress (`blind_splice.BlindSplice`), else None."""
        self.boundary_waiters: tuple[Callable[[], bool], ...] = ()
        """Callbacks that wait for a frame boundary."""

    def readable(self) -> None:
        """The source is readable. Hot path."""
        if self.busy_reads >= BUSY_READS:
            self.busy_reads = 0
            self._crowded()
        if self.blind is not None:
            self.blind.readable()
        elif self.rest >= LARGE_FRAME or self.peek_size != READ_SIZE or self.boundary_waiters:
            frames = FRAMES
            while self._splice() and frames:
                frames -= 1
        else:
            self._forward()
        if self._close_ok:
            self._close_ok = False
            self.owner.flow_close_ok(cast(Flow, self))
        if self._alarmed:
            self._alarmed = False
            self.owner.flow_alarmed(cast(Flow, self))

    def _forward(self) -> None:
        """Read into the staging buffer and write from it."""
        area, cells = self._staging.read_area, self._staging.cells
        rest = self.rest
        cells[ACTIVE_FLOW] = self.cell | STAGED_FLAG
        try:
            try:
                got = self.source.recv_into(area)
            except BlockingIOError:
                return
            except OSError as error:
                self.failed(True, error)
                return
            cells[STAGED] = got
            if not got:
                self.ended()
                return
            frames = self._scan_frames(got)
            if frames is None:
                return
            self._set_position(got, *frames[1:])
            self.total += got
            if rest or self.rest or self.part:
                self.record_position()
            try:
                sent = self.sink.send(area[:got])
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._unwritten(got, error)
                return
            if sent != got:
                self._keep(sent, got)
        finally:
            cells[ACTIVE_FLOW] = 0
            cells[STAGED] = 0
        if self.metered:
            # Whoever makes flows makes the subclass.
            self.owner.flow_moved(cast(Flow, self), got)

    def _splice(self) -> bool:
        """Move the rest of a large frame, or what a peek has found, through the pool's last pipe; returns whether the
        next frame is probably there."""
        cells, rest = self._staging.cells, self.rest
        pipe = self._staging.pipes[-1]
        cells[ACTIVE_PIPE] = pipe.ends
        cells[ACTIVE_FLOW] = self.cell
        try:
            if rest >= LARGE_FRAME:
                moved = os.splice(self.fd_in, pipe.write, min(rest, CHUNK), flags=MOVE)
                if not moved:
                    self.ended()
                    return False
                self.rest = rest - moved
            else:
                got = self.source.recv_into(self._staging.read_area, self.peek_size, socket.MSG_PEEK)
                if not got:
                    self.ended()
                    return False
                moved = self._splice_peeked(pipe.write, got)
                if not moved:
                    return False
        except BlockingIOError:
            return False
        except OSError as error:
            self.failed(True, error)
            return False
        self.total += moved
        if moved >= BUSY_BYTES and self._full >= LONG_BODY:
            self._count_long_read(moved)
        if rest or self.rest or self.part:
            self.record_position()
        try:
            sent = os.splice(pipe.read, self.fd_out, moved, flags=MOVE)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.sink_failed(moved, error)
            return False
        if sent != moved:
            self.sink_full(moved - sent)
        if self.boundary_waiters or self.metered:
            self.moved(moved)
            return False
        return self._full > 0 and not self.rest and sent == moved

    def _splice_peeked(self, to: int, got: int) -> int:
        """Splice up to the furthest boundary known from the `got` peeked bytes into `to`; return the bytes moved."""
        frames = self._scan_frames(got)
        if frames is None:
            return 0
        begin, last, at = frames
        end = HEADROOM + got
        wanted = at - HEADROOM if at >= end else got
        if self.boundary_waiters and HEADROOM < at < end:
            wanted = at - HEADROOM
        moved = os.splice(self.fd_in, to, min(wanted, CHUNK), flags=MOVE)
        if moved >= got:
            self._set_position(got, last, at)
            self.rest -= moved - got
        elif moved:
            self._walk(begin, HEADROOM + moved)
        return moved

    def _walk(self, at: int, end: int) -> None:
        """Set the position to offset `end` of the staging area, given that a frame begins at offset `at`."""
        data = self._staging.bytes
        while at + _HEADER <= end:
            at += int.from_bytes(data[at + 3 : at + _HEADER]) + _OVERHEAD
        self.rest = max(0, at - end)
        self.part = bytes(data[at:end])

    def _scan_frames(self, got: int) -> tuple[int, int, int] | None:
        """Scan the frame headers of the first `got` staged bytes.

        Returns the offsets of the first header, of the last one (-1: none) and of the one after it; None if a frame is
        too large, which was reported to the flow.
        """
        data = self._staging.bytes
        end, most = HEADROOM + got, self._most
        at = HEADROOM + self.rest
        if self.part:
            at = HEADROOM - len(self.part)
            data[at:HEADROOM] = self.part
        begin, last = at, -1
        while at + _HEADER <= end:
            size = int.from_bytes(data[at + 3 : at + _HEADER])
            if size > most:
                self._too_large(size)
                return None
            if data[at] == 1 and not data[at + 1] | data[at + 2] and size >= 4:
                if at + _HEADER + 4 > end:
                    # Which method it is belongs to its header.
                    break
                method = int.from_bytes(data[at + _HEADER : at + _HEADER + 4])
                if method in (codec.BLOCKED, codec.UNBLOCKED):
                    self.blocked, self._alarmed = method == codec.BLOCKED, True
            last = at
            at += size + _OVERHEAD
        return begin, last, at

    def _set_position(self, got: int, last: int, at: int) -> None:
        """`got` staged bytes were read: set the position and the size of the next peek."""
        data = self._staging.bytes
        end = HEADROOM + got
        self.rest = max(0, at - end)
        self.part = bytes(data[at:end])
        if last < 0:
            return
        self._full = self._full + 1 if at - last >= self.frame_max else 0
        if data[last] == 1 and last + 11 <= end and not data[last + 1] | data[last + 2]:
            self.last_method = int.from_bytes(data[last + _HEADER : last + _HEADER + 4])
            self._close_ok = self.last_method == codec.CLOSE_OK
        if at - last >= LARGE_FRAME:
            self.peek_size = PEEK_LARGE
            if not self._seen_large:
                self._seen_large = True
                self._first_large_frame()
        elif self.peek_size != READ_SIZE:
            self.peek_size = READ_SIZE
        elif got >= BUSY_BYTES:
            self.count_busy_read()
        elif got < QUIET_BYTES:
            self.busy_reads = 0

    def _count_long_read(self, moved: int) -> None:
        """Count a read of a long body."""
        now = monotonic()
        if now - self._counted > FAST_WITHIN:
            self._counted, self._brought = now, 0
        self._brought += moved
        if self._brought >= FAST_BYTES:
            self.count_busy_read()

    def reset_peek(self) -> None:
        """Ask for as much as fits again."""
        self.peek_size = READ_SIZE

    def count_busy_read(self) -> None:
        """Count a read of many bytes."""
        if self.frame_max <= MAX_RESYNC_FRAME:
            self.busy_reads += 1

    def record_position(self) -> None:
        """Write the position to the journal."""
        unknown = self.blind is not None or self.part
        self._staging.cells[self.cell] = UNKNOWN if unknown else self.rest

    # --- the subclass's

    def _crowded(self) -> None:
        raise NotImplementedError

    def _first_large_frame(self) -> None:
        raise NotImplementedError

    def _too_large(self, size: int) -> None:
        raise NotImplementedError

    def _unwritten(self, got: int, error: OSError) -> None:
        raise NotImplementedError

    def _keep(self, sent: int, got: int) -> None:
        raise NotImplementedError

    def sink_failed(self, left: int, error: OSError) -> None:
        raise NotImplementedError

    def sink_full(self, left: int) -> None:
        raise NotImplementedError

    def moved(self, count: int) -> None:
        raise NotImplementedError

    def ended(self) -> None:
        raise NotImplementedError

    def failed(self, at_source: bool, error: OSError) -> None:
        raise NotImplementedError
