"""One direction of a session with TLS on either side: the bytes are copied through this process."""

from __future__ import annotations

from collections.abc import Callable

from amqp_session_router.amqp import codec, frames
from amqp_session_router.amqp.boundary import Position, walk
from amqp_session_router.net.transport import Transport
from amqp_session_router.relay.interfaces import Flow, FlowOwner


class BufferedFlow:
    """See `interfaces.Flow`. Bytes that cannot be written yet stay in `_held`: one read at most."""

    def __init__(self, owner: FlowOwner, index: int, source: Transport, sink: Transport, limit: int) -> None:
        """`limit`: bytes of the largest frame that is let through (0: all)."""
        self.owner = owner
        self.index = index
        self.total = 0
        self.last_method = 0
        self.meter: Callable[[Flow, int], None] | None = None
        self.halted = True
        self._source = source
        self._sink = sink
        self._most = (limit or 1 << 40) - frames.OVERHEAD
        self.blocked = False
        self._position = Position()
        self._held = b""
        self._ended = False
        self._boundary_waiters: list[Callable[[], bool]] = []
        self._dead = False
        self._reading = False
        sink.on_drained = self._drained

    def start(self) -> None:
        """Start or resume reading."""
        self.halted = False
        self._go_on()

    def halt(self) -> None:
        """Stop reading."""
        self.halted = True
        self._schedule()

    def heed(self, every: bool) -> None:
        """Every frame header is read as it is."""

    def at_boundary(self, run: Callable[[], bool]) -> None:
        """Call `run` as soon as the sink is between two frames; the flow halts there if it returns True."""
        self._boundary_waiters.append(run)
        self._run_boundary_waiters()

    def inject(self, data: bytes) -> None:
        """Write `data` to the sink, between two frames."""
        self._sink.send(data)
        self._schedule()

    def feed(self, data: bytes) -> None:
        """Take bytes that were read from the source before `start`."""
        self._forward(data)

    def known_boundary(self) -> bool:
        """Does the sink stand between two frames?"""
        return self._position.boundary

    @property
    def clear(self) -> bool:
        """Whether everything read has been written."""
        return not self._held and not self._sink.full

    @property
    def unproven(self) -> bool:
        """False: every frame header is read."""
        return False

    @property
    def boundary_awaited(self) -> bool:
        """Whether a callback waits for a frame boundary."""
        return bool(self._boundary_waiters)

    def stop(self) -> None:
        """Release everything. Idempotent."""
        self._dead = True
        self._boundary_waiters.clear()
        self.meter = None
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
            self._forward(data)
        else:
            self._reading, self._ended = False, True
        self._go_on()

    def _drained(self) -> None:
        self._go_on()
        self._run_boundary_waiters()

    def _go_on(self) -> None:
        if self._held and not self.halted and not self._sink.full and not self._dead:
            held, self._held = self._held, b""
            self._forward(held)
        self._schedule()
        if self._ended and self.clear and not self._dead and not self.halted:
            self.halted = True
            self.owner.flow_ended(self)

    def _forward(self, data: bytes) -> None:
        """Send `data`, only up to the first boundary if somebody waits for one; hold the rest."""
        part = self._position.part
        whole = part + data if part else data
        # Where somebody waits for a boundary, to the first one in `data`.
        stop = len(part) if self._boundary_waiters else len(whole)
        at, method, too_large = walk(whole, self._position.rest, self._most, stop)
        if method:
            self.last_method = method
        if too_large >= 0:
            self._held = data
            self.halt()
            self.owner.flow_frame_too_large(self, too_large + frames.OVERHEAD)
            return
        sent = data
        if self._boundary_waiters and len(part) < at <= len(whole):
            sent = data[: at - len(part)]
            self._position, self._held = Position(), data[len(sent) :]
        elif at >= len(whole):
            self._position = Position(at - len(whole))
        else:
            self._position = Position(0, whole[at:])
        self.total += len(sent)
        self._sink.send(sent)
        if method in (codec.BLOCKED, codec.UNBLOCKED):
            self.blocked = method == codec.BLOCKED
            self.owner.flow_alarmed(self)
        if self.meter is not None:
            self.meter(self, len(sent))
        self._run_boundary_waiters()
        if self._held:
            self._go_on()

    def _run_boundary_waiters(self) -> None:
        while self._boundary_waiters and not self._dead and self.known_boundary():
            if self._boundary_waiters.pop(0)():
                self.halt()
