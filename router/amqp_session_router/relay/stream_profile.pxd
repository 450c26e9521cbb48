# The C types of stream_profile.py.

cimport cython
from libc.stdint cimport int64_t

cdef int _ALL, _PEEK_LARGE, _BUSY_READS, _LONG_BODY
cdef int64_t _LARGE_FRAME, _MAX_RESYNC_FRAME, _BUSY_BYTES, _QUIET_BYTES, _FAST_BYTES
cdef double _FAST_WITHIN


@cython.final
cdef class StreamProfile:
    cdef int peek_size
    cdef int full
    cdef public int busy_reads
    cdef public bint heeded
    cdef int64_t _frame_max, _brought
    cdef bint _seen_large
    cdef double _counted

    cdef bint add_read(self, int64_t got, int64_t length) noexcept

    cdef add_splice(self, int64_t moved)

    @cython.locals(now=double)
    cdef _add_long_read(self, int64_t moved)

    cdef void _add_busy_read(self) noexcept

    cdef bint busy(self) noexcept

    cpdef reset_peek(self)
