# The C types of fastpath.py.

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from amqp_session_router.base cimport native
from amqp_session_router.relay.frame_scan cimport FrameScan
from amqp_session_router.relay.stream_profile cimport StreamProfile

cdef int64_t _HEADROOM, _ACTIVE_FLOW, _ACTIVE_PIPE, _STAGED, _ALL
cdef uint64_t _STAGED_FLAG, _UNKNOWN
cdef unsigned int _CLOSE_OK, _BLOCKED, _MOVE
cdef int64_t _LARGE_FRAME, _CHUNK, _ANY_SIZE, _STOPPED
cdef int _FRAMES


@cython.final
cdef class StagingBuffer:
    cdef tuple _kept
    cdef uint8_t *data
    cdef uint64_t *cells
    cdef FrameScan scan
    cdef list pipes
    cdef object pipe
    cdef int to, out
    cdef uint64_t ends

    cdef int64_t size(self) except -1
    cdef look_at_pipe(self)


cdef class FastPath:
    cdef StagingBuffer _staging
    cdef readonly StreamProfile profile
    cdef readonly int fd_in, fd_out
    cdef readonly int64_t cell
    cdef bint _close_ok, _alarmed
    cdef int64_t _most
    cdef public int64_t rest, total
    cdef public bytes part
    cdef public bint blocked
    cdef public unsigned int last_method
    cdef public object blind, meter
    cdef readonly object owner
    cdef public tuple boundary_waiters

    @cython.locals(rest=int64_t, got=int64_t, sent=int64_t)
    cdef _forward(self)

    @cython.locals(staging=StagingBuffer, rest=int64_t, to=int, out=int, moved=int64_t, sent=int64_t)
    cdef bint _splice(self) except -1

    cdef _nothing_read(self, int64_t result)

    @cython.locals(scan=FrameScan, wanted=int64_t, moved=int64_t)
    cdef int64_t _splice_peeked(self, int to, int64_t got) except? -1

    @cython.locals(scan=FrameScan, allowed=bint)
    cdef bint _scan_frames(self, int64_t got) except -1

    @cython.locals(scan=FrameScan)
    cdef _take_in(self, int64_t got)

    @cython.locals(scan=FrameScan)
    cdef _set_position(self, int64_t count)

    cdef void _record(self) noexcept


cdef bint _broke(int64_t result) noexcept

cdef _error(int64_t result)
