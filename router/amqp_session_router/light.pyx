# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Light traffic: what a flow does for each small event. Compiled, because here each microsecond is paid per event.

Bytes are read into the hold, the frames in them are counted, and they are written on: two system calls. All that is
out of the ordinary (a large frame, a crowd of bytes, a full sink, an end, a failure, someone who waits for a boundary)
is left to the class that inherits from this one, see `flow.Flow`, which also says why it is done so.
"""

import os

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t

from amqp_session_router import journal, wire

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int, void *, size_t, int)
    ssize_t send(int, const void *, size_t, int)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef size_t _AHEAD = journal.AHEAD
cdef size_t _AT_WORK = journal.AT_WORK
cdef size_t _HELD = journal.HELD
cdef uint64_t _HOLDING = journal.HOLDING
cdef ssize_t _ALL = journal.LOOK
cdef uint64_t _UNKNOWN = journal.UNKNOWN
cdef unsigned int _CLOSE_OK = wire.CLOSE_OK

LARGE = 4096
"""Behind a frame of this length comes another, and its header is all there is to see."""
LOOK_LARGE = 256
CROWD, MANY, FEW = 16, 8192, 1024
"""So many turns with many bytes make a stream go unseen, unless a look shows few between them."""
MOST_PROVEN = 1 << 17
"""The longest frame whose boundary can be found again in a stream that went unseen."""

cdef int64_t _LARGE = LARGE, _MANY = MANY, _FEW = FEW, _MOST_PROVEN = MOST_PROVEN
cdef int _LOOK_LARGE = LOOK_LARGE, _CROWD = CROWD


cdef class Hold:
    """The hold and the cells (see `journal`), as the flows of a process use them."""

    cdef uint8_t[::1] bytes
    cdef uint64_t[::1] cells

    def __init__(self, hold, cells):
        """`hold`: a writable buffer of AHEAD + LOOK bytes; `cells`: one of 64-bit words. Raises ValueError."""
        self.bytes = hold
        self.cells = cells
        if <size_t>len(hold) < _AHEAD + <size_t>_ALL:
            raise ValueError("the hold is too small")


cdef class Light:
    """Where one direction stands, and the way of light traffic from its source to its sink."""

    cdef Hold _hold
    cdef readonly int fd_in, fd_out
    cdef readonly size_t cell
    """The first of its cells."""
    cdef readonly int look
    """How many bytes the next look takes."""
    cdef public int crowd
    """Turns with many bytes, lately."""
    cdef public int64_t rest
    """Bytes before the next boundary."""
    cdef public bytes part
    """Behind a boundary: the first bytes of a header."""
    cdef public int64_t total
    """Bytes that were read."""
    cdef public int64_t frame_max
    cdef public unsigned int last_method
    """Class and method of the last method frame on channel 0."""
    cdef public bint metered
    cdef public object unseen
    """Who moves the bytes without a look (see `unseen`); None: they are looked at."""
    cdef public list at_turns
    """What waits for a boundary."""

    def __init__(self, Hold hold, int fd_in, int fd_out, size_t cell, int64_t frame_max):
        """`cell` is the first of the flow's cells; `frame_max` in bytes. Raises IndexError for a cell that is not."""
        if cell >= <size_t>hold.cells.shape[0]:
            raise IndexError("there is no such cell")
        self._hold = hold
        self.fd_in, self.fd_out = fd_in, fd_out
        self.cell = cell
        self.look = _ALL
        self.part = b""
        self.frame_max = frame_max
        self.at_turns = []

    def readable(self):
        """The source has something to read: the hot path."""
        if (
            self.crowd >= _CROWD or self.unseen is not None or self.rest >= _LARGE
            or self.look != _ALL or len(self.at_turns)
        ):
            self._by_kernel()
        else:
            self._pass_on()

    cdef _pass_on(self):
        """Read into the hold and write from it."""
        cdef uint64_t *cells = &self._hold.cells[0]
        cdef uint8_t *look = &self._hold.bytes[_AHEAD]
        cdef int64_t rest = self.rest
        cdef ssize_t got, sent
        cdef int failed
        cells[_AT_WORK] = self.cell | _HOLDING
        try:
            got = recv(self.fd_in, look, _ALL, MSG_DONTWAIT)
            if got < 0:
                failed = errno
                if failed != EAGAIN and failed != EINTR:
                    self.broke(True, OSError(failed, os.strerror(failed)))
                return
            cells[_HELD] = got
            if not got:
                self.ended()
                return
            if not self._walk(got):
                return
            self.total += got
            if rest or self.rest or self.part:
                self._note()
            sent = send(self.fd_out, look, got, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent != got:
                failed = errno
                if sent < 0 and failed != EAGAIN and failed != EINTR:
                    self._unwritten(got, OSError(failed, os.strerror(failed)))
                    return
                self._keep(max(sent, 0), got)
        finally:
            cells[_AT_WORK] = 0
            cells[_HELD] = 0
        if self.metered:
            self.owner.flow_moved(self, got)

    cdef bint _walk(self, ssize_t got) except -1:
        """Walk over the frames of the `got` bytes in the hold, and stand behind them; False if a frame is too large."""
        cdef ssize_t begin, last, at
        if not self._frames(got, &begin, &last, &at):
            return False
        self._stand(got, last, at)
        return True

    cdef bint _frames(self, ssize_t got, ssize_t *begin, ssize_t *last, ssize_t *behind) except -1:
        cdef uint8_t *data = &self._hold.bytes[0]
        cdef ssize_t end = _AHEAD + got, at = _AHEAD + self.rest, index
        cdef int64_t size, most = self.frame_max - 8
        cdef bytes part = self.part
        if part:
            at = _AHEAD - len(part)
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

    cdef _stand(self, ssize_t got, ssize_t last, ssize_t at):
        cdef uint8_t *data = &self._hold.bytes[0]
        cdef ssize_t end = _AHEAD + got
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
                    self._took_leave()
            if at - last >= _LARGE:
                self.look = _LOOK_LARGE
            elif self.look != _ALL:
                self.look = <int>_ALL
            elif got >= _MANY:
                self.crowded()
            elif got < _FEW:
                self.crowd = 0

    def frames(self, ssize_t got):
        """Walk over the frames of the first `got` bytes in the hold.

        Returns where in it the first header begins, the last one (-1: none), and the one behind; None if a frame is too
        large, which the flow was told.
        """
        cdef ssize_t begin, last, at
        return (begin, last, at) if self._frames(got, &begin, &last, &at) else None

    def stand(self, ssize_t got, ssize_t last, ssize_t at):
        """`got` bytes in the hold were read: note where the source stands, and what is to be expected."""
        self._stand(got, last, at)

    def look_again(self):
        """Expect anything."""
        self.look = <int>_ALL

    def crowded(self):
        """Count a turn with many bytes."""
        if self.frame_max <= _MOST_PROVEN:
            self.crowd += 1

    def note(self):
        """Say where the source stands, for a successor."""
        self._note()

    cdef void _note(self) noexcept:
        self._hold.cells[self.cell] = _UNKNOWN if self.unseen is not None or self.part else <uint64_t>self.rest


cdef inline unsigned int _word(uint8_t *at) noexcept nogil:
    return <unsigned int>at[0] << 24 | <unsigned int>at[1] << 16 | <unsigned int>at[2] << 8 | at[3]
