# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What C does otherwise than Python: system calls on descriptors, and bytes at an address. Nothing is decided here.

The hot modules (setup.py names them) are Python, compiled with a .pxd beside each that has their C types. They call
this module for what the two languages do not share; `native.py` has the same names for where nothing is compiled.
What fails returns minus errno, so that nothing is raised on the way of the bytes.
"""

import os
import socket

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.math cimport ceil
from libc.string cimport memcpy

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    cdef struct sockaddr:
        pass
    cdef struct sockaddr_storage:
        pass
    int accept4(int, sockaddr *, socklen_t *, int)
    int setsockopt(int, int, int, const void *, socklen_t)
    ssize_t recv(int, void *, size_t, int)
    ssize_t send(int, const void *, size_t, int)
    int AF_INET, AF_INET6, SOCK_NONBLOCK, SOCK_CLOEXEC, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK

cdef extern from "<netinet/in.h>" nogil:
    cdef struct in_addr:
        pass
    cdef struct in6_addr:
        pass
    cdef struct sockaddr_in:
        unsigned short sin_family
        uint16_t sin_port
        in_addr sin_addr
    cdef struct sockaddr_in6:
        uint16_t sin6_port
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    uint16_t ntohs(uint16_t)

cdef extern from "<arpa/inet.h>" nogil:
    const char *inet_ntop(int, const void *, char *, socklen_t)

cdef extern from "<fcntl.h>" nogil:
    ssize_t c_splice "splice" (int, void *, int, void *, size_t, unsigned int)

cdef extern from "<sys/epoll.h>" nogil:
    int epoll_create1(int)
    int epoll_ctl(int, int, int, epoll_event *)
    int c_epoll_wait "epoll_wait" (int, epoll_event *, int, int)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events, revents
    int poll(pollfd *, unsigned long, int)

CHUNK = 65536
"""Bytes of one read by `receive`."""

cdef char _read[65536]
cdef int _STREAM = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
# Not its subclass in Python, of which the making and the end took 2 µs more each time.
cdef object _socket = socket.SocketType, _name_of = socket.if_indextoname
cdef object _V4 = socket.AF_INET, _V6 = socket.AF_INET6


# --- for everybody ------------------------------------------------------------------------------------------------


def accept(int listening):
    """Return the next connection of a listening socket, not blocking, and its peer's address and port; None if there is
    none. Raises OSError."""
    cdef sockaddr_storage peer
    cdef sockaddr_in *v4 = <sockaddr_in *>&peer
    cdef sockaddr_in6 *v6 = <sockaddr_in6 *>&peer
    cdef socklen_t size = sizeof(peer)
    cdef char text[64]
    cdef int fd = accept4(listening, <sockaddr *>&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
    if fd < 0:
        if errno == EAGAIN or errno == EINTR:
            return None
        raise OSError(errno, os.strerror(errno))
    # Whatever fails from here on, the socket is closed with its object.
    sock = _socket(_V4 if v4.sin_family == AF_INET else _V6, _STREAM, 0, fd)
    # Not asked for by getpeername(): the peer may be gone.
    if v4.sin_family == AF_INET:
        inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text))
        return sock, ((<bytes>text).decode(), ntohs(v4.sin_port))
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text))
    address = (<bytes>text).decode()
    if v6.sin6_scope_id:
        address = f"{address}%{_name_of(v6.sin6_scope_id)}"
    return sock, (address, ntohs(v6.sin6_port))


def receive(int fd):
    """Return the next bytes of a socket, at most CHUNK, or b"" at its end; None: there are none yet. Raises OSError."""
    cdef ssize_t got = recv(fd, _read, sizeof(_read), MSG_DONTWAIT)
    if got < 0:
        if errno == EAGAIN or errno == EINTR:
            return None
        raise OSError(errno, os.strerror(errno))
    return _read[:got]


def transmit(int fd, bytes data not None):
    """Send what the kernel takes of `data` without waiting, and return how many bytes that were. Raises OSError."""
    cdef ssize_t sent = send(fd, <const char *>data, len(data), MSG_DONTWAIT | MSG_NOSIGNAL)
    if sent < 0:
        if errno == EAGAIN or errno == EINTR:
            return 0
        raise OSError(errno, os.strerror(errno))
    return sent


def set_options(int fd, options):
    """Set several `options` (level, option, number or bytes) of a socket. Raises OSError."""
    cdef int level, option, number, failed
    cdef bytes text
    for level, option, value in options:
        if isinstance(value, bytes):
            text = value
            failed = setsockopt(fd, level, option, <const char *>text, <socklen_t>len(text))
        else:
            number = value
            failed = setsockopt(fd, level, option, &number, sizeof(number))
        if failed:
            raise OSError(errno, os.strerror(errno))


# --- for the compiled modules: bytes at an address ----------------------------------------------------------------


cdef uint8_t *octets(object buffer) except NULL:
    """Return the bytes of a contiguous buffer, which the caller keeps."""
    cdef const uint8_t[::1] view
    if type(buffer) is bytes:
        return <uint8_t *>PyBytes_AS_STRING(buffer)
    view = buffer
    return <uint8_t *>&view[0]


cdef uint64_t *words(object buffer) except NULL:
    """Return the 64-bit words of a writable buffer, which the caller keeps."""
    cdef uint64_t[::1] view = buffer
    return &view[0]


cdef bytes part(bytes data, ssize_t at, ssize_t end):
    """Return the bytes from `at` to before `end`, which are there."""
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + at, end - at)


cdef bytes part_of_buffer(bytearray data, ssize_t at, ssize_t end):
    """The same of a bytearray."""
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(data) + at, end - at)


cdef object blank(ssize_t size):
    """Return room for so many bytes, to be filled and then taken by `filled`."""
    return PyBytes_FromStringAndSize(NULL, size)


cdef bytes filled(object room):
    """Return what is in the room."""
    return <bytes>room


cdef void copy(uint8_t *data, ssize_t at, bytes source) noexcept:
    """Copy all of `source` to `at`."""
    memcpy(data + at, PyBytes_AS_STRING(source), len(source))


cdef ssize_t find_header(const uint8_t *data, ssize_t at, ssize_t stop) noexcept nogil:
    """Return the first place from `at` on and before `stop` where a frame's header could begin (its type, and the first
    byte of a size below 16 MiB), else `stop`. Three bytes behind `stop` are looked at."""
    while at < stop:
        if not data[at + 3] and data[at] in (1, 2, 3, 8):
            return at
        at += 1
    return stop


# --- for the compiled modules: sockets and pipes ------------------------------------------------------------------


cdef ssize_t read_into(int fd, uint8_t *data, ssize_t at, ssize_t count, bint peek) noexcept nogil:
    """Read up to `count` bytes of a socket to `at`, or `peek` at them; 0 at its end."""
    cdef ssize_t got = recv(fd, data + at, count, MSG_DONTWAIT | MSG_PEEK if peek else MSG_DONTWAIT)
    return got if got >= 0 else -errno


cdef ssize_t write_from(int fd, uint8_t *data, ssize_t at, ssize_t count) noexcept nogil:
    """Send up to `count` bytes from `at` on."""
    cdef ssize_t sent = send(fd, data + at, count, MSG_DONTWAIT | MSG_NOSIGNAL)
    return sent if sent >= 0 else -errno


cdef ssize_t splice(int source, int to, ssize_t count, unsigned int flags) noexcept nogil:
    """Move up to `count` bytes; 0 at the source's end."""
    cdef ssize_t moved = c_splice(source, NULL, to, NULL, count, flags)
    return moved if moved >= 0 else -errno


