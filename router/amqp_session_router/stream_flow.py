"""The bytes of one direction where TLS is on either side: through this process, otherwise like `flow.Flow`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

from amqp_session_router import frames
from amqp_session_router.boundary import Position
from amqp_session_router.wires import Wire

_HEADER = struct.Struct(">BHI")


class AnyFlow(Protocol):
    """What sessions use of either kind of flow; see `flow.Flow` for what each part means."""

    index: int
    total: int
    last_method: int
    metered: bool
    halted: bool

    def start(self) -> None: ...
    def halt(self) -> None: ...
    def at_boundary(self, run: Callable[[], bool]) -> None: ...
    def inject(self, data: bytes) -> None: ...
    def feed(self, data: bytes) -> None: ...
    def known_boundary(self) -> bool: ...
    def stop(self) -> None: ...

    @property
    def clear(self) -> bool: ...
    @property
    def awaited(self) -> bool: ...


class Owner(Protocol):
    """The session, as its flows see it. All are called from the event loop."""

    def flow_ended(self, flow: AnyFlow) -> None:
        """The source sent its last byte and all were written on."""

    def flow_broke(self, flow: AnyFlow, at_source: bool, error: OSError) -> None:
        """One side's socket failed."""

    def flow_frame_too_large(self, flow: AnyFlow, size: int) -> None:
        """The source sent a frame above what was agreed; it was not passed on."""

    def flow_took_leave(self, flow: AnyFlow) -> None:
        """The source sent a Close-Ok, and as much of it as the sink takes is written. TLS streams do not tell."""

    def flow_moved(self, flow: AnyFlow, count: int) -> None:
        """So many bytes were moved; only called while `flow.metered`."""


class StreamFlow:
    """One direction from `source` to `sink`. What cannot be passed on yet stays in `_held`: one read at most."""

    def __init__(self, owner: Owner, index: int, source: Wire, sink: Wire, frame_max: int) -> None:
        self.owner = owner
        self.index = index
        self.total = 0
        self.last_method = 0
        self.metered = False
        self.halted = True
        self._source = source
        self._sink = sink
        self._most = (frame_max or 0xFFFFFFFF) - frames.OVERHEAD
        self._position = Position()
        self._held = b""
        self._ended = False
        self._at_turns: list[Callable[[], bool]] = []
        self._dead = False
        self._reading = False
        sink.on_drained = self._drained

    def start(self) -> None:
        """Read, now or again."""
        self.halted = False
        self._go_on()

    def halt(self) -> None:
        """Read no more."""
        self.halted = True
        self._schedule()

    def at_boundary(self, run: Callable[[], bool]) -> None:
        """Call `run` as soon as the sink stands between two frames; the flow halts there if it returns True."""
        self._at_turns.append(run)
        self._turn()

    def inject(self, data: bytes) -> None:
        """Write `data` to the sink, between two frames."""
        self._sink.send(data)
        self._schedule()

    def feed(self, data: bytes) -> None:
        """Take bytes that were already read from the source."""
        self._pass_on(data)

    def known_boundary(self) -> bool:
        """Does the sink stand between two frames?"""
        return self._position.boundary

    @property
    def clear(self) -> bool:
        """Is everything that was read written?"""
        return not self._held and not self._sink.full

    @property
    def awaited(self) -> bool:
        """Does somebody wait for a boundary?"""
        return bool(self._at_turns)

    def stop(self) -> None:
        """Let go of everything. Idempotent."""
        self._dead = True
        self._at_turns.clear()
        self._source.unwatch()

    def _schedule(self) -> None:
        wanted = not (self.halted or self._sink.full or self._held or self._ended or self._dead)
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._source.watch(self._got)
            elif not self._dead:
                self._source.unwatch()

    def _got(self, data: bytes) -> None:
        if data:
            self._pass_on(data)
        else:
            self._reading, self._ended = False, True
        self._go_on()

    def _drained(self) -> None:
        self._go_on()
        self._turn()

    def _go_on(self) -> None:
        if self._held and not self.halted and not self._sink.full and not self._dead:
            held, self._held = self._held, b""
            self._pass_on(held)
        self._schedule()
        if self._ended and self.clear and not self._dead and not self.halted:
            self.halted = True
            self.owner.flow_ended(self)

    def _pass_on(self, data: bytes) -> None:
        """Send `data`, up to the first boundary if someone waits for one; the rest is held."""
        part = self._position.part
        whole = part + data
        at = self._position.rest
        while at + 7 <= len(whole) and not (self._at_turns and at > len(part)):
            _, channel, size = _HEADER.unpack_from(whole, at)
            if size > self._most:
                self._held = data
                self.halt()
                self.owner.flow_frame_too_large(self, size + frames.OVERHEAD)
                return
            if whole[at] == frames.METHOD and not channel and at + 11 <= len(whole):
                self.last_method = int.from_bytes(whole[at + 7 : at + 11], "big")
            at += size + frames.OVERHEAD
        sent = data
        if self._at_turns and len(part) < at <= len(whole):
            sent = data[: at - len(part)]
            self._position, self._held = Position(), data[len(sent) :]
        elif at >= len(whole):
            self._position = Position(at - len(whole))
        else:
            self._position = Position(0, whole[at:])
        self.total += len(sent)
        self._sink.send(sent)
        if self.metered:
            self.owner.flow_moved(self, len(sent))
        self._turn()
        if self._held:
            self._go_on()

    def _turn(self) -> None:
        while self._at_turns and not self._dead and self.known_boundary():
            if self._at_turns.pop(0)():
                self.halt()
