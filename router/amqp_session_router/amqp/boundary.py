"""Where frames begin in a stream of which only a stretch was seen, where `boundary.pyx` could not be compiled: the
reasons for what it does stand there.

What is compiled is imported in its place. A test holds each against the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

LARGEST = 1 << 24
_HEADER, _OVERHEAD = 7, 8
_FRAME_END, _METHOD, _CONTENT_HEADER, _BODY, _HEARTBEAT = 0xCE, 1, 2, 3, 8
_TYPES = frozenset((_METHOD, _CONTENT_HEADER, _BODY, _HEARTBEAT))
# The classes whose methods a peer may send (specification chapter 1.2, and RabbitMQ's confirm).
_CLASSES = frozenset((10, 20, 30, 40, 50, 60, 70, 85, 90))
_BASIC = 60
# A frame's type, a channel, and the first byte of a size below LARGEST; found wherever it begins.
_CANDIDATE = re.compile(rb"(?=[\x01\x02\x03\x08]..\x00)", re.DOTALL)


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
    most = frame_max + _OVERHEAD
    return max(most, header_max) + most + 4096


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What was seen of a stream, and what its frames keep to."""

    data: bytes
    most: int
    header_most: int
    channel_max: int

    def next(self, at: int) -> int | None:
        """Return where the frame that begins at `at` ends, None if none can begin there. Its header was seen."""
        data = self.data
        kind = data[at]
        channel = int.from_bytes(data[at + 1 : at + 3])
        size = int.from_bytes(data[at + 3 : at + _HEADER])
        end = at + size + _OVERHEAD
        if kind not in _TYPES or channel > self.channel_max:
            return None
        if size + _OVERHEAD > (self.header_most if kind == _CONTENT_HEADER else self.most):
            return None
        if end <= len(data) and data[end - 1] != _FRAME_END:
            return None
        return end if self._begins(kind, channel, size, data[at + _HEADER : at + _HEADER + 2]) else None

    @staticmethod
    def _begins(kind: int, channel: int, size: int, payload: bytes) -> bool:
        """Can a frame have this header, and a payload that begins so, as far as it was seen?"""
        if kind == _HEARTBEAT:
            return not channel and not size
        if kind == _BODY:
            return bool(channel)
        if payload[:1] not in (b"", b"\0"):
            return False
        if kind == _METHOD:
            return size >= 4 and (len(payload) < 2 or payload[1] in _CLASSES)
        return bool(channel) and size >= 14 and (len(payload) < 2 or payload[1] == _BASIC)

    def tail_possible(self, at: int) -> bool:
        """Can a header begin with the bytes from `at` to the end, at most six?"""
        part = self.data[at:]
        if not part:
            return True
        return part[0] in _TYPES and (len(part) < 3 or int.from_bytes(part[1:3]) <= self.channel_max)

    def arrives(self, known: dict[int, int | None], start: int) -> int | None:
        """Return where the chain of frames from `start` arrives behind the last whole header, None if it breaks.
        `known` has the same of every place that a chain came by."""
        last = len(self.data) - _HEADER
        chain = []
        place: int | None = start
        while place is not None and place <= last and place not in known:
            chain.append(place)
            place = self.next(place)
        if place is None:
            found = None
        elif place <= last:
            found = known[place]
        else:
            found = place if self.tail_possible(place) else None
        known.update(dict.fromkeys(chain, found))
        return found


def walk(whole: bytes, at: int, most: int, stop: int) -> tuple[int, int, int]:
    """Follow the frames of `whole`, of which one begins at `at`, as far as their headers are there.

    It ends at the first boundary behind `stop`, or at a frame with more than `most` bytes of payload. Returns where the
    next frame begins, behind the end of `whole` if it has not come yet; the last method of channel 0 that it met (class
    and method as one number, 0: none); and how many bytes of payload the frame that is too large has (-1: none is).
    """
    method = 0
    while at + _HEADER <= len(whole) and at <= stop:
        size = int.from_bytes(whole[at + 3 : at + _HEADER])
        if size > most:
            return at, method, size
        if whole[at : at + 3] == b"\x01\0\0" and at + _HEADER + 4 <= len(whole):
            method = int.from_bytes(whole[at + _HEADER : at + _HEADER + 4])
        at += size + _OVERHEAD
    return at, method, -1


def locate(data: bytes, frame_max: int, channel_max: int, header_max: int = 0) -> Position | None:
    """Return where the end of `data`, a stretch of a stream of frames, stands, None if that is not certain.

    `frame_max`: what was agreed. RabbitMQ takes payloads of so many bytes. `header_max`: bytes of the largest content
    header, where it may be larger than that. `channel_max` 0 stands for any channel.
    """
    most = min(frame_max or LARGEST, LARGEST) + _OVERHEAD
    longest = max(most, header_max)
    if len(data) < longest:
        return None
    stretch = _Stretch(data, most, longest, channel_max or 0xFFFF)
    known: dict[int, int | None] = {}
    found: int | None = None
    for candidate in _CANDIDATE.finditer(data, 0, min(longest + 3, len(data))):
        arrives = stretch.arrives(known, candidate.start())
        if arrives is None:
            continue
        if found is not None and found != arrives:
            return None
        found = arrives
    if found is None:
        return None
    return Position(found - len(data)) if found >= len(data) else Position(0, data[found:])
