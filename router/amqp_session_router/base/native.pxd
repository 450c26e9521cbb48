"""What the compiled modules call by C; see native.pyx."""

from libc.errno cimport EAGAIN, EINTR
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    uint32_t EPOLLIN, EPOLLERR, EPOLLHUP

cdef uint8_t *octets(object buffer) except NULL
cdef uint64_t *words(object buffer) except NULL
cdef bytes part(bytes data, ssize_t at, ssize_t end)
cdef bytes part_of_buffer(bytearray data, ssize_t at, ssize_t end)
cdef object blank(ssize_t size)
cdef bytes filled(object room)
cdef void copy(uint8_t *data, ssize_t at, bytes source) noexcept
cdef ssize_t find_header(const uint8_t *data, ssize_t at, ssize_t stop) noexcept nogil

cdef ssize_t read_into(int fd, uint8_t *data, ssize_t at, ssize_t count, bint peek) noexcept nogil
cdef ssize_t write_from(int fd, uint8_t *data, ssize_t at, ssize_t count) noexcept nogil
cdef ssize_t splice(int source, int to, ssize_t count, unsigned int flags) noexcept nogil

cdef double monotonic_ms() noexcept nogil
cdef int whole_ms(double ms, int most) noexcept nogil

cdef int epoll_new() noexcept nogil
cdef void epoll_end(int epoll) noexcept
cdef epoll_event *events_in(object room) except NULL
cdef int epoll_add(int epoll, int fd, uint32_t wanted) noexcept nogil
cdef int epoll_change(int epoll, int fd, uint32_t wanted) noexcept nogil
cdef int epoll_drop(int epoll, int fd) noexcept nogil
cdef int epoll_wait(int epoll, epoll_event *events, int most, int timeout_ms) noexcept
cdef bint has_events(int fd) noexcept nogil

cdef inline int fd_of(epoll_event *events, int index) noexcept nogil:
    return events[index].data.fd

cdef inline uint32_t seen_by(epoll_event *events, int index) noexcept nogil:
    return events[index].events
