# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""System calls for TCP sockets of which a connection makes several. Compiled: Python's own ask the kernel, and the
types of numbers, for what is known."""

import os
import socket

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint16_t, uint32_t

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
    int AF_INET, AF_INET6, SOCK_NONBLOCK, SOCK_CLOEXEC, MSG_DONTWAIT, MSG_NOSIGNAL

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

CHUNK = 65536
"""Bytes of one read."""

cdef char _read[65536]
cdef int _STREAM = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
# Not its subclass in Python, of which the making and the end took 2 µs more each time.
cdef object _socket = socket.SocketType, _name_of = socket.if_indextoname
cdef object _V4 = socket.AF_INET, _V6 = socket.AF_INET6


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
