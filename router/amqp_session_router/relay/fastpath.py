# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False
"""The fast path: what one direction of a session does for each read. Compiled, with the types of `fastpath.pxd`: it
runs once per event.

Of what fits the staging buffer: one recv(2) into it, a walk over the frame headers, one send(2). Of a larger frame, or
while somebody waits for a frame boundary: a look at the headers (MSG_PEEK), and splice(2) into a pipe and out of it.
What the headers say is found by `frame_scan`, which way is taken is decided by `stream_profile`. Everything else (a
stream of many bytes, a full sink, end of stream, an error) is left to the subclass, `splice_flow.SpliceFlow`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from amqp_session_router.amqp import codec
from amqp_session_router.base import native
from amqp_session_router.relay import journal
from amqp_session_router.relay.frame_scan import FrameScan
from amqp_session_router.relay.interfaces import BlindMover, Flow, FlowOwner
from amqp_session_router.relay.pipes import CHUNK, MOVE, Pipe
from amqp_session_router.relay.stream_profile import LARGE_FRAME, StreamProfile

FRAMES = 8
"""Frames of the largest size that one flow moves behind its first, before other flows are served."""
ANY_SIZE = 1 << 40
"""Bytes of a frame that no limit holds."""

# As C numbers.
_HEADROOM, _ACTIVE_FLOW, _ACTIVE_PIPE, _STAGED = (
    journal.HEADROOM,
    journal.ACTIVE_FLOW,
    journal.ACTIVE_PIPE,
    journal.STAGED,
)
_STAGED_FLAG, _ALL, _UNKNOWN = journal.STAGED_FLAG, journal.READ_SIZE, journal.UNKNOWN
_CLOSE_OK, _BLOCKED = codec.CLOSE_OK, codec.BLOCKED
_LARGE_FRAME, _FRAMES = LARGE_FRAME, FRAMES
_CHUNK, _MOVE = CHUNK, MOVE
_ANY_SIZE = ANY_SIZE
_STOPPED = -(1 << 20)  # nothing was moved, and the flow knows why; no errno


class StagingBuffer:
    """The staging buffer, the cells of the journal (see `journal`) and the empty pipes, as the flows of one process use
    them."""

    __slots__ = ("_kept", "cells", "data", "ends", "out", "pipe", "pipes", "scan", "to")

    def __init__(self, staging: memoryview, cells: memoryview, pipes: list[Pipe]) -> None:
        """`staging`: a writable buffer of HEADROOM + READ_SIZE bytes; `cells`: 64-bit words; `pipes`: see
        `pipes.PipePool.free`. Raises ValueError."""
        # What the addresses are of.
        self._kept = (memoryview(staging), memoryview(cells))
        self.data = native.octets(self._kept[0])
        self.cells = native.words(self._kept[1])
        self.scan = FrameScan(self._kept[0])
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
    """The way of one direction's bytes, and where its frames stand. The subclass is the `interfaces.Flow`."""

    __slots__ = (
        "_alarmed",
        "_close_ok",
        "_most",
        "_staging",
        "blind",
        "blocked",
        "boundary_waiters",
        "cell",
        "fd_in",
        "fd_out",
        "last_method",
        "meter",
        "owner",
        "part",
        "profile",
        "rest",
        "total",
    )

    def __init__(
        self,
        owner: FlowOwner,
        staging: StagingBuffer,
        sockets: tuple[int, int],
        cell: int,
        frame_max: int,
        limit: int,
    ) -> None:
        """`sockets`: source's and sink's descriptors; `cell`: index of the flow's first cell; `frame_max`: bytes of a
        body's whole frames, as was agreed; `limit`: bytes of the largest frame that is let through (0: all). Raises
        IndexError for a cell out of range."""
        self.owner = owner
        self._staging = staging
        if not 0 <= cell < self._staging.size():
            raise IndexError("there is no such cell")
        self.fd_in, self.fd_out = sockets
        self.cell = cell
        self.profile = StreamProfile(frame_max)
        self._close_ok = False
        """The frames that were read last end with a Close-Ok: the owner is called once they are written."""
        self.rest = 0
        """Bytes left of the current frame."""
        self.part = b""
        """Behind a boundary: the first bytes of an incomplete header."""
        self.total = 0
        """Bytes read."""
        self._most = (limit or _ANY_SIZE) - 8
        """Bytes of the largest payload that is let through."""
        self.blocked = False
        """The last of Connection.Blocked and Unblocked that was read is Blocked."""
        self._alarmed = False
        """`blocked` has changed: the owner is called once that is written."""
        self.last_method = 0
        """Class and method of the last method frame on channel 0."""
        self.meter: Callable[[Flow, int], None] | None = None
        """Called with the bytes of each move."""
        self.blind: BlindMover | None = None
        """The blind splice in progress (`blind_splice.BlindSplice`), else None."""
        self.boundary_waiters: tuple[Callable[[], bool], ...] = ()
        """Callbacks that wait for a frame boundary. A tuple: all flows have the same empty one, in the cache."""

    def readable(self) -> None:
        """The source is readable. Hot path."""
        if self.profile.busy():
            # Not where it is counted: the pool's last pipe must be empty when the resynchronisation window takes it.
            self._crowded()
        if self.blind is not None:
            self.blind.readable()
        elif self.rest >= _LARGE_FRAME or self.profile.peek_size != _ALL or len(self.boundary_waiters):
            for _ in range(_FRAMES + 1):
                if not self._splice():
                    break
        else:
            self._forward()
        if self._close_ok:
            self._close_ok = False
            self.owner.flow_close_ok(self)  # type: ignore[arg-type]
        if self._alarmed:
            self._alarmed = False
            self.owner.flow_alarmed(self)  # type: ignore[arg-type]

    def _forward(self) -> None:
        """Read into the staging buffer and write from it."""
        cells, data = self._staging.cells, self._staging.data
        rest = self.rest
        cells[_ACTIVE_FLOW] = self.cell | _STAGED_FLAG
        try:
            got = native.read_into(self.fd_in, data, _HEADROOM, _ALL, False)
            if got <= 0:
                self._nothing_read(got)
                return
            cells[_STAGED] = got
            if not self._scan_frames(got):
                return
            self._take_in(got)
            self.total += got
            if rest or self.rest or self.part:
                self._record()
            sent = native.write_from(self.fd_out, data, _HEADROOM, got)
            if sent != got:
                if _broke(sent):
                    self._keep_staged(0, got, _error(sent))
                    return
                self._keep_staged(max(sent, 0), got, None)
        finally:
            cells[_ACTIVE_FLOW] = 0
            cells[_STAGED] = 0
        if self.meter is not None:
            self.meter(self, got)  # type: ignore[arg-type]

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
            moved = native.read_into(self.fd_in, staging.data, _HEADROOM, self.profile.peek_size, True)
            if moved > 0:
                moved = self._splice_peeked(to, moved)
                if moved == _STOPPED:
                    return False
        if moved <= 0:
            self._nothing_read(moved)
            return False
        self.total += moved
        self.profile.add_splice(moved)
        if rest or self.rest or self.part:
            self._record()
        sent = native.splice(out, self.fd_out, moved, _MOVE)
        if sent != moved:
            if _broke(sent):
                self.keep_spliced(moved, _error(sent))
                return False
            self.keep_spliced(moved - max(sent, 0))
        if len(self.boundary_waiters) or self.meter is not None:
            self.moved(moved)
            return False
        return self.profile.full > 0 and not self.rest and sent == moved

    def _nothing_read(self, result: int) -> None:
        """The source is at its end (0), or minus `result` is why nothing came."""
        if not result:
            self.ended()
        elif _broke(result):
            self.failed(True, _error(result))

    def _splice_peeked(self, to: int, got: int) -> int:
        """Splice up to the furthest boundary known from the `got` peeked bytes into `to`; return the bytes moved, minus
        errno if that failed, _STOPPED if there were none or a frame is too large."""
        if not self._scan_frames(got):
            return _STOPPED
        scan = self._staging.scan
        wanted = max(scan.next, got)
        if len(self.boundary_waiters) and 0 < scan.next < got:
            # Somebody waits for the boundary: the header behind it stays in the socket.
            wanted = scan.next
        moved = native.splice(self.fd_in, to, min(wanted, _CHUNK), _MOVE)
        if moved >= got:
            self._take_in(got)
            self.rest -= moved - got
        elif moved > 0:
            # The pipe took fewer bytes than were peeked at (it has few slots), or the scan stopped at a boundary.
            scan.shorten(moved)
            self._set_position(moved)
        return moved or _STOPPED

    def _scan_frames(self, got: int) -> bool:
        """Scan the frame headers of the first `got` staged bytes; False if a frame is too large, which was reported to
        the flow."""
        scan = self._staging.scan
        allowed = scan.walk(self.rest, self.part, got, self._most)
        if scan.alarm:
            self.blocked = scan.alarm == _BLOCKED
            self._alarmed = True
        if not allowed:
            self._too_large(scan.too_large)
        return allowed

    def _take_in(self, got: int) -> None:
        """`got` staged bytes were scanned and read: go by what was found."""
        scan = self._staging.scan
        self._set_position(got)
        if not scan.length:
            return
        if scan.method >= 0:
            self.last_method = scan.method
            self._close_ok = scan.method == _CLOSE_OK
        if self.profile.add_read(got, scan.length):
            self._first_large_frame()

    def _set_position(self, count: int) -> None:
        """Set the position behind the first `count` of the bytes that were scanned."""
        scan = self._staging.scan
        if scan.next >= count:
            self.rest = scan.next - count
            if self.part:
                self.part = b""
        else:
            self.rest = 0
            self.part = scan.part(count)

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

    def _keep_staged(self, sent: int, got: int, error: OSError | None) -> None:
        raise NotImplementedError

    def keep_spliced(self, left: int, error: OSError | None = None) -> None:
        raise NotImplementedError

    def moved(self, count: int) -> None:
        raise NotImplementedError

    def ended(self) -> None:
        raise NotImplementedError

    def failed(self, at_source: bool, error: OSError) -> None:
        raise NotImplementedError


def _broke(result: int) -> bool:
    """Return whether a call of `native` failed for good."""
    return result < 0 and result != -native.EAGAIN and result != -native.EINTR


def _error(result: int) -> OSError:
    """Return what a call of `native` failed with."""
    return OSError(-result, os.strerror(-result))
