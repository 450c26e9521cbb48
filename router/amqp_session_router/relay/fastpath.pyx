# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The fast path: what one direction of a session does for each read. Compiled: it runs once per event.

Of what fits the staging buffer: one recv(2) into it, a walk over the frame headers, one send(2). Of a larger frame, or
while somebody waits for a frame boundary: a look at the headers (MSG_PEEK), and splice(2) into a pipe and out of it.
Everything else (a stream of many bytes, a full sink, end of stream, an error) is left to the subclass,
`splice_flow.SpliceFlow`.
"""

import os
from time import monotonic

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t

from amqp_session_router.amqp import codec
from amqp_session_router.relay import journal
from amqp_session_router.relay.pipes import CHUNK, MOVE

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int, void *, size_t, int)
    ssize_t send(int, const void *, size_t, int)
    int MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK

cdef extern from "<fcntl.h>" nogil:
    ssize_t splice(int, void *, int, void *, size_t, unsigned int)

cdef size_t _HEADROOM = journal.HEADROOM
cdef size_t _ACTIVE_FLOW = journal.ACTIVE_FLOW
cdef size_t _ACTIVE_PIPE = journal.ACTIVE_PIPE
cdef size_t _STAGED = journal.STAGED
cdef uint64_t _STAGED_FLAG = journal.STAGED_FLAG
cdef ssize_t _ALL = journal.READ_SIZE
cdef uint64_t _UNKNOWN = journal.UNKNOWN
cdef unsigned int _CLOSE_OK = codec.CLOSE_OK, _BLOCKED = codec.BLOCKED, _UNBLOCKED = codec.UNBLOCKED

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
"""Frames of the largest size that one flow moves in a turn after its first."""
MAX_RESYNC_FRAME = 1 << 17
"""The largest frame_max, in bytes, with which a frame boundary can be found again after a blind splice."""

cdef int64_t _LARGE_FRAME = LARGE_FRAME, _BUSY_BYTES = BUSY_BYTES, _QUIET_BYTES = QUIET_BYTES
cdef int64_t _MAX_RESYNC_FRAME = MAX_RESYNC_FRAME
cdef int _FRAMES = FRAMES, _LONG_BODY = LONG_BODY
cdef int64_t _FAST_BYTES = FAST_BYTES
cdef double _FAST_WITHIN = FAST_WITHIN
cdef int _PEEK_LARGE = PEEK_LARGE, _BUSY_READS = BUSY_READS
cdef ssize_t _CHUNK = CHUNK
cdef unsigned int _MOVE = MOVE

cdef int64_t _ANY_SIZE = 1 << 40
cdef ssize_t _STOPPED = -2
"""Nothing was moved, and the flow knows why."""


cdef class StagingBuffer:
    """The staging buffer, the cells of the journal (see `journal`) and the empty pipes, as the flows of one process use
    them."""

    cdef uint8_t[::1] bytes
    cdef uint64_t[::1] cells
    cdef list pipes
    cdef object pipe
    cdef int to, out
    cdef uint64_t ends
    """The pool's last pipe as it was used last, and what it is to the kernel and to the journal."""

    def __init__(self, staging, cells, list pipes not None):
        """`staging`: a writable buffer of HEADROOM + READ_SIZE bytes; `cells`: 64-bit words; `pipes`: see
        `pipes.PipePool.free`. Raises ValueError."""
        self.bytes = staging
        self.cells = cells
        self.pipes = pipes
        if <size_t>len(staging) < _HEADROOM + <size_t>_ALL:
            raise ValueError("the staging buffer is too small")

    cdef inline look_at_pipe(self):
        """Say of the pool's last pipe what `to`, `out` and `ends` are."""
        cdef object pipe = self.pipes[len(self.pipes) - 1]
        if pipe is not self.pipe:
            self.pipe, self.to, self.out, self.ends = pipe, pipe.write, pipe.read, pipe.ends


