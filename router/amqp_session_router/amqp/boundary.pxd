# The C types of boundary.py.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from amqp_session_router.base cimport native

cdef int64_t _HEADER, _OVERHEAD, _LARGEST
cdef int32_t _BREAKS


@cython.final
cdef class _Stretch:
    cdef bytes whole
    cdef uint8_t *data
    cdef int64_t length, most, header_most, channel_max
    cdef int32_t[::1] known

    @cython.locals(kind=uint8_t, channel=int64_t, size=int64_t, end=int64_t, left=int64_t)
    cdef int64_t behind(self, int64_t at) noexcept

    cdef bint tail_possible(self, int64_t at) noexcept

    @cython.locals(known=int32_t[::1], last=int64_t, place=int64_t, found=int64_t, after=int64_t)
    cdef int64_t arrives(self, int64_t start) noexcept


@cython.locals(length=int64_t, size=int64_t, method=uint64_t)
cpdef walk(bytes whole, int64_t at, int64_t most, int64_t stop)

@cython.locals(length=int64_t, most=int64_t, longest=int64_t, stretch=_Stretch, found=int64_t, stop=int64_t, start=int64_t, arrives=int64_t)
cpdef locate(bytes data, int64_t frame_max, int64_t channel_max, int64_t header_max=*)
