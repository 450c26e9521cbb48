"""The bytes of one direction of an open session: light traffic by way of the hold, bulk by the kernel alone.

Light traffic is read into the hold, the frames in it are counted, so that the next boundary is known, and it is written
on at once: two system calls. The rest of a large frame is spliced (socket → pipe → socket) without a look, and the
header behind it is looked at (MSG_PEEK) before more is moved, as it is while someone waits for a boundary. Many small
frames would cost more to look at than to move: they go *unseen*, while a second pipe keeps what was moved last by
tee(2), without a copy. From that the boundary is found (`boundary.locate`) when the stream calms down or when someone
needs it.
Nothing is read before the last byte is written, and the hold is memory that outlives the process: killed at any
instant, all that is in flight is in a socket, a pipe or the hold, and the cells (see `journal`) say whose it is and
where frames begin.
"""

from __future__ import annotations

import array
import asyncio
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

from amqp_session_router import wire
from amqp_session_router.boundary import Position, locate, window
from amqp_session_router.failures import Failures
from amqp_session_router.journal import AHEAD, AT_WORK, HELD, HOLDING, LOOK, NO_CELLS, PIPE, WORDS, Journal
from amqp_session_router.pipes import Pipe, Pool
from amqp_session_router.stream_flow import Owner

_FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
_LOOK_LARGE = 256
"""Behind a large frame comes a large frame, and its header is all there is to see."""
_LARGE = 4096
_CHUNK = 1 << 19
_CROWD, _MANY, _FEW = 16, 8192, 1024
"""So many turns with many bytes make a stream go unseen, unless a look shows few between them."""
_TURNS = 32
"""Reads of one flow in one turn of the event loop, once its source has failed."""
_CALM, _CALM_BYTES = 4, 32768
"""So many turns in a row with fewer bytes make it be seen again."""
UNKNOWN = (1 << 64) - 1
"""In a cell: nobody knows where the stream stands."""
_MASK = (1 << 64) - 1
_SIZE = struct.Struct(">I").unpack_from

_libc = ctypes.CDLL(None, use_errno=True)
_tee = _libc.tee
_tee.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint)
_tee.restype = ctypes.c_ssize_t


class Plane:
    """What all flows of a process share; `scratch` holds nothing from one callback to the next."""

    def __init__(self, loop: asyncio.AbstractEventLoop, journal: Journal | None = None) -> None:
        """`journal` has the cells and the hold, none where nobody would look for them."""
        self.loop = loop
        self.pool = Pool()
        self.scratch = memoryview(bytearray(AHEAD + LOOK)) if journal is None else journal.hold
        self.look = self.scratch[AHEAD:]
        self.nowhere = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        self.cells: memoryview = memoryview(array.array("Q", [0] * WORDS)) if journal is None else journal.cells
        self.failures = Failures(loop)

    def close(self) -> None:
        """Give everything back."""
        self.failures.close()
        self.pool.close()
        os.close(self.nowhere)