# --- for the compiled modules: time -------------------------------------------------------------------------------

cdef extern from *:
    """
    #include <time.h>

    static inline double clock_ms(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
    }
    """
    double clock_ms() noexcept nogil


cdef double monotonic_ms() noexcept nogil:
    """Return the monotonic clock's time in ms."""
    return clock_ms()


cdef int whole_ms(double ms, int most) noexcept nogil:
    """Return the whole milliseconds that are not less than `ms`, from 0 to `most`."""
    return 0 if ms <= 0 else <int>ceil(min(ms, <double>most))


# --- for the compiled modules: epoll ------------------------------------------------------------------------------

EVENT_SIZE = 16
"""Bytes for an event, at least."""



cdef int epoll_new() noexcept nogil:
    """Return a new epoll."""
    cdef int made = epoll_create1(EPOLL_CLOEXEC)
    return made if made >= 0 else -errno


cdef void epoll_end(int epoll) noexcept:
    os.close(epoll)


cdef epoll_event *events_in(object room) except NULL:
    """Return a writable buffer, which the caller keeps, as room for events of EVENT_SIZE bytes each."""
    return <epoll_event *>octets(room)


cdef int epoll_add(int epoll, int fd, uint32_t wanted) noexcept nogil:
    return _control(epoll, EPOLL_CTL_ADD, fd, wanted)


cdef int epoll_change(int epoll, int fd, uint32_t wanted) noexcept nogil:
    return _control(epoll, EPOLL_CTL_MOD, fd, wanted)


cdef int epoll_drop(int epoll, int fd) noexcept nogil:
    return _control(epoll, EPOLL_CTL_DEL, fd, 0)


cdef int _control(int epoll, int what, int fd, uint32_t wanted) noexcept nogil:
    cdef epoll_event event
    event.events = wanted
    event.data.fd = fd
    return -errno if epoll_ctl(epoll, what, fd, &event) < 0 else 0


cdef int epoll_wait(int epoll, epoll_event *events, int most, int timeout_ms) noexcept:
    """Return how many events there are after at most `timeout_ms` (-1: for ever)."""
    cdef int count
    if timeout_ms == 0:
        count = c_epoll_wait(epoll, events, most, 0)
    else:
        with nogil:
            count = c_epoll_wait(epoll, events, most, timeout_ms)
    return count if count >= 0 else -errno


cdef bint has_events(int fd) noexcept nogil:
    """Does poll(2) say of this descriptor that it has failed, or is shut in both directions?"""
    cdef pollfd now
    now.fd, now.events, now.revents = fd, 0, 0
    return poll(&now, 1, 0) > 0
