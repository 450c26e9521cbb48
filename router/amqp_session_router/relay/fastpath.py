# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False
"""The fast path: what one direction of a session does for each read. Compiled, with the types of `fastpath.pxd`: it
runs once per event.

Of what fits the staging buffer: one recv(2) into it, a walk over the frame headers, one send(2). Of a larger frame, or
while somebody waits for a frame boundary: a look at the headers (MSG_PEEK), and splice(2) into a pipe and out of it.
Everything else (a stream of many bytes, a full sink, end of stream, an error) is left to the subclass,
`splice_flow.SpliceFlow`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic

from amqp_session_router.amqp import codec
from amqp_session_router.base import native
from amqp_session_router.relay import journal
from amqp_session_router.relay.interfaces import BlindMover
from amqp_session_router.relay.pipes import CHUNK, MOVE, Pipe

LARGE_FRAME = journal.READ_SIZE
"""Bytes of a frame that is spliced, not copied; the next header is then looked at by peeking. To copy once what one
read takes costs less than three system calls."""
PEEK_LARGE = 256
"""Bytes to peek at behind a large frame: its successor is probably large too."""
BUSY_READS, BUSY_BYTES, QUIET_BYTES, LONG_BODY = 16, journal.READ_SIZE, 1024, 3
"""BUSY_READS reads of at least BUSY_BYTES each (more was there than they could take, or they are of a body of LONG_BODY
frames and more) start a blind splice; a read below QUIET_BYTES restarts the count."""
FAST_BYTES, FAST_WITHIN = 1 << 22, 0.01
"""A stream that brings this many bytes within this many seconds is fast: its sender does not wait for replies. Reads of
a long body count from then on only: its headers cost less than a blind splice that is not polled."""
FRAMES = 8
"""Frames of the largest size that one flow moves behind its first, before other flows are served."""
MAX_RESYNC_FRAME = 1 << 17
"""The largest frame_max, in bytes, with which a frame boundary can be found again after a blind splice."""

# As C numbers.
_HEADROOM, _ACTIVE_FLOW, _ACTIVE_PIPE, _STAGED = (
    journal.HEADROOM,
    journal.ACTIVE_FLOW,
    journal.ACTIVE_PIPE,
    journal.STAGED,
)
_STAGED_FLAG, _ALL, _UNKNOWN = journal.STAGED_FLAG, journal.READ_SIZE, journal.UNKNOWN
_CLOSE_OK, _BLOCKED, _UNBLOCKED = codec.CLOSE_OK, codec.BLOCKED, codec.UNBLOCKED
_LARGE_FRAME, _PEEK_LARGE, _FRAMES, _MAX_RESYNC_FRAME = LARGE_FRAME, PEEK_LARGE, FRAMES, MAX_RESYNC_FRAME
_BUSY_READS, _BUSY_BYTES, _QUIET_BYTES, _LONG_BODY = BUSY_READS, BUSY_BYTES, QUIET_BYTES, LONG_BODY
_FAST_BYTES, _FAST_WITHIN = FAST_BYTES, FAST_WITHIN
_CHUNK, _MOVE = CHUNK, MOVE
_ANY_SIZE = 1 << 40
_STOPPED = -(1 << 20)  # nothing was moved, and the flow knows why; no errno


class StagingBuffer:
    """The staging buffer, the cells of the journal (see `journal`) and the empty pipes, as the flows of one process use
    them."""

    __slots__ = ("_kept", "cells", "data", "ends", "out", "pipe", "pipes", "to")

    def __init__(self, staging: memoryview, cells: memoryview, pipes: list[Pipe]) -> None:
        """`staging`: a writable buffer of HEADROOM + READ_SIZE bytes; `cells`: 64-bit words; `pipes`: see
        `pipes.PipePool.free`. Raises ValueError."""
        # What the addresses are of.
        self._kept = (memoryview(staging), memoryview(cells))
        self.data = native.octets(self._kept[0])
        self.cells = native.words(self._kept[1])
        self.pipes = pipes
        # The pool's last pipe as it was used last, and what it is to the kernel and to the journal.
        self.pipe: Pipe | None = None
        self.to, self.out, self.ends = -1, -1, 0
        if len(staging) < _HEADROOM + _ALL:
            raise ValueError("the staging buffer is too small")

    def size(self) -> int:
        """Return how many cells there are."""
        return len(self._kept[1])

    def look_at_pipe(self) -> None:
        """Say of the pool's last pipe what `to`, `out` and `ends` are."""
        pipe = self.pipes[len(self.pipes) - 1]
        if pipe is not self.pipe:
            self.pipe, self.to, self.out, self.ends = pipe, pipe.write, pipe.read, pipe.ends