class Flow:
    """One direction. `halted` flows do not read; `at_boundary` runs something between two frames."""

    __slots__ = (
        "_at_turns",
        "_calm",
        "_cell",
        "_crowd",
        "_dead",
        "_failing",
        "_fd_in",
        "_fd_out",
        "_holding",
        "_kept",
        "_last_method",
        "_left",
        "_look",
        "_outbox",
        "_pipe",
        "_plane",
        "_reading",
        "_retry_at",
        "_side",
        "_side_bytes",
        "_whole",
        "channel_max",
        "frame_max",
        "halted",
        "index",
        "metered",
        "owner",
        "part",
        "rest",
        "sink",
        "source",
        "total",
        "unseen",
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
        self.owner = owner
        self.index = index
        self.source = source
        self.sink = sink
        self.frame_max = tune[0] or 0xFFFFFFFF
        self.channel_max = tune[1]
        self.rest = 0
        self.part = b""
        self.total = 0
        self.metered = False
        self.halted = True
        self.unseen = False
        self._last_method = 0
        self._plane = plane
        self._fd_in = source.fileno()
        self._fd_out = sink.fileno()
        self._pipe: Pipe | None = None
        self._left = 0
        self._outbox = b""
        self._reading = False
        self._dead = False
        self._failing = False
        self._look = LOOK
        self._crowd = 0
        self._calm = 0
        self._side: Pipe | None = None
        self._side_bytes = 0
        self._kept = b""
        self._whole = False
        self._retry_at = 0
        self._cell = cell + index
        self._holding = self._cell | HOLDING
        self._at_turns: list[Callable[[], bool]] = []

    # --- what the session does with it ------------------------------------------------------------------------------

    def start(self) -> None:
        """Read, now or again."""
        self.halted = False
        if not self._dead:
            self._plane.failures.watch(self._fd_in, self)
        self._schedule()

    def halt(self) -> None:
        """Read no more, wherever it stands; what is in flight is still written."""
        self.halted = True
        self._schedule()

    def at_boundary(self, run: Callable[[], bool]) -> None:
        """Call `run` as soon as the sink stands between two frames; the flow halts there if it returns True."""
        self._at_turns.append(run)
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
            self._plane.loop.add_writer(self._fd_out, self._writable)
            self._schedule()

    def _not_read(self, count: int) -> None:
        """So many bytes are written, or will be, that no turn reads."""
        cells, cell = self._plane.cells, self._cell + 4
        cells[cell] = (cells[cell] - count) & _MASK

    def feed(self, data: bytes) -> None:
        """Take bytes that were already read from the source, before `start`."""
        position = self._walk(memoryview(data), 0, len(data))
        self.rest, self.part = position.rest, position.part
        self.total += len(data)
        self.inject(data)

    @property
    def last_method(self) -> int:
        """The last method on channel 0 that was seen to be passed on, 0 before one was."""
        return self._last_method

    @last_method.setter
    def last_method(self, method: int) -> None:
        self._last_method = method
        if method == wire.CLOSE_OK:
            # Later: who has read it has yet to write it.
            self._plane.loop.call_soon(self.owner.flow_took_leave, self)

    @property
    def position(self) -> Position | None:
        """Where the source stands; None if that is not known."""
        return None if self.unseen else Position(self.rest, self.part)

    @property
    def clear(self) -> bool:
        """Is everything that was read written?"""
        return not self._left and not self._outbox

    @property
    def awaited(self) -> bool:
        """Does somebody wait for a boundary?"""
        return bool(self._at_turns)

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
            self._plane.cells[self._cell + 2] = pipe.ends
        if self._left or self._outbox:
            self._plane.loop.add_writer(self._fd_out, self._writable)
        if state["rest"] is None:
            self._go_unseen(whole=False)
        else:
            self.rest, self.part = state["rest"], bytes.fromhex(state.get("part", ""))
            self._note()

    def in_flight(self) -> tuple[Pipe | None, int]:
        """Return the pipe that is lent, and how many bytes it holds."""
        return self._pipe, self._left

    def stop(self) -> None:
        """Let go of everything but the sockets. Idempotent."""
        if self._dead:
            return
        self._dead = True
        self._at_turns.clear()
        loop = self._plane.loop
        if self._reading:
            loop.remove_reader(self._fd_in)
            self._reading = False
        if not self.clear:
            loop.remove_writer(self._fd_out)
        if self._pipe is not None:
            self._plane.pool.give_back(self._pipe, not self._left)
            self._pipe = None
        self._drop_side()

    # --- turns of the event loop ------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        wanted = not self.halted and not self._left and not self._outbox and not self._dead
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._plane.loop.add_reader(self._fd_in, self._readable)
                if self._failing:
                    self._plane.loop.call_soon(self.read_to_failure)
            else:
                self._plane.loop.remove_reader(self._fd_in)

    def read_to_failure(self) -> None:
        """The source has failed, or both its directions have ended: read until that shows."""
        self._failing = True
        for _ in range(_TURNS):
            before = self.total
            if not self._reading:
                return  # `_schedule` comes back here
            self._readable()
            if self.total == before:
                return
        self._plane.loop.call_soon(self.read_to_failure)

    def _readable(self) -> None:
        """The hot path."""
        if self._crowd >= _CROWD:
            # Here, and not where it is counted: the pool's last pipe must be empty when one is lent for the side.
            self._go_unseen()
        if self.unseen:
            self._unseen_readable()
        elif self.rest >= _LARGE or self._look != LOOK or self._at_turns:
            self._splice()
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        """Read into the hold and write from it."""
        plane = self._plane
        cells = plane.cells
        rest = self.rest
        cells[AT_WORK] = self._holding
        try:
            got = self.source.recv_into(plane.look)
            cells[HELD] = got
            if not got:
                self._end()
                return
            frames = self._frames(got)
            if frames is None:
                return
            self._stand(got, *frames)
            self.total += got
            if rest or self.rest or self.part:
                self._note()
            try:
                sent = self.sink.send(plane.look[:got])
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._outbox = bytes(plane.look[:got])
                self._broke(False, error)
                return
            if sent != got:
                self._keep(plane.look[sent:got])
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(True, error)
            return
        finally:
            cells[AT_WORK] = 0
            cells[HELD] = 0
        if self.metered:
            self.owner.flow_moved(self, got)

    def _frames(self, got: int) -> tuple[int, int, int] | None:
        """Walk over the frames of `got` bytes in the scratch.

        Returns where in it the first header begins, the last one, and the one behind; None if a frame is too large.
        """
        scratch = self._plane.scratch
        end = AHEAD + got
        at = AHEAD + self.rest
        if self.part:
            at = AHEAD - len(self.part)
            scratch[at:AHEAD] = self.part
        begin = at
        last = -1
        most = self.frame_max - 8
        while at + 7 <= end:
            last = at
            size = _SIZE(scratch, at + 3)[0]
            if size > most:
                self._too_large(size)
                return None
            at += size + 8
        return begin, last, at

    def _stand(self, got: int, begin: int, last: int, at: int) -> None:
        """All `got` bytes in the scratch are read: note where the source stands, and what is to be expected."""
        scratch = self._plane.scratch
        end = AHEAD + got
        if at >= end:
            self.rest = at - end
            if self.part:
                self.part = b""
        else:
            self.rest = 0
            self.part = bytes(scratch[at:end])
        if last >= 0:
            if scratch[last] == 1 and last + 11 <= end and not scratch[last + 1] | scratch[last + 2]:
                self.last_method = _SIZE(scratch, last + 7)[0]
            if at - last >= _LARGE:
                self._look = _LOOK_LARGE
            elif self._look != LOOK:
                self._look = LOOK
            elif got >= _MANY:
                self._crowded()
            elif got < _FEW:
                self._crowd = 0

    def _splice(self) -> None:
        """Move by way of the pool's last pipe: what is left of a large frame, or what a look has found."""
        plane = self._plane
        pipe = plane.pool.free[-1]
        rest = self.rest
        plane.cells[AT_WORK] = self._cell
        plane.cells[PIPE] = pipe.ends
        try:
            if rest >= _LARGE:
                moved = os.splice(self._fd_in, pipe.write, min(rest, _CHUNK), flags=_FLAGS)
                if not moved:
                    self._end()
                    return
                self.rest = rest - moved
                if moved >= _MANY:
                    self._crowded()
            else:
                got = self.source.recv_into(plane.look, self._look, socket.MSG_PEEK)
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
            self._note()
        try:
            sent = os.splice(pipe.read, self._fd_out, moved, flags=_FLAGS)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._sink_broke(moved, error)
            return
        if sent != moved:
            self._block(moved - sent)
        elif self._at_turns:
            self._turn()
        if self.metered:
            self.owner.flow_moved(self, moved)

    def _seen(self, plane: Plane, pipe: Pipe, got: int) -> int:
        """Splice up to the furthest boundary that the `got` bytes in the scratch tell of; return how many bytes."""
        frames = self._frames(got)
        if frames is None:
            return 0
        begin, last, at = frames
        end = AHEAD + got
        wanted = at - AHEAD if at >= end else got
        if self._at_turns and AHEAD < at < end:
            # Someone waits for the boundary: the header behind it stays in the socket.
            wanted = at - AHEAD
        moved = os.splice(self._fd_in, pipe.write, wanted if wanted < _CHUNK else _CHUNK, flags=_FLAGS)
        if moved >= got:
            self._stand(got, begin, last, at)
            self.rest -= moved - got
        else:
            # The pipe took fewer bytes than were seen (it has few slots), or the walk stopped at a boundary.
            position = self._walk(plane.scratch, begin, AHEAD + moved)
            self.rest, self.part = position.rest, position.part
        return moved

    def _crowded(self) -> None:
        if self.frame_max <= _CHUNK // 4:
            self._crowd += 1

    def _walk(self, view: memoryview, at: int, end: int) -> Position:
        """Return the position at `end`, if a frame begins at `at`."""
        while at + 7 <= end:
            at += _SIZE(view, at + 3)[0] + 8
        return Position(at - end) if at >= end else Position(0, bytes(view[at:end]))

    def _too_large(self, size: int) -> None:
        # Its bytes stay unread; the session decides. Who does not end it has lost the boundary.
        self.owner.flow_frame_too_large(self, size + 8)

    def _note(self) -> None:
        """Say where the source stands, for a successor."""
        self._plane.cells[self._cell] = UNKNOWN if self.part else self.rest

    def _sink_broke(self, left: int, error: OSError) -> None:
        try:
            self._pipe = self._plane.pool.lend()
        except OSError:
            left = 0
        self._left = left
        self._broke(False, error)

    def _keep(self, data: memoryview) -> None:
        """The sink is full, and `data` is read: into a pipe with it, where it outlives the process."""
        try:
            wrote = os.write(self._plane.pool.free[-1].write, data)
        except OSError as error:
            self._broke(False, error)
            return
        # More than a pipe takes is left to this process's memory.
        self._outbox = bytes(data[wrote:])
        self._block(wrote)

    def _block(self, left: int) -> None:
        """The sink is full: keep the pipe until it takes the rest, and read nothing before."""
        plane = self._plane
        try:
            self._pipe = plane.pool.lend()
        except OSError as error:
            self._broke(False, error)
            return
        self._left = left
        plane.cells[self._cell + 2] = self._pipe.ends
        plane.loop.add_writer(self._fd_out, self._writable)
        self._schedule()

    def _writable(self) -> None:
        try:
            if self._left:
                assert self._pipe is not None
                self._left -= os.splice(self._pipe.read, self._fd_out, self._left, flags=_FLAGS)
                if self._left:
                    return
                self._plane.cells[self._cell + 2] = 0
                self._plane.pool.give_back(self._pipe)
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
        self._plane.loop.remove_writer(self._fd_out)
        self._schedule()
        self._turn()

    def _turn(self) -> None:
        """Run what waits for a boundary, if this is one."""
        while self._at_turns and not self._dead and self.known_boundary():
            if self._at_turns.pop(0)():
                self.halt()

    def _end(self) -> None:
        self.halt()
        self.owner.flow_ended(self)

    def _broke(self, at_source: bool, error: OSError) -> None:
        self.halted = True
        self._schedule()
        self._plane.loop.remove_writer(self._fd_out)
        self.owner.flow_broke(self, at_source, error)

    # --- unseen: many small frames ----------------------------------------------------------------------------------

    def _go_unseen(self, whole: bool = True) -> None:
        """Look no more. `whole`: `rest` and `part` say where, so that all bytes from there on would be a proof too."""
        self.unseen = True
        self._whole = whole
        self._crowd = self._calm = 0
        self._side = self._plane.pool.lend()
        self._side_bytes = 0
        self._kept = b""
        self._retry_at = 0
        self._plane.cells[self._cell] = UNKNOWN

    def _drop_side(self) -> None:
        if self._side is not None:
            self._plane.pool.give_back(self._side, not self._side_bytes)
            self._side = None
        self._side_bytes = 0
        self._kept = b""

    def _unseen_readable(self) -> None:
        plane = self._plane
        pipe = plane.pool.free[-1]
        plane.cells[AT_WORK] = self._cell
        plane.cells[PIPE] = pipe.ends
        try:
            moved = os.splice(self._fd_in, pipe.write, _CHUNK, flags=_FLAGS)
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(True, error)
            return
        if not moved:
            self._find()
            self._end()
            return
        self._remember(pipe, moved)
        self.total += moved
        try:
            sent = os.splice(pipe.read, self._fd_out, moved, flags=_FLAGS)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._sink_broke(moved, error)
            return
        if sent != moved:
            self._block(moved - sent)
        if moved < _CALM_BYTES:
            self._calm += 1
            if self._calm >= _CALM:
                self._calm = 0
                self._find()
        else:
            self._calm = 0
        if self._at_turns:
            self._turn()
        if self.metered:
            self.owner.flow_moved(self, moved)

    def _remember(self, pipe: Pipe, moved: int) -> None:
        """Keep a second reference to what is in `pipe`: the last bytes, as many as the proof needs."""
        side = self._side
        if side is None:
            return
        needed = window(self.frame_max)
        if self._side_bytes + moved > side.size // 2 and self._side_bytes:
            keep = 0 if moved >= needed else min(self._side_bytes, needed - moved)
            self._forget(side, self._side_bytes - keep)
        copied = _tee(pipe.read, side.write, moved, _FLAGS)
        if copied < moved:
            # No slot is free: what is older goes, and the bytes before the gap with it.
            self._forget(side, self._side_bytes + max(copied, 0))
            self._side_bytes, self._kept, self._whole = 0, b"", False
            copied = _tee(pipe.read, side.write, moved, _FLAGS)
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
            count -= (gone := os.splice(side.read, self._plane.nowhere, count, flags=_FLAGS))
            self._side_bytes -= gone

    def _find(self) -> None:
        """Try to prove where the source stands, from the last bytes that were moved."""
        side = self._side
        needed = window(self.frame_max)
        enough = self._whole or self._side_bytes + len(self._kept) >= needed
        if side is None or not enough or self.total < self._retry_at:
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
        self._drop_side()
        self.unseen = False
        self._look = LOOK
        self.rest, self.part = position.rest, position.part
        self._note()


def _ends_with_close(data: bytes) -> bool:
    start = data.rfind(b"\x00\x0a\x00\x32")
    return start >= 7 and start + int.from_bytes(data[start - 4 : start], "big") + 1 == len(data)


_ENDS = ((wire.CLOSE, _ends_with_close), (wire.CLOSE_OK, lambda data: data.endswith(wire.CLOSE_OK_FRAME)))


def gone(error: OSError) -> bool:
    """Is this how a peer's end looks, rather than a fault of this host?"""
    return error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ECONNABORTED, errno.EHOSTUNREACH)
