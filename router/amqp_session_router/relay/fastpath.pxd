# The C types of fastpath.py.

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from amqp_session_router.base cimport native

cdef int64_t _HEADROOM, _ACTIVE_FLOW, _ACTIVE_PIPE, _STAGED, _ALL
cdef uint64_t _STAGED_FLAG, _UNKNOWN
cdef unsigned int _CLOSE_OK, _BLOCKED, _UNBLOCKED, _MOVE
cdef int64_t _LARGE_FRAME, _MAX_RESYNC_FRAME, _BUSY_BYTES, _QUIET_BYTES, _FAST_BYTES, _CHUNK, _ANY_SIZE, _STOPPED
cdef int _PEEK_LARGE, _FRAMES, _BUSY_READS, _LONG_BODY
cdef double _FAST_WITHIN


@cython.final
cdef class StagingBuffer:
    cdef tuple _kept
    cdef uint8_t *data
    cdef uint64_t *cells
    cdef list pipes
    cdef object pipe
    cdef int to, out
    cdef uint64_t ends

    cdef int64_t size(self) except -1
    cdef look_at_pipe(self)


cdef class FastPath:
    cdef StagingBuffer _staging
    cdef readonly int fd_in, fd_out
    cdef readonly int64_t cell
    cdef readonly int peek_size
    cdef bint _close_ok, _alarmed, _seen_large
    cdef int _full
    cdef double _counted
    cdef int64_t _brought, _most, _begin, _last, _at
    cdef public int busy_reads
    cdef public int64_t rest, total, frame_max
    cdef public bytes part
    cdef public bint blocked, metered
    cdef public unsigned int last_method
    cdef public object blind
    cdef public tuple boundary_waiters

    @cython.locals(rest=int64_t, got=int64_t, sent=int64_t)
    cdef _forward(self)

    @cython.locals(staging=StagingBuffer, rest=int64_t, to=int, out=int, moved=int64_t, sent=int64_t)
    cdef bint _splice(self) except -1

    @cython.locals(end=int64_t, wanted=int64_t, moved=int64_t)
    cdef int64_t _splice_peeked(self, int to, int64_t got) except? -1

    @cython.locals(size=int64_t)
    cdef _walk(self, int64_t at, int64_t end)

    @cython.locals(end=int64_t, most=int64_t, at=int64_t, last=int64_t, size=int64_t, index=int64_t, part=bytes, method=uint32_t)
    cdef bint _scan_frames(self, int64_t got) except -1

    @cython.locals(end=int64_t, last=int64_t, at=int64_t, method=uint32_t)
    cdef _set_position(self, int64_t got)

    @cython.locals(now=double)
    cdef _count_long_read(self, int64_t moved)

    cdef void _record(self) noexcept


cdef _error(int64_t result)
