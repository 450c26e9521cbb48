"""The bytes of one direction of an open session: light traffic by way of the hold, bulk by the kernel alone.

Light traffic is read into the hold, the frames in it are counted, so that the next boundary is known, and it is written
on at once (see `light`). The rest of a large frame is spliced (socket → pipe → socket) without a look, and the
header behind it is looked at (MSG_PEEK) before more is moved, as it is while someone waits for a boundary. Many small
frames would cost more to look at than to move: they go *unseen*, while a second pipe keeps what was moved last by
tee(2), without a copy. From that the boundary is found (`boundary.locate`) when the stream calms down or when someone
needs it. Where it rushes on, it is looked after once a tick instead of at each event: a process that is woken for each
piece pays more for waking than for moving.
Nothing is read before the last byte is written, and the hold is memory that outlives the process: killed at any
instant, all that is in flight is in a socket, a pipe or the hold, and the cells (see `journal`) say whose it is and
where frames begin.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
from collections.abc import Callable
from typing import Any

from amqp_session_router import wire
from amqp_session_router.boundary import Position, locate, window
from amqp_session_router.journal import AHEAD, AT_WORK, NO_CELLS, PIPE
from amqp_session_router.light import CROWD, LARGE, MANY, Light
from amqp_session_router.pipes import Pipe
from amqp_session_router.plane import CHUNK, MOVE, MOVE_MORE, Plane
from amqp_session_router.stream_flow import Owner

_TURNS = 32
"""Reads of one flow in one turn of the event loop, once its source has failed."""
_CALM, _CALM_BYTES = 4, 32768
"""So many turns in a row with fewer bytes make it be seen again."""
_RUSH_BYTES, _RUSH_SECONDS = 1 << 22, 0.01
"""An unseen stream that brings so much in so little time is looked after by the tick: its sender does not wait for
anybody's answer."""
_TICK, _TICK_BYTES, _TICK_TURNS = 0.001, 1 << 16, 8
"""Seconds from one look to the next, the bytes that it has to bring (or each event counts again), and how often it
moves a pipe's fill."""
_MASK = (1 << 64) - 1

_libc = ctypes.CDLL(None, use_errno=True)
_tee = _libc.tee
_tee.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint)
_tee.restype = ctypes.c_ssize_t


