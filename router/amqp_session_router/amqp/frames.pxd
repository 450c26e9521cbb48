# The C types of frames.py. (`short` and `long` have none: Cython would take the methods of Reader for them.)

cimport cython
from libc.stdint cimport uint64_t

from amqp_session_router.base cimport native

cdef Py_ssize_t _HEADER, _OVERHEAD
cdef int _METHOD, _END_OCTET


@cython.final
cdef class Frame:
    cdef readonly int type, channel
    cdef readonly bytes payload
    cdef readonly unsigned int method


@cython.locals(length=Py_ssize_t, whole=Py_ssize_t, method=uint64_t, found=Frame)
cpdef next_frame(bytearray buffer, Py_ssize_t limit)

@cython.locals(size=Py_ssize_t)
cpdef bytes frame(bytes payload, unsigned int channel=*, unsigned int kind=*)


@cython.locals(size=Py_ssize_t)
cdef bytes _counted(bytes data, Py_ssize_t width)


@cython.final
cdef class Reader:
    cdef bytes _payload
    cdef Py_ssize_t _at

    cpdef number(self, Py_ssize_t width)

    @cython.locals(at=Py_ssize_t, index=Py_ssize_t, value=uint64_t, payload=bytes)
    cdef uint64_t _number(self, Py_ssize_t width) except? 0

    @cython.locals(at=Py_ssize_t)
    cpdef bytes take(self, Py_ssize_t count)

    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _step(self, Py_ssize_t count) except -1
