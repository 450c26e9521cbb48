# The C types of frame_scan.py.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from amqp_session_router.base cimport native

cdef int64_t _HEADROOM, _HEADER, _OVERHEAD, _BLOCKED, _UNBLOCKED


@cython.final
cdef class FrameScan:
    cdef object _kept
    cdef uint8_t *_data
    cdef int64_t _begin
    cdef int64_t next, length, method, alarm, too_large

    @cython.locals(end=int64_t, at=int64_t, index=int64_t, size=int64_t, length=int64_t, method=int64_t)
    cdef bint walk(self, int64_t rest, bytes part, int64_t got, int64_t most) except -1

    @cython.locals(at=int64_t, end=int64_t, size=int64_t)
    cdef void shorten(self, int64_t count) noexcept

    cdef bytes part(self, int64_t count)
