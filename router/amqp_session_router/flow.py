"""The bytes of one direction of an open session: light traffic by way of the hold, bulk by the kernel alone.

Light traffic is read into the hold, the frames in it are counted, so that the next boundary is known, and it is written
on at once (see `light`). The rest of a large frame is spliced (socket → pipe → socket) without a look, and the
header behind it is looked at (MSG_PEEK) before more is moved, as it is while someone waits for a boundary. Many small
frames are moved unseen (see `unseen`).
Nothing is read before the last byte is written, and the hold is memory that outlives the process: killed at any
instant, all that is in flight is in a socket, a pipe or the hold, and the cells (see `journal`) say whose it is and
where frames begin.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any

from amqp_session_router import wire
from amqp_session_router.boundary import Position
from amqp_session_router.journal import AHEAD, AT_WORK, NO_CELLS, PIPE
from amqp_session_router.light import CROWD, LARGE, MANY, Light
from amqp_session_router.pipes import Pipe
from amqp_session_router.plane import CHUNK, MOVE, Plane
from amqp_session_router.stream_flow import Owner
from amqp_session_router.stretch import walk
from amqp_session_router.unseen import Unseen

_TURNS = 32
"""Reads of one flow in one turn of the event loop, once its source has failed."""
_MASK = (1 << 64) - 1


class Flow(Light):
    """One direction. `halted` flows do not read; `at_boundary` runs something between two frames."""

    __slots__ = (
        "_dead",
        "_failing",
        "_left",
        "_outbox",
        "_pipe",
        "channel_max",
        "halted",
        "index",
        "owner",
        "plane",
        "reading",
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
        self.reading = False
        self._dead = False
        self._failing = False

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
            self.broke(False, error)
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
        position = walk(memoryview(data), 0, len(data))
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
        if self.unseen is not None:
            self.unseen.find()
        return self.unseen is None and not self._dead and not self.rest and not self.part and self.clear

    def surrender(self) -> tuple[dict[str, Any], Pipe | None]:
        """Stop, and return what a successor must know, and the pipe that is in use."""
        if self.unseen is not None:
            self.unseen.find()
        pipe, self._pipe = self._pipe, None
        state = {
            "rest": None if self.unseen is not None else self.rest,
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
            self._go_unseen(None)
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
        if self.reading:
            self._stop_reading()
            self.reading = False
        if not self.clear:
            loop.remove_writer(self.fd_out)
        if self._pipe is not None:
            self.plane.pool.give_back(self._pipe, not self._left)
            self._pipe = None
        if self.unseen is not None:
            self.unseen.close()
            self.unseen = None

    # --- turns of the event loop ------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        wanted = not self.halted and not self._left and not self._outbox and not self._dead
        if wanted != self.reading:
            self.reading = wanted
            if wanted:
                self._read_on()
                if self._failing:
                    self.plane.loop.call_soon(self.read_to_failure)
            else:
                self._stop_reading()

    def _read_on(self) -> None:
        if self.unseen is None:
            self.plane.loop.add_reader(self.fd_in, self.readable)
        else:
            self.unseen.read_on()

    def _stop_reading(self) -> None:
        if self.unseen is None:
            self.plane.loop.remove_reader(self.fd_in)
        else:
            self.unseen.stop_reading()

    def read_to_failure(self) -> None:
        """The source has failed, or both its directions have ended: read until that shows."""
        self._failing = True
        for _ in range(_TURNS):
            before = self.total
            if not self.reading:
                return  # `_schedule` comes back here
            self.readable()
            if self.total == before:
                return
        self.plane.loop.call_soon(self.read_to_failure)

    # --- by the kernel ----------------------------------------------------------------------------------------------

    def _by_kernel(self) -> None:
        """What is not light traffic."""
        if self.crowd >= CROWD:
            self.crowd = 0
            # Here, and not where it is counted: the pool's last pipe must be empty when it is lent to remember by.
            # Where there is no descriptor for another, the stream is looked at as before.
            with contextlib.suppress(OSError):
                self._go_unseen(Position(self.rest, self.part))
        if self.unseen is None:
            self._splice()
        else:
            self.unseen.readable()

    def _go_unseen(self, start: Position | None) -> None:
        """Look no more. `start`: where the source stands; None: nobody knows. Raises OSError: there is no pipe."""
        self.unseen = Unseen(self, start)
        self.note()

    def found(self, position: Position, method: int) -> None:
        """The unseen stream is over: it stands at `position`, behind a Close or a Close-Ok if there is a `method`."""
        self.unseen = None
        if position.boundary:
            self.last_method = method or self.last_method
            if self.last_method == wire.CLOSE_OK:
                self._took_leave()
        self.look_again()
        self.rest, self.part = position.rest, position.part
        self.note()

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
                    self.ended()
                    return
                self.rest = rest - moved
                if moved >= MANY:
                    self.crowded()
            else:
                got = self.source.recv_into(plane.look, self.look, socket.MSG_PEEK)
                if not got:
                    self.ended()
                    return
                moved = self._seen(plane, pipe, got)
                if not moved:
                    return
        except BlockingIOError:
            return
        except OSError as error:
            self.broke(True, error)
            return
        self.total += moved
        if rest or self.rest or self.part:
            self.note()
        try:
            sent = os.splice(pipe.read, self.fd_out, moved, flags=MOVE)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.sink_broke(moved, error)
            return
        if sent != moved:
            self.blocked(moved - sent)
        self.moved(moved)

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
            position = walk(plane.scratch, begin, AHEAD + moved)
            self.rest, self.part = position.rest, position.part
        return moved

    # --- how a turn ends, here and in `unseen` ----------------------------------------------------------------------

    def _too_large(self, size: int) -> None:
        # Its bytes stay unread; the session decides. Who does not end it has lost the boundary.
        self.owner.flow_frame_too_large(self, size + 8)

    def sink_broke(self, left: int, error: OSError) -> None:
        """The sink has failed, with `left` bytes in the pool's last pipe."""
        try:
            self._pipe = self.plane.pool.lend()
        except OSError:
            left = 0
        self._left = left
        self.broke(False, error)

    def _unwritten(self, got: int, error: OSError) -> None:
        """The sink has failed, with `got` bytes in the hold."""
        self._outbox = bytes(self.plane.look[:got])
        self.broke(False, error)

    def _keep(self, sent: int, got: int) -> None:
        """The sink is full, and the hold has bytes for it: into a pipe with them, where they outlive the process."""
        data = self.plane.look[sent:got]
        try:
            wrote = os.write(self.plane.pool.free[-1].write, data)
        except OSError as error:
            self.broke(False, error)
            return
        # More than a pipe takes is left to this process's memory.
        self._outbox = bytes(data[wrote:])
        self.blocked(wrote)

    def blocked(self, left: int) -> None:
        """The sink is full: keep the pool's last pipe until it takes the rest, and read nothing before."""
        plane = self.plane
        try:
            self._pipe = plane.pool.lend()
        except OSError as error:
            self.broke(False, error)
            return
        self._left = left
        plane.cells[self.cell + 2] = self._pipe.ends
        plane.loop.add_writer(self.fd_out, self._writable)
        self._schedule()

    def _writable(self) -> None:
        try:
            if self._left:
                assert self._pipe is not None
                if self.unseen is None:
                    self._left -= os.splice(self._pipe.read, self.fd_out, self._left, flags=MOVE)
                else:
                    self._left = self.unseen.send_on(self._pipe, self._left)
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
            self.broke(False, error)
            return
        self.plane.loop.remove_writer(self.fd_out)
        self._schedule()
        self._turn()

    def moved(self, count: int) -> None:
        """So many bytes were read, and written or kept."""
        if self.at_turns:
            self._turn()
        if self.metered:
            self.owner.flow_moved(self, count)

    def _turn(self) -> None:
        """Run what waits for a boundary, if this is one."""
        while self.at_turns and self.known_boundary():
            if self.at_turns.pop(0)():
                self.halt()

    def _took_leave(self) -> None:
        """A Close-Ok was read; who has read it has yet to write it."""
        self.plane.loop.call_soon(self.owner.flow_took_leave, self)

    def ended(self) -> None:
        """The source has no more."""
        self.halt()
        self.owner.flow_ended(self)

    def broke(self, at_source: bool, error: OSError) -> None:
        """One side's socket has failed."""
        self.halted = True
        self._schedule()
        self.plane.loop.remove_writer(self.fd_out)
        self.owner.flow_broke(self, at_source, error)
