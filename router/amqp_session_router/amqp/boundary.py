# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False
"""Where frames begin in a stream of which only a stretch was seen. Compiled, with the types of `boundary.pxd`: it looks
at thousands of frames at once.

`locate` proves it rather than guessing: in any stretch of one whole frame's length there is at least one true boundary,
so it tries every position of that stretch. Each that cannot be a frame's beginning, or leads to a place that cannot,
falls away; the true one never does. If all that are left arrive at one place, that place is a boundary. If they differ
(a body made to look like frames) nothing is known, and the caller waits for more bytes or does without.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from amqp_session_router.base import native

LARGEST = 1 << 24
# As C numbers.
_HEADER, _OVERHEAD, _LARGEST = 7, 8, LARGEST
_BREAKS = -1


class Position(NamedTuple):
    """Where in a frame a stream stands: `rest` bytes before the next boundary, or behind it a header's first bytes."""

    rest: int = 0
    part: bytes = b""

    @property
    def boundary(self) -> bool:
        """Is this exactly between two frames?"""
        return not self.rest and not self.part


def window(frame_max: int, header_max: int = 0) -> int:
    """Return how many bytes `locate` should have: so many that every candidate has its end octet looked at, but for
    content headers that are larger than bodies may be."""
    most = frame_max + 8
    return max(most, header_max) + most + 4096


class _Stretch:
    """What was seen of a stream, and what its frames keep to.

    `known` has, of every place that a chain of frames came by, where the chain arrives, plus 1, as the distance from
    the stretch's end less 7 (or _BREAKS); 0 where none did.
    """

    __slots__ = ("channel_max", "data", "header_most", "known", "length", "most", "whole")

    def __init__(self, whole: bytes, most: int, header_most: int, channel_max: int) -> None:
        self.whole = whole
        self.data = native.octets(whole)
        self.length = len(whole)
        self.most, self.header_most, self.channel_max = most, header_most, channel_max
        self.known = array("i", (0,)) * len(whole)

    def behind(self, at: int) -> int:
        """Return where the frame that begins at `at` ends, -1 if none can begin there. Its header is in the stretch."""
        data = self.data
        kind = data[at]
        channel = data[at + 1] << 8 | data[at + 2]
        size = data[at + 3]
        size = size << 24 | data[at + 4] << 16 | data[at + 5] << 8 | data[at + 6]
        end = at + size + _OVERHEAD
        # How much of the payload, and of what follows, was seen.
        left = self.length - at - _HEADER
        if kind not in (1, 2, 3, 8) or channel > self.channel_max:
            return -1
        if size + _OVERHEAD > (self.header_most if kind == 2 else self.most):
            return -1
        if end <= self.length and data[end - 1] != 0xCE:
            return -1
        if kind == 1:
            # The classes whose methods a peer may send (specification chapter 1.2, and RabbitMQ's confirm).
            if left > 1 and data[at + 8] not in (10, 20, 30, 40, 50, 60, 70, 85, 90):
                return -1
            return -1 if size < 4 or (left > 0 and data[at + 7]) else end
        if kind == 2:
            if not channel or size < 14 or (left > 0 and data[at + 7]) or (left > 1 and data[at + 8] != 60):
                return -1
            return end
        if kind == 8:
            return -1 if channel or size else end
        return end if channel else -1

    def tail_possible(self, at: int) -> bool:
        """Can a header begin with the bytes from `at` to the end, at most six?"""
        data = self.data
        if at >= self.length:
            return True
        if data[at] not in (1, 2, 3, 8):
            return False
        return self.length - at < 3 or (data[at + 1] << 8 | data[at + 2]) <= self.channel_max

    def arrives(self, start: int) -> int:
        """Return where the chain of frames from `start` arrives behind the last whole header, -1 if it breaks."""
        known, last = self.known, self.length - _HEADER
        place = start
        while 0 <= place <= last and not known[place]:
            place = self.behind(place)
        if place < 0:
            found = -1
        elif place <= last:
            found = -1 if known[place] == _BREAKS else known[place] - 1 + last
        else:
            found = place if self.tail_possible(place) else -1
        place = start
        while 0 <= place <= last and not known[place]:
            after = self.behind(place)
            known[place] = _BREAKS if found < 0 else found - last + 1
            place = after
        return found


def walk(whole: bytes, at: int, most: int, stop: int) -> tuple[int, int, int]:
    """Follow the frames of `whole`, of which one begins at `at`, as far as their headers are there.

    It ends at the first boundary behind `stop`, or at a frame with more than `most` bytes of payload. Returns where the
    next frame begins, behind the end of `whole` if it has not come yet; the last method of channel 0 that it met (class
    and method as one number, 0: none); and how many bytes of payload the frame that is too large has (-1: none is).
    """
    length = len(whole)
    method = 0
    while at + _HEADER <= length and at <= stop:
        size = whole[at + 3]
        size = size << 24 | whole[at + 4] << 16 | whole[at + 5] << 8 | whole[at + 6]
        if size > most:
            return at, method, size
        if whole[at] == 1 and not whole[at + 1] | whole[at + 2] and at + _HEADER + 4 <= length:
            method = whole[at + 7]
            method = method << 24 | whole[at + 8] << 16 | whole[at + 9] << 8 | whole[at + 10]
        at += size + _OVERHEAD
    return at, method, -1


def locate(data: bytes, frame_max: int, channel_max: int, header_max: int = 0) -> Position | None:
    """Return where the end of `data`, a stretch of a stream of frames, stands, None if that is not certain.

    `frame_max`: what was agreed. RabbitMQ takes payloads of so many bytes. `header_max`: bytes of the largest content
    header, where it may be larger than that. `channel_max` 0 stands for any channel. Raises MemoryError.
    """
    length = len(data)
    most = min(frame_max or _LARGEST, _LARGEST) + _OVERHEAD
    longest = max(most, header_max)
    if length < longest:
        return None
    stretch = _Stretch(data, most, longest, channel_max or 0xFFFF)
    found = -1
    stop = min(longest, length - 3)
    start = native.find_header(stretch.data, 0, stop)
    while start < stop:
        arrives = stretch.arrives(start)
        if arrives >= 0:
            if found >= 0 and found != arrives:
                return None
            found = arrives
        start = native.find_header(stretch.data, start + 1, stop)
    if found < 0:
        return None
    return Position(found - length) if found >= length else Position(0, data[found:])
