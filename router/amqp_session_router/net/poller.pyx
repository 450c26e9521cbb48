# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Tells sessions what happens at their sockets, by an epoll of our own in which the event loop waits. Compiled: it runs
once per event.

The event loop's own readers cost a connection several system calls and a message a turn of the loop. Here a socket is
entered once. Who stops reading is found not to want the next event, and only then is the kernel told; closing tells it
by itself.
"""

import os

from libc.errno cimport errno
from libc.math cimport ceil
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int)
    int epoll_ctl(int, int, int, epoll_event *)
    int epoll_wait(int, epoll_event *, int, int)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    uint32_t EPOLLIN, EPOLLERR, EPOLLHUP

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events, revents
    int poll(pollfd *, unsigned long, int)

cdef extern from *:
    """
    #include <time.h>

    static inline double monotonic_ms(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
    }

    /* Have the method at `fd` brought into the processor's cache, which nothing has to wait for. */
    static inline void prefetch_method(PyObject *methods, int fd)
    {
        __builtin_prefetch(PyList_GET_ITEM(methods, fd), 1);
    }

    /* The same for the object that it is bound to: its first 192 bytes. */
    static inline void prefetch_owner(PyObject *methods, int fd)
    {
        PyObject *method = PyList_GET_ITEM(methods, fd);
        if (PyMethod_Check(method)) {
            const char *owner = (const char *)PyMethod_GET_SELF(method);
            __builtin_prefetch(owner, 1);
            __builtin_prefetch(owner + 64, 1);
            __builtin_prefetch(owner + 128, 1);
        }
    }
    """
    double monotonic_ms() nogil
    void prefetch_method(list, int)
    void prefetch_owner(list, int)

cdef enum:
    _ENTERED = 1  # the kernel knows the socket
    _POLLED = 2  # and is asked for what can be read
    _WANTED = 4  # which somebody wants
    _FAILED = 8
    _MOST = 256  # events at once
    _LONGEST = 3_600_000  # milliseconds


cdef class Poller:
    """Calls the reader of a socket when there is something to read, and the keeper of one that failed."""

    cdef object _loop
    cdef int _epoll, _others
    cdef list _readers, _keepers
    cdef bytearray _states
    cdef readonly unsigned long turn
    """How often it has told of what happened."""

    def __init__(self, loop):
        self._loop = loop
        self._readers, self._keepers, self._states = [], [], bytearray()
        self._epoll = epoll_create1(EPOLL_CLOEXEC)
        if self._epoll < 0:
            raise OSError(errno, os.strerror(errno))
        self._others = loop.wait_by(self.wait)
        self._tell(EPOLL_CTL_ADD, self._others, EPOLLIN)

    def watch(self, int fd, keeper):
        """Have `keeper.drain_on_error` called once the socket `fd` has failed, in place of any earlier keeper's."""
        cdef uint8_t state
        if fd < 0:
            raise ValueError("this socket is closed")
        if not self._knows(fd):
            self._grow(fd)
        state = self._states[fd]
        if self._keepers[fd] is keeper:
            return
        self._keepers[fd] = keeper
        if state & _FAILED:
            self._loop.call_soon(keeper.drain_on_error)
        elif not state & _ENTERED:
            self._tell(EPOLL_CTL_ADD, fd, EPOLLIN)
            self._states[fd] = state | _ENTERED | _POLLED

    def read(self, int fd, reader):
        """Call `reader` whenever there is something to read at `fd`, which is watched, in place of any earlier one."""
        cdef uint8_t state
        if not self._knows(fd):
            raise KeyError(fd)
        state = self._states[fd] | _WANTED
        self._readers[fd] = reader
        if state & _ENTERED and not state & _POLLED:
            self._tell(EPOLL_CTL_MOD, fd, EPOLLIN)
            state |= _POLLED
        self._states[fd] = state

    def unread(self, int fd):
        """Call no reader of `fd`. Idempotent."""
        if self._knows(fd):
            self._states[fd] &= ~_WANTED
            self._readers[fd] = None

    def forget(self, int fd):
        """Forget the socket `fd`, which is about to be closed and has no duplicates (the kernel drops it by itself)."""
        if self._knows(fd):
            self._states[fd] = 0
            self._readers[fd] = self._keepers[fd] = None

    def leave(self, int fd):
        """Stop watching `fd`, of which another process has a duplicate."""
        if self._knows(fd):
            if self._states[fd] & _ENTERED:
                epoll_ctl(self._epoll, EPOLL_CTL_DEL, fd, NULL)
            self.forget(fd)

    def close(self):
        """Release everything."""
        self._loop.wait_by(None)
        os.close(self._epoll)
        self._readers, self._keepers, self._states = [], [], bytearray()

    cdef inline bint _knows(self, int fd) noexcept:
        return 0 <= fd < len(self._states)

    cdef _grow(self, int fd):
        cdef int more = max(fd + 1, 64)
        self._states.extend(bytes(more))
        self._readers.extend([None] * more)
        self._keepers.extend([None] * more)

    cdef _tell(self, int what, int fd, uint32_t events):
        cdef epoll_event event
        event.events = events
        event.data.fd = fd
        if epoll_ctl(self._epoll, what, fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))

    def wait(self, timeout, ready, timers):
        """Tell of what happens for at most `timeout` seconds, None: for ever; until there is something in `ready`, in
        `timers` or for the event loop. Returns whether the latter is so."""
        cdef epoll_event events[_MOST]
        cdef int count, left = -1
        cdef double until = 0
        if timeout is not None:
            left = 0 if timeout <= 0 else <int>ceil(min(<double>timeout * 1000, <double>_LONGEST))
            until = monotonic_ms() + left
        while True:
            if left == 0:
                count = epoll_wait(self._epoll, events, _MOST, 0)
            else:
                with nogil:
                    count = epoll_wait(self._epoll, events, _MOST, left)
            # None, or a signal.
            if count <= 0:
                return False
            if self._told(events, count):
                return True
            if left == 0 or len(ready) or len(timers):
                return False
            if left > 0:
                left = max(0, <int>ceil(until - monotonic_ms()))

    cdef bint _told(self, epoll_event *events, int count):
        """Tell of `events`; returns whether there is something for the event loop."""
        cdef bint others = False
        cdef int index, fd
        cdef uint32_t seen
        self.turn += 1
        for index in range(count):
            self._prefetch(events, index, count)
            fd, seen = events[index].data.fd, events[index].events
            if fd == self._others:
                others = True
                continue
            if not self._knows(fd):
                # Closed meanwhile.
                continue
            try:
                if seen & (EPOLLERR | EPOLLHUP):
                    self._fail(fd)
                elif self._states[fd] & (_WANTED | _ENTERED) == _ENTERED:
                    self._tell(EPOLL_CTL_MOD, fd, 0)
                    self._states[fd] &= ~_POLLED
                if seen & EPOLLIN and self._states[fd] & _WANTED:
                    self._readers[fd]()
            except Exception as error:
                # As the event loop does it: the others go on.
                self._loop.call_exception_handler({"message": f"a socket's reader failed: {error}", "exception": error})
        return others

    cdef inline void _prefetch(self, epoll_event *events, int index, int count):
        """Prefetch what the events behind `index` will need: with many sessions a turn of the event loop finds it in
        memory only, and waiting for it was seen to take 2 % of a message's time."""
        if index + 2 < count and self._knows(events[index + 2].data.fd):
            prefetch_method(self._readers, events[index + 2].data.fd)
        if index + 1 < count and self._knows(events[index + 1].data.fd):
            prefetch_owner(self._readers, events[index + 1].data.fd)

    cdef _fail(self, int fd):
        """The socket has failed, or is shut in both directions: no event will say more."""
        cdef pollfd now
        now.fd, now.events, now.revents = fd, 0, 0
        # What failed may have been closed in this turn, and its number be another's.
        if self._states[fd] & _ENTERED and poll(&now, 1, 0) > 0:
            epoll_ctl(self._epoll, EPOLL_CTL_DEL, fd, NULL)
            self._states[fd] = self._states[fd] & _WANTED | _FAILED
            self._loop.call_soon(self._keepers[fd].drain_on_error)
