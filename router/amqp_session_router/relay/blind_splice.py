"""Blind splice: a stream of many small frames is spliced without reading its frame headers.

Reading the headers would cost more than moving the bytes. The last bytes are kept by reference in a resynchronisation
window (`resync_window`), from which the frame boundary is found again when the stream becomes quiet or somebody needs
it. A very fast stream is polled by a timer instead of being read at each event: being woken for each piece costs more
than moving it.
"""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from amqp_session_router.amqp.boundary import Position
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.interfaces import BlindMover
from amqp_session_router.relay.journal import ACTIVE_FLOW, ACTIVE_PIPE
from amqp_session_router.relay.pipes import CHUNK, MOVE, MOVE_MORE, Pipe
from amqp_session_router.relay.resync_window import FrameBounds, ResyncWindow
from amqp_session_router.relay.stream_profile import FAST_BYTES, FAST_WITHIN

_QUIET_READS, _QUIET_READ_BYTES = 4, 32768
"""After this many successive reads of fewer bytes the stream is resynchronised."""
_POLL_PERIOD, _POLL_MIN_BYTES, _POLL_READS = 0.001, 1 << 16, 8
"""Seconds between polls, bytes that a poll must bring (else reading at each event resumes), reads per poll."""


class BlindFlow(Protocol):
    """A flow, as its blind splice sees it."""

    relay: RelayContext
    total: int
    reading: bool
    blind: BlindMover | None

    @property
    def fd_in(self) -> int: ...
    @property
    def fd_out(self) -> int: ...
    @property
    def cell(self) -> int: ...

    def readable(self) -> None: ...
    def moved(self, count: int) -> None: ...
    def keep_spliced(self, left: int, error: OSError | None = None) -> None: ...
    def failed(self, at_source: bool, error: OSError) -> None: ...
    def ended(self) -> None: ...
    def resynchronised(self, position: Position, method: int) -> None: ...


class BlindSplice:
    """The blind splice of one flow. `polled`: read by the timer, not at each event."""

    __slots__ = (
        "_count_at",
        "_counted",
        "_flow",
        "_poll_timer",
        "_quiet_reads",
        "_retry_at",
        "_unrecorded",
        "_window",
        "polled",
    )

    def __init__(self, flow: BlindFlow, bounds: FrameBounds, start: Position | None) -> None:
        """`start`: the source's position, None if unknown. Raises OSError if there is no pipe for the window."""
        self.polled = False
        self._flow = flow
        self._window = ResyncWindow(flow.relay, bounds, start)
        # Whether bytes were read that are not in the window yet.
        self._unrecorded = False
        self._quiet_reads = 0
        self._retry_at = 0
        self._counted = flow.relay.loop.time()
        self._count_at = flow.total + FAST_BYTES
        self._poll_timer: asyncio.TimerHandle | None = None

    # --- used by the flow -------------------------------------------------------------------------------------------

    def read_on(self) -> None:
        """Read the source, at each event or by polling."""
        flow = self._flow
        if self.polled:
            self._poll_timer = flow.relay.loop.call_later(_POLL_PERIOD, self._poll)
        else:
            flow.relay.poller.read(flow.fd_in, flow.readable)

    def stop_reading(self) -> None:
        """Stop reading the source."""
        if not self.polled:
            self._flow.relay.poller.unread(self._flow.fd_in)
        elif self._poll_timer is not None:
            self._poll_timer.cancel()
            self._poll_timer = None

    def readable(self) -> None:
        """The source is readable: move what is there, and start polling if it is fast."""
        self._move()
        flow = self._flow
        if flow.total >= self._count_at:
            now = flow.relay.loop.time()
            if now - self._counted <= FAST_WITHIN and flow.reading and flow.blind is self:
                self._set_polled(True)
            self._counted, self._count_at = now, flow.total + FAST_BYTES

    def flush(self, pipe: Pipe, count: int) -> int:
        """Splice the `count` bytes in `pipe` to the sink; returns how many it did not take.

        The last of them are put into the window first. Raises OSError, not BlockingIOError.
        """
        fd_out = self._flow.fd_out
        try:
            if self._unrecorded:
                needless = count - self._window.size
                if needless > 0:
                    self._window.forget()
                    count -= (sent := os.splice(pipe.read, fd_out, needless, flags=MOVE_MORE))
                    if sent < needless:
                        return count
                self._unrecorded = False
                self._window.remember(pipe, count)
            return count - os.splice(pipe.read, fd_out, count, flags=MOVE)
        except BlockingIOError:
            return count

    def resynchronise(self) -> None:
        """Try to prove the position from the last bytes moved; on success the blind splice is over."""
        flow = self._flow
        if self._unrecorded or flow.total < self._retry_at or not self._window.enough:
            return
        position = self._window.find_boundary()
        if position is None:
            self._retry_at = flow.total + self._window.size // 2
            return
        method = self._window.last_method() if position.boundary else 0
        self.close()
        flow.resynchronised(position, method)

    def close(self) -> None:
        """Release everything; reading continues at each event."""
        if self.polled:
            self._set_polled(False)
        self._window.close()

    # --- moving -----------------------------------------------------------------------------------------------------

    def _move(self, turns: int = 1) -> None:
        """Move what is there, at most `turns` times the capacity of a pipe."""
        flow = self._flow
        relay = flow.relay
        pipe = relay.pool.free[-1]
        relay.cells[ACTIVE_PIPE] = pipe.ends
        relay.cells[ACTIVE_FLOW] = flow.cell
        failed: OSError | None = None
        moved = there = 0
        try:
            for turn in range(turns):
                if turn:
                    there = self._make_room(pipe, there)
                got = os.splice(flow.fd_in, pipe.write, CHUNK, flags=MOVE)
                moved += got
                there += got
                if got < CHUNK // 4:
                    break
        except BlockingIOError:
            if not moved:
                return
        except OSError as error:
            failed = error
        if not moved:
            if failed is not None:
                flow.failed(True, failed)
            else:
                self.resynchronise()
                flow.ended()
            return
        self._unrecorded = True
        flow.total += moved
        try:
            left = self.flush(pipe, there)
        except OSError as error:
            flow.keep_spliced(there, error)
            return
        if left:
            flow.keep_spliced(left)
        if failed is not None:
            flow.failed(True, failed)
            return
        if moved < _QUIET_READ_BYTES:
            self._quiet_reads += 1
            if self._quiet_reads >= _QUIET_READS:
                self._quiet_reads = 0
                self.resynchronise()
        else:
            self._quiet_reads = 0
        flow.moved(moved)

    def _make_room(self, pipe: Pipe, there: int) -> int:
        """Send those of the `there` bytes in `pipe` that the window will not need; returns the bytes left in it."""
        needless = there - self._window.size
        if needless <= 0:
            return there
        self._window.forget()
        try:
            return there - os.splice(pipe.read, self._flow.fd_out, needless, flags=MOVE_MORE)
        except OSError:
            # Full or failed: the next splice reports it.
            return there

    # --- polling ----------------------------------------------------------------------------------------------------

    def _set_polled(self, on: bool) -> None:
        """Switch between polling and reading at each event."""
        reading = self._flow.reading
        if reading:
            self.stop_reading()
        self.polled = on
        if reading:
            self.read_on()

    def _poll(self) -> None:
        """Move what has come since the last poll; read at each event again once that is little."""
        self._poll_timer = None
        flow = self._flow
        before = flow.total
        self._move(_POLL_READS)
        # The blind splice may be over: resynchronised, or the flow was stopped.
        if flow.blind is self:
            self._set_polled(flow.total - before >= _POLL_MIN_BYTES)
