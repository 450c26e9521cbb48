# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False
"""A walk over the frame headers in the staging area. Compiled, with the types of `frame_scan.pxd`: it sees each frame.

No I/O, and nothing of a flow: where its frames begin goes in, what they are comes out.
"""

from __future__ import annotations

from amqp_session_router.amqp import codec
from amqp_session_router.base import native
from amqp_session_router.relay import journal

# As C numbers.
_HEADROOM, _HEADER, _OVERHEAD = journal.HEADROOM, 7, 8
_BLOCKED, _UNBLOCKED = codec.BLOCKED, codec.UNBLOCKED


class FrameScan:
    """What was found in the bytes that were read last. One for all flows of a process: it holds until the next `walk`.

    Offsets count from the first byte that was read; those of an incomplete header of the read before are negative.
    """

    __slots__ = ("_begin", "_data", "_kept", "alarm", "length", "method", "next", "too_large")

    def __init__(self, staging: memoryview) -> None:
        """`staging`: the area, with room for an incomplete header in front of what is read."""
        # What the address is of.
        self._kept = memoryview(staging)
        self._data = native.octets(self._kept)
        self._begin = 0
        """Where the first frame begins."""
        self.next = 0
        """Where the next frame begins; behind what was read if its header has not come yet."""
        self.length = 0
        """Bytes of the last frame whose header is there, 0: there is none."""
        self.method = -1
        """Class and method of that frame if it is a method of channel 0, else -1."""
        self.alarm = 0
        """The last Blocked or Unblocked, 0: there is none."""
        self.too_large = -1
        """Bytes of payload of a frame that is too large."""

    def walk(self, rest: int, part: bytes, got: int, most: int) -> bool:
        """Walk over the `got` bytes that were read: the first frame begins behind `rest` bytes, or with `part`, which
        was read before. Returns False at a frame of more than `most` bytes of payload, see `too_large`."""
        data = self._data
        end = _HEADROOM + got
        at = _HEADROOM + rest
        if part:
            at = _HEADROOM - len(part)
            for index in range(len(part)):
                data[at + index] = part[index]
        self._begin = at
        self.alarm = 0
        length, method = 0, -1
        while at + _HEADER <= end:
            size = data[at + 3]
            size = size << 24 | data[at + 4] << 16 | data[at + 5] << 8 | data[at + 6]
            if size > most:
                self.too_large = size
                return False
            if data[at] == 1 and not data[at + 1] | data[at + 2] and size >= 4:
                if at + _HEADER + 4 > end:
                    # Which method it is belongs to its header.
                    break
                method = data[at + 7]
                method = method << 24 | data[at + 8] << 16 | data[at + 9] << 8 | data[at + 10]
                if method in (_BLOCKED, _UNBLOCKED):
                    self.alarm = method
            else:
                method = -1
            length = size + _OVERHEAD
            at += length
        self.next, self.length, self.method = at - _HEADROOM, length, method
        return True

    def shorten(self, count: int) -> None:
        """Only the first `count` bytes were taken after all: find `next` for them."""
        data = self._data
        at, end = self._begin, _HEADROOM + count
        while at + _HEADER <= end:
            size = data[at + 3]
            size = size << 24 | data[at + 4] << 16 | data[at + 5] << 8 | data[at + 6]
            at += size + _OVERHEAD
        self.next = at - _HEADROOM

    def part(self, count: int) -> bytes:
        """Return those of the first `count` bytes that stand at `next` and behind: an incomplete header."""
        return bytes(self._data[_HEADROOM + self.next : _HEADROOM + count])