class Flow(Light):
    """One direction. `halted` flows do not read; one that `rushes` does so by the tick; `at_boundary` runs something
    between two frames."""

    __slots__ = (
        "_calm",
        "_count_at",
        "_counted",
        "_dead",
        "_failing",
        "_fresh",
        "_kept",
        "_left",
        "_outbox",
        "_pipe",
        "_reading",
        "_retry_at",
        "_side",
        "_side_bytes",
        "_tick",
        "_whole",
        "_window",
        "channel_max",
        "halted",
        "index",
        "owner",
        "plane",
        "rushes",
        "sink",
        "source",
    )

    def __init__(
        self,
        owner: Owner,
        plane: Plane,
        index: int,
        source: socket.socket,
        sink: socket.socket,
        tune: tuple[int, int],
        cell: int = NO_CELLS,
    ) -> None:
        """`index` is 0 from client to broker, else 1; `tune` frame_max and channel_max (0: no limit).

        `cell` is the first of the session's cells.
        """
        super().__init__(plane.hold, source.fileno(), sink.fileno(), cell + index, tune[0] or 0xFFFFFFFF)
        self.owner = owner
        self.index = index
        self.source = source
        self.sink = sink
        self.channel_max = tune[1]
        self.halted = True
        self.plane = plane
        self._pipe: Pipe | None = None
        self._left = 0
        self._outbox = b""
        self._reading = False
        self._dead = False
        self._failing = False
        self._calm = 0
        self._window = window(self.frame_max)
        self._fresh = False
        self._counted = 0.0
        self._count_at = 0
        self.rushes = False
        self._tick: asyncio.TimerHandle | None = None
        self._side: Pipe | None = None
        self._side_bytes = 0
        self._kept = b""
        self._whole = False
        self._retry_at = 0

    # --- what the session does with it ------------------------------------------------------------------------------

    def start(self) -> None:
        """Read, now or again."""
        self.halted = False
        if not self._dead:
            self.plane.failures.watch(self.fd_in, self)
        self._schedule()

    def halt(self) -> None:
        """Read no more, wherever it stands; what is in flight is still written."""
        self.halted = True
        self._schedule()

    def at_boundary(self, run: Callable[[], bool]) -> None:
        """Call `run` as soon as the sink stands between two frames; the flow halts there if it returns True."""
        self.at_turns.append(run)
        self._turn()

    def inject(self, data: bytes) -> None:
        """Write `data` to the sink, behind all that is in flight. Only between two frames, see `at_boundary`."""
        self._not_read(len(data))
        if self._left or self._outbox:
            self._outbox += data
            return
        try:
            sent = self.sink.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._broke(False, error)
            return
        if sent < len(data):
            self._outbox = data[sent:]
            self.plane.loop.add_writer(self.fd_out, self._writable)
            self._schedule()

    def _not_read(self, count: int) -> None:
        """So many bytes are written, or will be, that no turn reads."""
        cells, cell = self.plane.cells, self.cell + 4
        cells[cell] = (cells[cell] - count) & _MASK

    def feed(self, data: bytes) -> None:
        """Take bytes that were already read from the source, before `start`."""
        position = self._walk(memoryview(data), 0, len(data))
        self.rest, self.part = position.rest, position.part
        self.total += len(data)
        self.inject(data)

    @property
    def clear(self) -> bool:
        """Is everything that was read written?"""
        return not self._left and not self._outbox

    @property
    def awaited(self) -> bool:
        """Does somebody wait for a boundary?"""
        return bool(self.at_turns)

    def known_boundary(self) -> bool:
        """Does the sink stand between two frames, for certain?"""
        if self.unseen:
            self._find()
        return not self.unseen and not self.rest and not self.part and self.clear

    def surrender(self) -> tuple[dict[str, Any], Pipe | None]:
        """Stop, and return what a successor must know, and the pipe that is in use."""
        if self.unseen:
            self._find()
        pipe, self._pipe = self._pipe, None
        state = {
            "rest": None if self.unseen else self.rest,
            "part": self.part.hex(),
            "total": self.total,
            "last_method": self.last_method,
            "left": self._left,
            "outbox": self._outbox.hex(),
        }
        self.stop()
        return state, pipe

    def adopt(self, state: dict[str, Any], pipe: Pipe | None) -> None:
        """Take over what another process had: its `surrender`, and the pipe with `left` bytes."""
        self.total, self.last_method = state.get("total", 0), state.get("last_method", 0)
        self._left, self._outbox = state["left"], bytes.fromhex(state.get("outbox", ""))
        self._not_read(self._left + len(self._outbox))
        if pipe is not None:
            self._pipe = pipe
            self.plane.cells[self.cell + 2] = pipe.ends
        if self._left or self._outbox:
            self.plane.loop.add_writer(self.fd_out, self._writable)
        if state["rest"] is None:
            self._go_unseen(whole=False)
        else:
            self.rest, self.part = state["rest"], bytes.fromhex(state.get("part", ""))
            self.note()

    def in_flight(self) -> tuple[Pipe | None, int]:
        """Return the pipe that is lent, and how many bytes it holds."""
        return self._pipe, self._left

    def stop(self) -> None:
        """Let go of everything but the sockets. Idempotent."""
        if self._dead:
            return
        self._dead = True
        self.at_turns.clear()
        loop = self.plane.loop
        if self._reading:
            self._stop_reading()
            self._reading = False
        if not self.clear:
            loop.remove_writer(self.fd_out)
        if self._pipe is not None:
            self.plane.pool.give_back(self._pipe, not self._left)
            self._pipe = None
        self._drop_side()

    # --- turns of the event loop ------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        wanted = not self.halted and not self._left and not self._outbox and not self._dead
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._read_on()
                if self._failing:
                    self.plane.loop.call_soon(self.read_to_failure)
            else:
                self._stop_reading()

    def _read_on(self) -> None:
        if self.rushes:
            self._tick = self.plane.loop.call_later(_TICK, self._look)
        else:
            self.plane.loop.add_reader(self.fd_in, self.readable)

    def _stop_reading(self) -> None:
        if self._tick is None:
            self.plane.loop.remove_reader(self.fd_in)
        else:
            self._tick.cancel()
            self._tick = None

    def read_to_failure(self) -> None:
        """The source has failed, or both its directions have ended: read until that shows."""
        self._failing = True
        for _ in range(_TURNS):
            before = self.total
            if not self._reading:
                return  # `_schedule` comes back here
            self.readable()
            if self.total == before:
                return
        self.plane.loop.call_soon(self.read_to_failure)

    def _by_kernel(self) -> None:
        """What is not light traffic."""
        if self.crowd >= CROWD:
            # Here, and not where it is counted: the pool's last pipe must be empty when one is lent for the side.
            self._go_unseen()
        if not self.unseen:
            self._splice()
            return
        self._move_unseen()
        if self.total >= self._count_at:
            now = self.plane.loop.time()
            if now - self._counted <= _RUSH_SECONDS and self._reading:
                self._stop_reading()
                self.rushes = True
                self._read_on()
            self._counted, self._count_at = now, self.total + _RUSH_BYTES

    def _look(self) -> None:
        """Move what has come since the last tick; each event counts again once that is little."""
        self._tick = None
        before = self.total
        # Somebody may have found the boundary meanwhile.
        if self.unseen:
            self._move_unseen(_TICK_TURNS)
        self.rushes = self.unseen and self.total - before >= _TICK_BYTES
        if self._reading and self._tick is None:
            self._read_on()

    def _splice(self) -> None:
        """Move by way of the pool's last pipe: what is left of a large frame, or what a look has found."""
        plane = self.plane
        pipe = plane.pool.free[-1]
        rest = self.rest
        plane.cells[AT_WORK] = self.cell
        plane.cells[PIPE] = pipe.ends
        try:
            if rest >= LARGE:
                moved = os.splice(self.fd_in, pipe.write, min(rest, CHUNK), flags=MOVE)
                if not moved:
                    self._end()
                    return
                self.rest = rest - moved
                if moved >= MANY:
                    self.crowded()
            else:
                got = self.source.recv_into(plane.look, self.look, socket.MSG_PEEK)
                if not got:
                    self._end()
                    return
                moved = self._seen(plane, pipe, got)
                if not moved:
                    return
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(True, error)
            return
        self.total += moved
        if rest or self.rest or self.part:
            self.note()
        try:
            sent = os.splice(pipe.read, self.fd_out, moved, flags=MOVE)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._sink_broke(moved, error)
            return
        if sent != moved:
            self._block(moved - sent)
        elif self.at_turns:
            self._turn()
        if self.metered:
            self.owner.flow_moved(self, moved)

    def _seen(self, plane: Plane, pipe: Pipe, got: int) -> int:
        """Splice up to the furthest boundary that the `got` bytes in the scratch tell of; return how many bytes."""
        frames = self.frames(got)
        if frames is None:
            return 0
        begin, last, at = frames
        end = AHEAD + got
        wanted = at - AHEAD if at >= end else got
        if self.at_turns and AHEAD < at < end:
            # Someone waits for the boundary: the header behind it stays in the socket.
            wanted = at - AHEAD
        moved = os.splice(self.fd_in, pipe.write, wanted if wanted < CHUNK else CHUNK, flags=MOVE)
        if moved >= got:
            self.stand(got, last, at)
            self.rest -= moved - got
        else:
            # The pipe took fewer bytes than were seen (it has few slots), or the walk stopped at a boundary.
            position = self._walk(plane.scratch, begin, AHEAD + moved)
            self.rest, self.part = position.rest, position.part
        return moved

    def _walk(self, view: memoryview, at: int, end: int) -> Position:
        """Return the position at `end`, if a frame begins at `at`."""
        while at + 7 <= end:
            at += int.from_bytes(view[at + 3 : at + 7], "big") + 8
        return Position(at - end) if at >= end else Position(0, bytes(view[at:end]))

    def _too_large(self, size: int) -> None:
        # Its bytes stay unread; the session decides. Who does not end it has lost the boundary.
        self.owner.flow_frame_too_large(self, size + 8)

    def _sink_broke(self, left: int, error: OSError) -> None:
        try:
            self._pipe = self.plane.pool.lend()
        except OSError:
            left = 0
        self._left = left
        self._broke(False, error)

    def _unwritten(self, got: int, error: OSError) -> None:
        """The sink has failed, with `got` bytes in the hold."""
        self._outbox = bytes(self.plane.look[:got])
        self._broke(False, error)

    def _keep(self, sent: int, got: int) -> None:
        """The sink is full, and the hold has bytes for it: into a pipe with them, where they outlive the process."""
        data = self.plane.look[sent:got]
        try:
            wrote = os.write(self.plane.pool.free[-1].write, data)
        except OSError as error:
            self._broke(False, error)
            return
        # More than a pipe takes is left to this process's memory.
        self._outbox = bytes(data[wrote:])
        self._block(wrote)

    def _block(self, left: int) -> None:
        """The sink is full: keep the pipe until it takes the rest, and read nothing before."""
        plane = self.plane
        try:
            self._pipe = plane.pool.lend()
        except OSError as error:
            self._broke(False, error)
            return
        self._left = left
        plane.cells[self.cell + 2] = self._pipe.ends
        plane.loop.add_writer(self.fd_out, self._writable)
        self._schedule()

    def _writable(self) -> None:
        try:
            if self._left:
                assert self._pipe is not None
                self._left = self._send_on(self._pipe, self._left)
                if self._left:
                    return
                self.plane.cells[self.cell + 2] = 0
                self.plane.pool.give_back(self._pipe)
                self._pipe = None
            if self._outbox:
                self._outbox = self._outbox[self.sink.send(self._outbox) :]
                if self._outbox:
                    return
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(False, error)
            return
        self.plane.loop.remove_writer(self.fd_out)
        self._schedule()
        self._turn()

    def _send_on(self, pipe: Pipe, count: int) -> int:
        """Splice what is in `pipe` to the sink; returns how many of the `count` bytes it did not take.

        Of an unseen stream's the last are remembered before they go. Raises OSError, not BlockingIOError.
        """
        try:
            if self._fresh:
                needless = count - self._window
                if needless > 0:
                    self._forget_all()
                    count -= (sent := os.splice(pipe.read, self.fd_out, needless, flags=MOVE_MORE))
                    if sent < needless:
                        return count
                self._fresh = False
                self._remember(pipe, count)
            return count - os.splice(pipe.read, self.fd_out, count, flags=MOVE)
        except BlockingIOError:
            return count

    def _turn(self) -> None:
        """Run what waits for a boundary, if this is one."""
        while self.at_turns and not self._dead and self.known_boundary():
            if self.at_turns.pop(0)():
                self.halt()

    def _took_leave(self) -> None:
        """A Close-Ok was read; who has read it has yet to write it."""
        self.plane.loop.call_soon(self.owner.flow_took_leave, self)

    def _end(self) -> None:
        self.halt()
        self.owner.flow_ended(self)

    def _broke(self, at_source: bool, error: OSError) -> None:
        self.halted = True
        self._schedule()
        self.plane.loop.remove_writer(self.fd_out)
        self.owner.flow_broke(self, at_source, error)

    # --- unseen: many small frames ----------------------------------------------------------------------------------

    def _go_unseen(self, whole: bool = True) -> None:
        """Look no more. `whole`: `rest` and `part` say where, so that all bytes from there on would be a proof too."""
        self.unseen = True
        self._whole = whole
        self.crowd = self._calm = 0
        self._side = self.plane.pool.lend()
        self._side_bytes = 0
        self._kept = b""
        self._retry_at = 0
        self.note()

    def _drop_side(self) -> None:
        if self._side is not None:
            self.plane.pool.give_back(self._side, not self._side_bytes)
            self._side = None
        self._side_bytes = 0
        self._kept = b""

    def _move_unseen(self, turns: int = 1) -> None:
        """Move what is there, at most so many fills of a pipe."""
        plane = self.plane
        pipe = plane.pool.free[-1]
        plane.cells[AT_WORK] = self.cell
        plane.cells[PIPE] = pipe.ends
        failed: OSError | None = None
        moved = there = 0
        try:
            for turn in range(turns):
                if turn:
                    there = self._make_room(pipe, there)
                got = os.splice(self.fd_in, pipe.write, CHUNK, flags=MOVE)
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
                self._broke(True, failed)
            else:
                self._find()
                self._end()
            return
        self._fresh = True
        self.total += moved
        try:
            left = self._send_on(pipe, there)
        except OSError as error:
            self._sink_broke(there, error)
            return
        if left:
            self._block(left)
        if failed is not None:
            self._broke(True, failed)
            return
        if moved < _CALM_BYTES:
            self._calm += 1
            if self._calm >= _CALM:
                self._calm = 0
                self._find()
        else:
            self._calm = 0
        if self.at_turns:
            self._turn()
        if self.metered:
            self.owner.flow_moved(self, moved)

    def _make_room(self, pipe: Pipe, there: int) -> int:
        """Send of the `there` bytes what cannot be the last of all, for there is more to come; returns what is left."""
        needless = there - self._window
        if needless <= 0:
            return there
        self._forget_all()
        try:
            return there - os.splice(pipe.read, self.fd_out, needless, flags=MOVE_MORE)
        except OSError:
            # Full, or failed: that shows again.
            return there

    def _remember(self, pipe: Pipe, moved: int) -> None:
        """Keep a second reference to what is in `pipe`: the last bytes, as many as the proof needs."""
        side = self._side
        if side is None:
            return
        needed = self._window
        if self._side_bytes + moved > side.size // 2 and self._side_bytes:
            keep = 0 if moved >= needed else min(self._side_bytes, needed - moved)
            self._forget(side, self._side_bytes - keep)
        copied = _tee(pipe.read, side.write, moved, MOVE)
        if copied < moved:
            # No slot is free: what is older goes, and the bytes before the gap with it.
            self._side_bytes += max(copied, 0)
            self._forget_all()
            copied = _tee(pipe.read, side.write, moved, MOVE)
            if copied < moved:
                self._forget(side, max(copied, 0))
                self._side_bytes = 0
                return
        self._side_bytes += copied

    def _forget(self, side: Pipe, count: int) -> None:
        if count <= 0:
            return
        self._kept = b""
        self._whole = False
        while count:
            count -= (gone := os.splice(side.read, self.plane.nowhere, count, flags=MOVE))
            self._side_bytes -= gone

    def _forget_all(self) -> None:
        self._kept = b""
        self._whole = False
        if self._side is not None:
            self._forget(self._side, self._side_bytes)

    def _find(self) -> None:
        """Try to prove where the source stands, from the last bytes that were moved."""
        side = self._side
        needed = self._window
        enough = self._whole or self._side_bytes + len(self._kept) >= needed
        if side is None or not enough or self._fresh or self.total < self._retry_at:
            return
        data = bytearray(self._kept)
        while self._side_bytes:
            data += (chunk := os.read(side.read, self._side_bytes))
            self._side_bytes -= len(chunk)
        self._kept = bytes(data[-needed:])
        if self._whole:
            position: Position | None = self._walk(memoryview(self.part + data), self.rest, len(self.part) + len(data))
        else:
            position = locate(self._kept, self.frame_max, self.channel_max)
        if position is None:
            self._retry_at = self.total + needed // 2
            return
        if position.boundary:
            self.last_method = next((m for m, f in _ENDS if f(self._kept)), self.last_method)
            if self.last_method == wire.CLOSE_OK:
                self._took_leave()
        self._drop_side()
        self.unseen = False
        self.look_again()
        self.rest, self.part = position.rest, position.part
        self.note()


def _ends_with_close(data: bytes) -> bool:
    start = data.rfind(b"\x00\x0a\x00\x32")
    return start >= 7 and start + int.from_bytes(data[start - 4 : start], "big") + 1 == len(data)


_ENDS = ((wire.CLOSE, _ends_with_close), (wire.CLOSE_OK, lambda data: data.endswith(wire.CLOSE_OK_FRAME)))
