# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The fast path: what one direction of a session does for each small read. Compiled: it runs once per event.

One recv(2) into the staging buffer, a walk over the frame headers, one send(2). Everything else (a large frame, many
bytes at once, a full sink, end of stream, an error, somebody waiting for a frame boundary) is left to the subclass,
`splice_flow.SpliceFlow`.
"""

import os

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t

from amqp_session_router.amqp import codec
from amqp_session_router.relay import journal

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int, void *, size_t, int)
    ssize_t send(int, const void *, size_t, int)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef size_t _HEADROOM = journal.HEADROOM
cdef size_t _ACTIVE_FLOW = journal.ACTIVE_FLOW
cdef size_t _STAGED = journal.STAGED
cdef uint64_t _STAGED_FLAG = journal.STAGED_FLAG
cdef ssize_t _ALL = journal.READ_SIZE
cdef uint64_t _UNKNOWN = journal.UNKNOWN
cdef unsigned int _CLOSE_OK = codec.CLOSE_OK

LARGE_FRAME = 4096
"""Bytes of a frame that is spliced, not copied; the next header is then looked at by peeking."""
PEEK_LARGE = 256
"""Bytes to peek at behind a large frame: its successor is probably large too."""
BUSY_READS, BUSY_BYTES, QUIET_BYTES = 16, 8192, 1024
"""BUSY_READS reads of at least BUSY_BYTES each start a blind splice; a read below QUIET_BYTES restarts the count."""
MAX_RESYNC_FRAME = 1 << 17
"""The largest frame_max, in bytes, with which a frame boundary can be found again after a blind splice."""

cdef int64_t _LARGE_FRAME = LARGE_FRAME, _BUSY_BYTES = BUSY_BYTES, _QUIET_BYTES = QUIET_BYTES
cdef int64_t _MAX_RESYNC_FRAME = MAX_RESYNC_FRAME
cdef int _PEEK_LARGE = PEEK_LARGE, _BUSY_READS = BUSY_READS


cdef class StagingBuffer:
    """The staging buffer and the cells of the journal (see `journal`), as the flows of one process use them."""

    cdef uint8_t[::1] bytes
    cdef uint64_t[::1] cells

    def __init__(self, staging, cells):
        """`staging`: a writable buffer of HEADROOM + READ_SIZE bytes; `cells`: 64-bit words. Raises ValueError."""
        self.bytes = staging
        self.cells = cells
        if <size_t>len(staging) < _HEADROOM + <size_t>_ALL:
            raise ValueError("the staging buffer is too small")


cdef class FastPath:
    """The frame position of one direction, and its fast path from source to sink."""

    cdef StagingBuffer _staging
    cdef readonly int fd_in, fd_out
    cdef readonly size_t cell
    """Index of its first journal cell."""
    cdef readonly int peek_size
    """Bytes that the next read or peek asks for."""
    cdef public int busy_reads
    """Recent reads of many bytes."""
    cdef public int64_t rest
    """Bytes left of the current frame."""
    cdef public bytes part
    """Behind a boundary: the first bytes of an incomplete header."""
    cdef public int64_t total
    """Bytes read."""
    cdef public int64_t frame_max
    cdef public unsigned int last_method
    """Class and method of the last method frame on channel 0."""
    cdef public bint metered
    cdef public object blind
    """The blind splice in progress (`blind_splice.BlindSplice`), else None."""
    cdef public list boundary_waiters
    """Callbacks that wait for a frame boundary."""

    def __init__(self, StagingBuffer staging, int fd_in, int fd_out, size_t cell, int64_t frame_max):
        """`cell`: index of the flow's first cell; `frame_max`: bytes. Raises IndexError for a cell out of range."""
        if cell >= <size_t>staging.cells.shape[0]:
            raise IndexError("there is no such cell")
        self._staging = staging
        self.fd_in, self.fd_out = fd_in, fd_out
        self.cell = cell
        self.peek_size = _ALL
        self.part = b""
        self.frame_max = frame_max
        self.boundary_waiters = []

    def readable(self):
        """The source is readable. Hot path."""
        if (
            self.busy_reads >= _BUSY_READS or self.blind is not None or self.rest >= _LARGE_FRAME
            or self.peek_size != _ALL or len(self.boundary_waiters)
        ):
            self._slow_path()
        else:
            self._forward()

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
        cdef int64_t size, most = self.frame_max - 8
        cdef bytes part = self.part
        if part:
            at = _HEADROOM - len(part)
            for index in range(len(part)):
                data[at + index] = part[index]
        begin[0] = at
        last[0] = -1
        while at + 7 <= end:
            last[0] = at
            size = <int64_t>_word(data + at + 3)
            if size > most:
                self._too_large(size)
                return False
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
            if data[last] == 1 and last + 11 <= end and not data[last + 1] | data[last + 2]:
                self.last_method = _word(data + last + 7)
                if self.last_method == _CLOSE_OK:
                    self._close_ok_seen()
            if at - last >= _LARGE_FRAME:
                self.peek_size = _PEEK_LARGE
            elif self.peek_size != _ALL:
                self.peek_size = <int>_ALL
            elif got >= _BUSY_BYTES:
                self.count_busy_read()
            elif got < _QUIET_BYTES:
                self.busy_reads = 0

    def scan(self, ssize_t got):
        """Scan the frame headers of the first `got` staged bytes.

        Returns the offsets of the first header, of the last one (-1: none) and of the one after it; None if a frame is
        too large, which was reported to the flow.
        """
        cdef ssize_t begin, last, at
        return (begin, last, at) if self._scan_frames(got, &begin, &last, &at) else None

    def set_position(self, ssize_t got, ssize_t last, ssize_t at):
        """`got` staged bytes were read: set the position and the size of the next peek."""
        self._set_position(got, last, at)

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