class FastPath:
    """The frame position of one direction, and its fast path from source to sink. `owner` is the subclass's."""

    __slots__ = (
        "_alarmed",
        "_at",
        "_begin",
        "_brought",
        "_close_ok",
        "_counted",
        "_full",
        "_last",
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

    def __init__(
        self, staging: StagingBuffer, fd_in: int, fd_out: int, cell: int, frame_max: int, limit: int = 0
    ) -> None:
        """`cell`: index of the flow's first cell; `frame_max`: bytes of a body's whole frames, as was agreed (0: any);
        `limit`: bytes of the largest frame that is let through (0: all). Raises IndexError for a cell out of range."""
        self._staging = staging
        if not 0 <= cell < self._staging.size():
            raise IndexError("there is no such cell")
        self.fd_in, self.fd_out = fd_in, fd_out
        self.cell = cell
        self.peek_size = _ALL
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
        self._most = (limit or _ANY_SIZE) - 8
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
        """Callbacks that wait for a frame boundary. A tuple: the empty one is the same object for all flows, and so
        always in the processor's cache."""
        self._begin, self._last, self._at = 0, 0, 0
        """What `_scan_frames` found: the offsets of the first header, of the last one (-1: none) and of the next."""

    def readable(self) -> None:
        """The source is readable. Hot path."""
        if self.busy_reads >= _BUSY_READS:
            # Not where it is counted: the pool's last pipe must be empty when the resynchronisation window takes it.
            self.busy_reads = 0
            self._crowded()
        if self.blind is not None:
            self.blind.readable()
        elif self.rest >= _LARGE_FRAME or self.peek_size != _ALL or len(self.boundary_waiters):
            for _ in range(_FRAMES + 1):
                if not self._splice():
                    break
        else:
            self._forward()
        if self._close_ok:
            self._close_ok = False
            self.owner.flow_close_ok(self)  # type: ignore[attr-defined]
        if self._alarmed:
            self._alarmed = False
            self.owner.flow_alarmed(self)  # type: ignore[attr-defined]

    def _forward(self) -> None:
        """Read into the staging buffer and write from it."""
        cells, data = self._staging.cells, self._staging.data
        rest = self.rest
        cells[_ACTIVE_FLOW] = self.cell | _STAGED_FLAG
        try:
            got = native.read_into(self.fd_in, data, _HEADROOM, _ALL, False)
            if got < 0:
                if got != -native.EAGAIN and got != -native.EINTR:
                    self.failed(True, _error(got))
                return
            cells[_STAGED] = got
            if not got:
                self.ended()
                return
            if not self._scan_frames(got):
                return
            self._set_position(got)
            self.total += got
            if rest or self.rest or self.part:
                self._record()
            sent = native.write_from(self.fd_out, data, _HEADROOM, got)
            if sent != got:
                if sent < 0 and sent != -native.EAGAIN and sent != -native.EINTR:
                    self._unwritten(got, _error(sent))
                    return
                self._keep(max(sent, 0), got)
        finally:
            cells[_ACTIVE_FLOW] = 0
            cells[_STAGED] = 0
        if self.metered:
            self.owner.flow_moved(self, got)  # type: ignore[attr-defined]

    def _splice(self) -> bool:
        """Move the rest of a large frame, or what a peek has found, through the pool's last pipe; returns whether the
        next frame is probably there."""
        staging = self._staging
        cells, rest = staging.cells, self.rest
        staging.look_at_pipe()
        to, out = staging.to, staging.out
        # The pipe first: whoever finds the flow takes what is in the pipe for its bytes.
        cells[_ACTIVE_PIPE] = staging.ends
        cells[_ACTIVE_FLOW] = self.cell
        if rest >= _LARGE_FRAME:
            moved = native.splice(self.fd_in, to, min(rest, _CHUNK), _MOVE)
            if moved > 0:
                self.rest = rest - moved
        else:
            moved = native.read_into(self.fd_in, staging.data, _HEADROOM, self.peek_size, True)
            if moved > 0:
                moved = self._splice_peeked(to, moved)
                if moved == _STOPPED:
                    return False
        if moved < 0:
            if moved != -native.EAGAIN and moved != -native.EINTR:
                self.failed(True, _error(moved))
            return False
        if not moved:
            self.ended()
            return False
        self.total += moved
        if moved >= _BUSY_BYTES and self._full >= _LONG_BODY:
            self._count_long_read(moved)
        if rest or self.rest or self.part:
            self._record()
        sent = native.splice(out, self.fd_out, moved, _MOVE)
        if sent != moved:
            if sent < 0 and sent != -native.EAGAIN and sent != -native.EINTR:
                self.sink_failed(moved, _error(sent))
                return False
            self.sink_full(moved - max(sent, 0))
        if len(self.boundary_waiters) or self.metered:
            self.moved(moved)
            return False
        return self._full > 0 and not self.rest and sent == moved

    def _splice_peeked(self, to: int, got: int) -> int:
        """Splice up to the furthest boundary known from the `got` peeked bytes into `to`; return the bytes moved, minus
        errno if that failed, _STOPPED if there were none or a frame is too large."""
        end = _HEADROOM + got
        if not self._scan_frames(got):
            return _STOPPED
        wanted = self._at - _HEADROOM if self._at >= end else got
        if len(self.boundary_waiters) and _HEADROOM < self._at < end:
            # Somebody waits for the boundary: the header behind it stays in the socket.
            wanted = self._at - _HEADROOM
        moved = native.splice(self.fd_in, to, min(wanted, _CHUNK), _MOVE)
        if moved >= got:
            self._set_position(got)
            self.rest -= moved - got
        elif moved > 0:
            # The pipe took fewer bytes than were peeked at (it has few slots), or the scan stopped at a boundary.
            self._walk(self._begin, _HEADROOM + moved)
        return moved or _STOPPED

    def _walk(self, at: int, end: int) -> None:
        """Set the position to offset `end` of the staging area, given that a frame begins at offset `at`."""
        data = self._staging.data
        while at + 7 <= end:
            size = data[at + 3]
            size = size << 24 | data[at + 4] << 16 | data[at + 5] << 8 | data[at + 6]
            at += size + 8
        self.rest = max(at - end, 0)
        self.part = bytes(data[at:end]) if at < end else b""

    def _scan_frames(self, got: int) -> bool:
        """Scan the frame headers of the first `got` staged bytes and note what was found; False if a frame is too
        large, which was reported to the flow."""
        data = self._staging.data
        end, most = _HEADROOM + got, self._most
        at = _HEADROOM + self.rest
        part = self.part
        if part:
            at = _HEADROOM - len(part)
            for index in range(len(part)):
                data[at + index] = part[index]
        self._begin = at
        last = -1
        while at + 7 <= end:
            size = data[at + 3]
            size = size << 24 | data[at + 4] << 16 | data[at + 5] << 8 | data[at + 6]
            if size > most:
                self._too_large(size)
                return False
            if data[at] == 1 and not data[at + 1] | data[at + 2] and size >= 4:
                if at + 11 > end:
                    # Which method it is belongs to its header.
                    break
                method = data[at + 7]
                method = method << 24 | data[at + 8] << 16 | data[at + 9] << 8 | data[at + 10]
                if method in (_BLOCKED, _UNBLOCKED):
                    self.blocked = method == _BLOCKED
                    self._alarmed = True
            last = at
            at += size + 8
        self._last, self._at = last, at
        return True

    def _set_position(self, got: int) -> None:
        """`got` staged bytes were read: set the position and the size of the next peek."""
        data = self._staging.data
        end, last, at = _HEADROOM + got, self._last, self._at
        if at >= end:
            self.rest = at - end
            if self.part:
                self.part = b""
        else:
            self.rest = 0
            self.part = bytes(data[at:end])
        if last < 0:
            return
        self._full = self._full + 1 if at - last >= self.frame_max else 0
        if data[last] == 1 and last + 11 <= end and not data[last + 1] | data[last + 2]:
            method = data[last + 7]
            method = method << 24 | data[last + 8] << 16 | data[last + 9] << 8 | data[last + 10]
            self.last_method = method
            self._close_ok = method == _CLOSE_OK
        if at - last >= _LARGE_FRAME:
            self.peek_size = _PEEK_LARGE
            if not self._seen_large:
                self._seen_large = True
                self._first_large_frame()
        elif self.peek_size != _ALL:
            self.peek_size = _ALL
        elif got >= _BUSY_BYTES:
            self.count_busy_read()
        elif got < _QUIET_BYTES:
            self.busy_reads = 0

    def _count_long_read(self, moved: int) -> None:
        """Count a read of a long body."""
        now = monotonic()
        if now - self._counted > _FAST_WITHIN:
            self._counted, self._brought = now, 0
        self._brought += moved
        if self._brought >= _FAST_BYTES:
            self.count_busy_read()

    def reset_peek(self) -> None:
        """Ask for as much as fits again."""
        self.peek_size = _ALL

    def count_busy_read(self) -> None:
        """Count a read of many bytes."""
        if self.frame_max <= _MAX_RESYNC_FRAME:
            self.busy_reads += 1

    def record_position(self) -> None:
        """Write the position to the journal."""
        self._record()

    def _record(self) -> None:
        if self.blind is not None or self.part:
            self._staging.cells[self.cell] = _UNKNOWN
        else:
            self._staging.cells[self.cell] = self.rest

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


def _error(result: int) -> OSError:
    """Return what a call of `native` failed with."""
    return OSError(-result, os.strerror(-result))
