# The C types of poller.py.

cimport cython
from libc.stdint cimport uint8_t, uint32_t

from amqp_session_router.base cimport native

cdef int _ENTERED, _POLLED, _WANTED, _FAILED, _MOST, _LONGEST


@cython.final
cdef class Poller:
    cdef object _loop
    cdef int _epoll, _others
    cdef bytearray _room
    cdef native.epoll_event *_events
    cdef list _readers, _keepers
    cdef bytearray _states
    cdef readonly unsigned long turn

    @cython.locals(state=uint8_t)
    cpdef watch(self, int fd, keeper)

    @cython.locals(state=uint8_t)
    cpdef read(self, int fd, reader)

    cpdef unread(self, int fd)

    cpdef forget(self, int fd)

    cpdef leave(self, int fd)

    cdef bint _knows(self, int fd) noexcept

    @cython.locals(more=int)
    cdef _grow(self, int fd)

    cdef int _check(self, int result) except -1

    @cython.locals(left=int, until=double, count=int)
    cpdef wait(self, timeout, ready, timers)

    @cython.locals(index=int, fd=int, seen=uint32_t, others=bint)
    cdef bint _handle(self, int count) except -1

    cdef int _fail(self, int fd) except -1
