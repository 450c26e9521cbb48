"""Where frames begin in a stream of which only a stretch was seen.

`locate` proves it rather than guessing: in any stretch of one whole frame's length there is at least one true boundary,
so it tries every position of that stretch. Each that cannot be a frame's beginning, or leads to a place that cannot,
falls away; the true one never does. If all that are left arrive at one place, that place is a boundary. If they differ
(a body made to look like frames) nothing is known, and the caller waits for more bytes or does without.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from amqp_session_router.wire import FRAME_END, FRAME_HEADER, FRAME_OVERHEAD, METHOD

_CLASSES = frozenset((10, 20, 30, 40, 50, 60, 70, 85, 90))
"""Classes whose methods a peer may send (specification chapter 1.2, and RabbitMQ's confirm)."""
_BASIC = b"\x00\x3c"
_CANDIDATE = re.compile(rb"[\x01\x02\x03\x08]..\x00", re.DOTALL)
"""Type, channel, and the highest octet of a size below 16 MiB."""
LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a frame a stream stands: `rest` bytes before the next boundary, or behind it a header's first bytes."""

    rest: int = 0
    part: bytes = b""

    @property
    def boundary(self) -> bool:
        """Is this exactly between two frames?"""
        return not self.rest and not self.part


def window(frame_max: int) -> int:
    """Return how many bytes `locate` should have: so many that every candidate has its end octet looked at."""
    return 2 * frame_max + 4096


def _next(data: bytes, at: int, frame_max: int, channel_max: int) -> int | None:
    """Return where the frame that begins at `at` ends, None if none can begin there."""
    kind, channel, size = FRAME_HEADER.unpack_from(data, at)
    if kind not in (1, 2, 3, 8) or size + FRAME_OVERHEAD > frame_max or channel > channel_max:
        return None
    end = at + size + FRAME_OVERHEAD
    if end <= len(data) and data[end - 1] != FRAME_END:
        return None
    body = data[at + 7 : at + 9]
    if kind == METHOD:
        if size < 4 or body[:1] not in (b"", b"\x00") or (len(body) == 2 and body[1] not in _CLASSES):
            return None
    elif kind == 2:
        if not channel or size < 14 or not _BASIC.startswith(body):
            return None
    elif (kind == 8 and (channel or size)) or (kind == 3 and not channel):
        return None
    return end


def _tail_possible(part: bytes, channel_max: int) -> bool:
    """Can a header begin with these, at most six, bytes?"""
    if not part:
        return True
    return part[0] in (1, 2, 3, 8) and (len(part) < 3 or int.from_bytes(part[1:3], "big") <= channel_max)


def locate(data: bytes, frame_max: int, channel_max: int) -> Position | None:
    """Return where the end of `data`, a stretch of a stream of frames of at most `frame_max` bytes, stands.

    None: it is not certain. `channel_max` 0 stands for any channel.
    """
    frame_max = min(frame_max or LARGEST, LARGEST)
    channel_max = channel_max or 65535
    length = len(data)
    if length < frame_max:
        return None
    ends: dict[int, int | None] = {}
    """Position → where its chain arrives at the end of the data, None for one that breaks."""
    found: int | None = None
    at = 0
    while True:
        match = _CANDIDATE.search(data, at, min(frame_max + 3, length))
        if match is None:
            break
        start = match.start()
        at = start + 1
        chain: list[int] = []
        place: int | None = start
        while place is not None and place + 7 <= length and place not in ends:
            chain.append(place)
            place = _next(data, place, frame_max, channel_max)
        if place is None:
            arrives = None
        elif place in ends:
            arrives = ends[place]
        else:
            arrives = place if place >= length or _tail_possible(data[place:], channel_max) else None
        for passed in chain:
            ends[passed] = arrives
        if arrives is None:
            continue
        if found is not None and found != arrives:
            return None
        found = arrives
    if found is None:
        return None
    return Position(found - length) if found >= length else Position(0, data[found:])
