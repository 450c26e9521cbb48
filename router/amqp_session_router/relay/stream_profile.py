# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False
"""What kind of stream a flow carries, and so in which way it reads on. Compiled, with the types of
`stream_profile.pxd`: it is asked at each read.

Few bytes are read as they are; behind a large frame the next header is peeked at, for its successor is probably large
too; a busy stream goes on as a blind splice (`blind_splice`).
"""

from __future__ import annotations

from time import monotonic

from amqp_session_router.relay import journal

LARGE_FRAME = journal.READ_SIZE
"""Bytes of a frame that is spliced, not copied; the next header is then looked at by peeking. To copy once what one
read takes costs less than three system calls."""
PEEK_LARGE = 256
"""Bytes to peek at behind a large frame."""
BUSY_READS, BUSY_BYTES, QUIET_BYTES, LONG_BODY = 16, journal.READ_SIZE, 1024, 3
"""BUSY_READS reads of at least BUSY_BYTES each (more was there than they could take, or they are of a body of LONG_BODY
frames and more) start a blind splice; a read below QUIET_BYTES restarts the count."""
FAST_BYTES, FAST_WITHIN = 1 << 22, 0.01
"""A stream that brings this many bytes within this many seconds is fast: its sender does not wait for replies. Reads of
a long body count from then on only: its headers cost less than a blind splice that is not polled."""
MAX_RESYNC_FRAME = 1 << 17
"""The largest frame_max, in bytes, with which a frame boundary can be found again after a blind splice."""

# As C numbers.
_ALL, _LARGE_FRAME, _PEEK_LARGE, _MAX_RESYNC_FRAME = journal.READ_SIZE, LARGE_FRAME, PEEK_LARGE, MAX_RESYNC_FRAME
_BUSY_READS, _BUSY_BYTES, _QUIET_BYTES, _LONG_BODY = BUSY_READS, BUSY_BYTES, QUIET_BYTES, LONG_BODY
_FAST_BYTES, _FAST_WITHIN = FAST_BYTES, FAST_WITHIN


class StreamProfile:
    """The recent frames and reads of one flow. Decides; the flow moves the bytes."""

    __slots__ = ("_brought", "_counted", "_frame_max", "_seen_large", "busy_reads", "full", "heeded", "peek_size")

    def __init__(self, frame_max: int) -> None:
        """`frame_max`: bytes of a body's whole frames."""
        self.peek_size = _ALL
        """Bytes that the next read or peek asks for."""
        self.full = 0
        """The last frames, in a row, that are as large as a frame may be: a body's, of which the next part follows."""
        self.busy_reads = 0
        """Recent reads of many bytes."""
        self.heeded = False
        """Every frame header is read: somebody must not miss what passes."""
        self._frame_max = frame_max
        self._seen_large = False
        """A large frame has come."""
        self._counted, self._brought = 0.0, 0
        """Since when (s) the bytes of long bodies are counted, and how many came."""

    def add_read(self, got: int, length: int) -> bool:
        """Take in a read of `got` bytes, whose last frame has `length`; returns whether that is the first large one."""
        self.full = self.full + 1 if length >= self._frame_max else 0
        if length >= _LARGE_FRAME:
            self.peek_size = _PEEK_LARGE
            if not self._seen_large:
                self._seen_large = True
                return True
        elif self.peek_size != _ALL:
            self.peek_size = _ALL
        elif got >= _BUSY_BYTES:
            self._add_busy_read()
        elif got < _QUIET_BYTES:
            self.busy_reads = 0
        return False

    def add_splice(self, moved: int) -> None:
        """Take in that `moved` bytes were spliced."""
        if moved >= _BUSY_BYTES and self.full >= _LONG_BODY:
            self._add_long_read(moved)

    def _add_long_read(self, moved: int) -> None:
        """Take in a read of a long body."""
        now = monotonic()
        if now - self._counted > _FAST_WITHIN:
            self._counted, self._brought = now, 0
        self._brought += moved
        if self._brought >= _FAST_BYTES:
            self._add_busy_read()

    def _add_busy_read(self) -> None:
        if not self.heeded and self._frame_max <= _MAX_RESYNC_FRAME:
            self.busy_reads += 1

    def busy(self) -> bool:
        """Return, once, whether the stream is to go on as a blind splice."""
        if self.busy_reads < _BUSY_READS:
            return False
        self.busy_reads = 0
        return True

    def reset_peek(self) -> None:
        """Ask for as much as fits again."""
        self.peek_size = _ALL