cdef class FastPath:
    """The frame position of one direction, and its fast path from source to sink."""

    cdef StagingBuffer _staging
    cdef readonly int fd_in, fd_out
    cdef readonly size_t cell
    """Index of its first journal cell."""
    cdef readonly int peek_size
    """Bytes that the next read or peek asks for."""
    cdef bint _close_ok
    """The frames that were read last end with a Close-Ok, which the owner is told once they are written."""
    cdef bint _alarmed
    """`blocked` has changed, which the owner is told once that is written."""
    cdef bint _seen_large
    """A large frame has come."""
    cdef int _full
    """The last frames, in a row, that are as large as a frame may be: a body's, of which the next part follows."""
    cdef double _counted
    cdef int64_t _brought
    """Since when (s) the bytes of long bodies are counted, and how many came."""
    cdef public int busy_reads
    """Recent reads of many bytes."""
    cdef public int64_t rest
    """Bytes left of the current frame."""
    cdef public bytes part
    """Behind a boundary: the first bytes of an incomplete header."""
    cdef public int64_t total
    """Bytes read."""
    cdef public int64_t frame_max
    cdef int64_t _most
    """Bytes of the largest payload that is let through."""
    cdef public bint blocked
    """The last of Connection.Blocked and Unblocked that was read is Blocked."""
    cdef public unsigned int last_method
    """Class and method of the last method frame on channel 0."""
    cdef public bint metered
    cdef public object blind
    """The blind splice in progress (`blind_splice.BlindSplice`), else None."""
    cdef public tuple boundary_waiters
    """Callbacks that wait for a frame boundary. A tuple: the empty one is the same object for all flows, and so always
    in the processor's cache."""

    def __init__(self, StagingBuffer staging, int fd_in, int fd_out, size_t cell, int64_t frame_max, int64_t limit=0):
        """`cell`: index of the flow's first cell; `frame_max`: bytes of a body's whole frames, as was agreed (0: any);
        `limit`: bytes of the largest frame that is let through (0: all). Raises IndexError for a cell out of range."""
        if cell >= <size_t>staging.cells.shape[0]:
            raise IndexError("there is no such cell")
        self._staging = staging
        self.fd_in, self.fd_out = fd_in, fd_out
        self.cell = cell
        self.peek_size = _ALL
        self.part = b""
        self.frame_max = frame_max or _ANY_SIZE
        self._most = (limit or _ANY_SIZE) - 8
        self.boundary_waiters = ()

    def readable(self):
        """The source is readable. Hot path."""
        cdef int frames
        if self.busy_reads >= _BUSY_READS:
            # Not where it is counted: the pool's last pipe must be empty when the resynchronisation window takes it.
            self.busy_reads = 0
            self._crowded()
        if self.blind is not None:
            self.blind.readable()
        elif self.rest >= _LARGE_FRAME or self.peek_size != _ALL or len(self.boundary_waiters):
            frames = _FRAMES
            while self._splice() and frames:
                frames -= 1
        else:
            self._forward()
        if self._close_ok:
            self._close_ok = False
            self.owner.flow_close_ok(self)
        if self._alarmed:
            self._alarmed = False
            self.owner.flow_alarmed(self)

    cdef _forward(self):
        """Read into the staging buffer and write from it."""
        cdef uint64_t *cells = &self._staging.cells[0]
        cdef uint8_t *data = &self._staging.bytes[_HEADROOM]
        cdef int64_t rest = self.rest
        cdef ssize_t got, sent
        cdef int failed
        cells[_ACTIVE_FLOW] = self.cell | _STAGED_FLAG
        try:
            got = recv(self.fd_in, data, _ALL, MSG_DONTWAIT)
            if got < 0:
                failed = errno
                if failed != EAGAIN and failed != EINTR:
                    self.failed(True, OSError(failed, os.strerror(failed)))
                return
            cells[_STAGED] = got
            if not got:
                self.ended()
                return
            if not self._scan(got):
                return
            self.total += got
            if rest or self.rest or self.part:
                self._record_position()
            sent = send(self.fd_out, data, got, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent != got:
                failed = errno
                if sent < 0 and failed != EAGAIN and failed != EINTR:
                    self._unwritten(got, OSError(failed, os.strerror(failed)))
                    return
                self._keep(max(sent, 0), got)
        finally:
            cells[_ACTIVE_FLOW] = 0
            cells[_STAGED] = 0
        if self.metered:
            self.owner.flow_moved(self, got)

    cdef bint _splice(self) except -1:
        """Move the rest of a large frame, or what a peek has found, through the pool's last pipe; returns whether the
        next frame is probably there."""
        cdef StagingBuffer staging = self._staging
        cdef uint64_t *cells = &staging.cells[0]
        cdef int64_t rest = self.rest
        cdef ssize_t moved, sent
        cdef int failed, to, out
        staging.look_at_pipe()
        to, out = staging.to, staging.out
        # The pipe first: whoever finds the flow takes what is in the pipe for its bytes.
        cells[_ACTIVE_PIPE] = staging.ends
        cells[_ACTIVE_FLOW] = self.cell
        if rest >= _LARGE_FRAME:
            moved = splice(self.fd_in, NULL, to, NULL, min(rest, _CHUNK), _MOVE)
            if moved > 0:
                self.rest = rest - moved
        else:
            moved = recv(self.fd_in, &self._staging.bytes[_HEADROOM], self.peek_size, MSG_PEEK | MSG_DONTWAIT)
            if moved > 0:
                moved = self._splice_peeked(to, moved)
                if moved == _STOPPED:
                    return False
        if moved < 0:
            failed = errno
            if failed != EAGAIN and failed != EINTR:
                self.failed(True, OSError(failed, os.strerror(failed)))
            return False
        if not moved:
            self.ended()
            return False
        self.total += moved
        if moved >= _BUSY_BYTES and self._full >= _LONG_BODY:
            self._count_long_read(moved)
        if rest or self.rest or self.part:
            self._record_position()
        sent = splice(out, NULL, self.fd_out, NULL, moved, _MOVE)
        if sent != moved:
            failed = errno
            if sent < 0 and failed != EAGAIN and failed != EINTR:
                self.sink_failed(moved, OSError(failed, os.strerror(failed)))
                return False
            self.sink_full(moved - max(sent, 0))
        if len(self.boundary_waiters) or self.metered:
            self.moved(moved)
            return False
        return self._full > 0 and not self.rest and sent == moved

    cdef ssize_t _splice_peeked(self, int to, ssize_t got) except? -1:
        """Splice up to the furthest boundary known from the `got` peeked bytes into `to`; return the bytes moved, -1
        if that failed, _STOPPED if there were none or a frame is too large."""
        cdef ssize_t begin, last, at, wanted, moved, end = _HEADROOM + got
        if not self._scan_frames(got, &begin, &last, &at):
            return _STOPPED
        wanted = at - <ssize_t>_HEADROOM if at >= end else got
        if len(self.boundary_waiters) and <ssize_t>_HEADROOM < at < end:
            # Somebody waits for the boundary: the header behind it stays in the socket.
            wanted = at - <ssize_t>_HEADROOM
        moved = splice(self.fd_in, NULL, to, NULL, min(wanted, _CHUNK), _MOVE)
        if moved >= got:
            self._set_position(got, last, at)
            self.rest -= moved - got
        elif moved > 0:
            # The pipe took fewer bytes than were peeked at (it has few slots), or the scan stopped at a boundary.
            self._walk(begin, <ssize_t>_HEADROOM + moved)
        return moved or _STOPPED

    cdef _walk(self, ssize_t at, ssize_t end):
        """Set the position to offset `end` of the staging area, given that a frame begins at offset `at`."""
        cdef uint8_t *data = &self._staging.bytes[0]
        while at + 7 <= end:
            at += <int64_t>_word(data + at + 3) + 8
        self.rest = max(at - end, 0)
        self.part = data[at:end] if at < end else b""

    cdef bint _scan(self, ssize_t got) except -1:
        """Scan the `got` staged bytes and move the position behind them; False if a frame is too large."""
        cdef ssize_t begin, last, at
        if not self._scan_frames(got, &begin, &last, &at):
            return False
        self._set_position(got, last, at)
        return True

    cdef bint _scan_frames(self, ssize_t got, ssize_t *begin, ssize_t *last, ssize_t *behind) except -1:
        cdef uint8_t *data = &self._staging.bytes[0]
        cdef ssize_t end = _HEADROOM + got, at = _HEADROOM + self.rest, index
        cdef int64_t size, most = self._most
        cdef unsigned int method
        cdef bytes part = self.part
        if part:
            at = _HEADROOM - len(part)
            for index in range(len(part)):
                data[at + index] = part[index]
        begin[0] = at
        last[0] = -1
        while at + 7 <= end:
            size = <int64_t>_word(data + at + 3)
            if size > most:
                self._too_large(size)
                return False
            if data[at] == 1 and not data[at + 1] | data[at + 2] and size >= 4:
                if at + 11 > end:
                    # Which method it is belongs to its header.
                    break
                method = _word(data + at + 7)
                if method == _BLOCKED or method == _UNBLOCKED:
                    self.blocked = method == _BLOCKED
                    self._alarmed = True
            last[0] = at
            at += size + 8
        behind[0] = at
        return True

    cdef _set_position(self, ssize_t got, ssize_t last, ssize_t at):
        cdef uint8_t *data = &self._staging.bytes[0]
        cdef ssize_t end = _HEADROOM + got
        if at >= end:
            self.rest = at - end
            if self.part:
                self.part = b""
        else:
            self.rest = 0
            self.part = data[at:end]
        if last >= 0:
            self._full = self._full + 1 if at - last >= self.frame_max else 0
            if data[last] == 1 and last + 11 <= end and not data[last + 1] | data[last + 2]:
                self.last_method = _word(data + last + 7)
                self._close_ok = self.last_method == _CLOSE_OK
            if at - last >= _LARGE_FRAME:
                self.peek_size = _PEEK_LARGE
                if not self._seen_large:
                    self._seen_large = True
                    self._first_large_frame()
            elif self.peek_size != _ALL:
                self.peek_size = <int>_ALL
            elif got >= _BUSY_BYTES:
                self.count_busy_read()
            elif got < _QUIET_BYTES:
                self.busy_reads = 0

    cdef _count_long_read(self, ssize_t moved):
        """Count a read of a long body."""
        cdef double now = monotonic()
        if now - self._counted > _FAST_WITHIN:
            self._counted, self._brought = now, 0
        self._brought += moved
        if self._brought >= _FAST_BYTES:
            self.count_busy_read()

    def reset_peek(self):
        """Ask for as much as fits again."""
        self.peek_size = <int>_ALL

    def count_busy_read(self):
        """Count a read of many bytes."""
        if self.frame_max <= _MAX_RESYNC_FRAME:
            self.busy_reads += 1

    def record_position(self):
        """Write the position to the journal."""
        self._record_position()

    cdef void _record_position(self) noexcept:
        self._staging.cells[self.cell] = _UNKNOWN if self.blind is not None or self.part else <uint64_t>self.rest


cdef inline unsigned int _word(uint8_t *at) noexcept nogil:
    return <unsigned int>at[0] << 24 | <unsigned int>at[1] << 16 | <unsigned int>at[2] << 8 | at[3]
