"""Many small frames: a stream that is moved unseen, until it is known again where it stands.

Such frames would cost more to look at than to move, so they are spliced without a look, and the last of them are
remembered (see `stretch`). From that the boundary is found when the stream calms down or when someone needs it. Where
it rushes on, it is looked after once a tick instead of at each event: a process that is woken for each piece pays more
for waking than for moving.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from amqp_session_router.boundary import Position
from amqp_session_router.journal import AT_WORK, PIPE
from amqp_session_router.pipes import Pipe
from amqp_session_router.plane import CHUNK, MOVE, MOVE_MORE
from amqp_session_router.stretch import Stretch

if TYPE_CHECKING:
    from amqp_session_router.flow import Flow

_CALM, _CALM_BYTES = 4, 32768
"""So many turns in a row with fewer bytes make it be seen again."""
_RUSH_BYTES, _RUSH_SECONDS = 1 << 22, 0.01
"""A stream that brings so much in so little time is looked after by the tick: its sender does not wait for anybody's
answer."""
_TICK, _TICK_BYTES, _TICK_TURNS = 0.001, 1 << 16, 8
"""Seconds from one look to the next, the bytes that it has to bring (or each event counts again), and how often it
moves a pipe's fill."""


class Unseen:
    """One flow's stream while it is unseen; how its turns end is the flow's part. One that `rushes` is read by the
    tick."""

    __slots__ = ("_calm", "_count_at", "_counted", "_flow", "_fresh", "_retry_at", "_stretch", "_tick", "rushes")

    def __init__(self, flow: Flow, start: Position | None) -> None:
        """`start`: where the source stands; None: nobody knows. Raises OSError: there is no pipe to remember by."""
        self.rushes = False
        self._flow = flow
        self._stretch = Stretch(flow.plane, flow.frame_max, flow.channel_max, start)
        # Were bytes read that are not remembered yet?
        self._fresh = False
        self._calm = 0
        self._retry_at = 0
        self._counted = flow.plane.loop.time()
        self._count_at = flow.total + _RUSH_BYTES
        self._tick: asyncio.TimerHandle | None = None

    # --- what the flow does with it ---------------------------------------------------------------------------------

    def read_on(self) -> None:
        """Have the source read: at each event, in a rush by the tick."""
        flow = self._flow
        if self.rushes:
            self._tick = flow.plane.loop.call_later(_TICK, self._look)
        else:
            flow.plane.loop.add_reader(flow.fd_in, flow.readable)

    def stop_reading(self) -> None:
        """Have it not read."""
        if not self.rushes:
            self._flow.plane.loop.remove_reader(self._flow.fd_in)
        elif self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def readable(self) -> None:
        """The source has something to read: move it, and see whether it is a rush."""
        self._move()
        flow = self._flow
        if flow.total >= self._count_at:
            now = flow.plane.loop.time()
            if now - self._counted <= _RUSH_SECONDS and flow.reading and flow.unseen is self:
                self._rush(True)
            self._counted, self._count_at = now, flow.total + _RUSH_BYTES

    def send_on(self, pipe: Pipe, count: int) -> int:
        """Splice what is in `pipe` to the sink; returns how many of the `count` bytes it did not take.

        The last are remembered before they go. Raises OSError, not BlockingIOError.
        """
        fd_out = self._flow.fd_out
        try:
            if self._fresh:
                needless = count - self._stretch.window
                if needless > 0:
                    self._stretch.forget()
                    count -= (sent := os.splice(pipe.read, fd_out, needless, flags=MOVE_MORE))
                    if sent < needless:
                        return count
                self._fresh = False
                self._stretch.remember(pipe, count)
            return count - os.splice(pipe.read, fd_out, count, flags=MOVE)
        except BlockingIOError:
            return count

    def find(self) -> None:
        """Try to prove where the source stands, from the last bytes that were moved; with that it is over."""
        flow = self._flow
        if self._fresh or flow.total < self._retry_at or not self._stretch.enough:
            return
        position = self._stretch.find()
        if position is None:
            self._retry_at = flow.total + self._stretch.window // 2
            return
        method = self._stretch.last_method() if position.boundary else 0
        self.close()
        flow.found(position, method)

    def close(self) -> None:
        """Give everything back; who reads goes on by events."""
        if self.rushes:
            self._rush(False)
        self._stretch.close()

    # --- moving -----------------------------------------------------------------------------------------------------

    def _move(self, turns: int = 1) -> None:
        """Move what is there, at most so many fills of a pipe."""
        flow = self._flow
        plane = flow.plane
        pipe = plane.pool.free[-1]
        plane.cells[AT_WORK] = flow.cell
        plane.cells[PIPE] = pipe.ends
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
                flow.broke(True, failed)
            else:
                self.find()
                flow.ended()
            return
        self._fresh = True
        flow.total += moved
        try:
            left = self.send_on(pipe, there)
        except OSError as error:
            flow.sink_broke(there, error)
            return
        if left:
            flow.blocked(left)
        if failed is not None:
            flow.broke(True, failed)
            return
        if moved < _CALM_BYTES:
            self._calm += 1
            if self._calm >= _CALM:
                self._calm = 0
                self.find()
        else:
            self._calm = 0
        flow.moved(moved)

    def _make_room(self, pipe: Pipe, there: int) -> int:
        """Send of the `there` bytes what cannot be the last of all, for there is more to come; returns what is left."""
        needless = there - self._stretch.window
        if needless <= 0:
            return there
        self._stretch.forget()
        try:
            return there - os.splice(pipe.read, self._flow.fd_out, needless, flags=MOVE_MORE)
        except OSError:
            # Full, or failed: that shows again.
            return there

    # --- the rush ---------------------------------------------------------------------------------------------------

    def _rush(self, on: bool) -> None:
        """Be looked after by the tick from now on, or by each event."""
        reading = self._flow.reading
        if reading:
            self.stop_reading()
        self.rushes = on
        if reading:
            self.read_on()

    def _look(self) -> None:
        """Move what has come since the last tick; each event counts again once that is little."""
        self._tick = None
        flow = self._flow
        before = flow.total
        self._move(_TICK_TURNS)
        # It may be over: found, or the flow was stopped.
        if flow.unseen is self:
            self._rush(flow.total - before >= _TICK_BYTES)
