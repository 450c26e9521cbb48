# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Where frames begin in a stream of which only a stretch was seen. Compiled: it looks at thousands of frames at once.

`locate` proves it rather than guessing: in any stretch of one whole frame's length there is at least one true boundary,
so it tries every position of that stretch. Each that cannot be a frame's beginning, or leads to a place that cannot,
falls away; the true one never does. If all that are left arrive at one place, that place is a boundary. If they differ
(a body made to look like frames) nothing is known, and the caller waits for more bytes or does without.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from typing import NamedTuple

cdef int64_t _HEADER = 7, _OVERHEAD = 8
cdef uint8_t _FRAME_END = 0xCE, _METHOD = 1
cdef int32_t _BREAKS = -1
LARGEST = 1 << 24
cdef int64_t _LARGEST = LARGEST


class Position(NamedTuple):
    """Where in a frame a stream stands: `rest` bytes before the next boundary, or behind it a header's first bytes."""

    rest: int = 0
    part: bytes = b""

    @property
    def boundary(self):
        """Is this exactly between two frames?"""
        return not self.rest and not self.part


def window(frame_max, header_max=0):
    """Return how many bytes `locate` should have: so many that every candidate has its end octet looked at, but for
    content headers that are larger than bodies may be."""
    most = frame_max + _OVERHEAD
    return max(most, header_max) + most + 4096


cdef struct Sample:
    const uint8_t *data
    int64_t length, most, header_most, channel_max


cdef inline bint _of_a_class(uint8_t number) noexcept nogil:
    """Is it a class whose methods a peer may send (specification chapter 1.2, and RabbitMQ's confirm)?"""
    return number in (10, 20, 30, 40, 50, 60, 70, 85, 90)


cdef int64_t _next(const Sample *seen, int64_t at) noexcept nogil:
    """Return where the frame that begins at `at` ends, -1 if none can begin there. Its header is in the stretch."""
    cdef const uint8_t *head = seen.data + at
    cdef uint8_t kind = head[0]
    cdef int64_t channel = head[1] << 8 | head[2]
    cdef int64_t size = <int64_t>head[3] << 24 | head[4] << 16 | head[5] << 8 | head[6]
    cdef int64_t end = at + size + _OVERHEAD
    cdef int64_t left = seen.length - at - _HEADER
    """How much of the payload, and of what follows, was seen."""
    if kind not in (1, 2, 3, 8) or channel > seen.channel_max:
        return -1
    if size + _OVERHEAD > (seen.header_most if kind == 2 else seen.most):
        return -1
    if end <= seen.length and seen.data[end - 1] != _FRAME_END:
        return -1
    if kind == 1:
        if size < 4 or (left > 0 and head[7]) or (left > 1 and not _of_a_class(head[8])):
            return -1
    elif kind == 2:
        if not channel or size < 14 or (left > 0 and head[7]) or (left > 1 and head[8] != 60):
            return -1
    elif kind == 8:
        if channel or size:
            return -1
    elif not channel:
        return -1
    return end


cdef bint _tail_possible(const Sample *seen, int64_t at) noexcept nogil:
    """Can a header begin with the bytes from `at` to the end, at most six?"""
    cdef const uint8_t *part = seen.data + at
    if at >= seen.length:
        return True
    if part[0] not in (1, 2, 3, 8):
        return False
    return seen.length - at < 3 or (part[1] << 8 | part[2]) <= seen.channel_max


cdef int64_t _arrives(const Sample *seen, int32_t *known, int64_t start) noexcept nogil:
    """Return where the chain of frames from `start` arrives behind the last whole header, -1 if it breaks.

    `known` has the same of every place that a chain came by, plus 1, as the distance from the stretch's end less 7 (or
    _BREAKS); 0 where none did.
    """
    cdef int64_t place = start, after, found
    while 0 <= place and place + _HEADER <= seen.length and not known[place]:
        place = _next(seen, place)
    if place < 0 or (place + _HEADER <= seen.length and known[place] == _BREAKS):
        found = -1
    elif place + _HEADER <= seen.length:
        found = known[place] - 1 + seen.length - _HEADER
    else:
        found = place if _tail_possible(seen, place) else -1
    place = start
    while 0 <= place and place + _HEADER <= seen.length and not known[place]:
        after = _next(seen, place)
        known[place] = _BREAKS if found < 0 else <int32_t>(found - seen.length + _HEADER + 1)
        place = after
    return found


def walk(bytes whole not None, int64_t at, int64_t most, int64_t stop):
    """Follow the frames of `whole`, of which one begins at `at`, as far as their headers are there.

    It ends at the first boundary behind `stop`, or at a frame with more than `most` bytes of payload. Returns where the
    next frame begins, behind the end of `whole` if it has not come yet; the last method of channel 0 that it met (class
    and method as one number, 0: none); and how many bytes of payload the frame that is too large has (-1: there is none).
    """
    cdef const uint8_t *data = whole
    cdef const uint8_t *head
    cdef int64_t length = len(whole), size
    cdef uint32_t method = 0
    while at + _HEADER <= length and at <= stop:
        head = data + at
        size = <int64_t>head[3] << 24 | head[4] << 16 | head[5] << 8 | head[6]
        if size > most:
            return at, method, size
        if head[0] == _METHOD and not head[1] and not head[2] and at + _HEADER + 4 <= length:
            method = <uint32_t>head[7] << 24 | head[8] << 16 | head[9] << 8 | head[10]
        at += size + _OVERHEAD
    return at, method, -1


def locate(bytes data not None, frame_max, channel_max, header_max=0):
    """Return where the end of `data`, a stretch of a stream of frames, stands, None if that is not certain.

    `frame_max`: what was agreed. RabbitMQ takes payloads of so many bytes. `header_max`: bytes of the largest content
    header, where it may be larger than that. `channel_max` 0 stands for any channel. Raises MemoryError.
    """
    cdef Sample seen
    cdef int32_t *known
    cdef int64_t start, arrives, stretch, found = -1
    seen.data = data
    seen.length = len(data)
    seen.most = min(frame_max or LARGEST, _LARGEST) + _OVERHEAD
    seen.header_most = stretch = max(seen.most, <int64_t>header_max)
    seen.channel_max = channel_max or 65535
    if seen.length < stretch:
        return None
    known = <int32_t *>calloc(seen.length, sizeof(int32_t))
    if not known:
        raise MemoryError
    try:
        for start in range(min(stretch, seen.length - 3)):
            if seen.data[start] not in (1, 2, 3, 8) or seen.data[start + 3]:
                continue
            arrives = _arrives(&seen, known, start)
            if arrives < 0:
                continue
            if found >= 0 and found != arrives:
                return None
            found = arrives
    finally:
        free(known)
    if found < 0:
        return None
    return Position(found - seen.length) if found >= seen.length else Position(0, data[found:])
