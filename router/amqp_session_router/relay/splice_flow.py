"""One direction of an open session between two plain TCP sockets.

Reads take the fast path (`fastpath`): recv into the staging buffer, scan the frame headers, send. The rest of a large
frame is spliced (socket → pipe → socket) unread; the header after it is peeked at (MSG_PEEK) before more is moved, and
so is every header while somebody waits for a frame boundary. A stream of many small frames is spliced blindly
(`blind_splice`). What the sink does not take is its `backlog`.

Nothing is read before everything read earlier is written or kept in a pipe, and the staging buffer is shared memory
that outlives the process. So when the process is killed, every byte in flight is in a socket, a pipe or the staging
buffer, and the cells of the `journal` say to which flow it belongs and where frames begin.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

from amqp_session_router.amqp import codec
from amqp_session_router.amqp.boundary import Position, walk
from amqp_session_router.base.native import transmit
from amqp_session_router.net.socket_options import widen_receive_window
from amqp_session_router.relay.backlog import Backlog
from amqp_session_router.relay.blind_splice import BlindSplice
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.fastpath import ANY_SIZE, FastPath
from amqp_session_router.relay.interfaces import FlowOwner
from amqp_session_router.relay.journal import NO_CELLS
from amqp_session_router.relay.resync_window import FrameBounds, position_behind

_TURNS = 32
"""Reads of one flow in one iteration of the event loop once its source has failed."""
_MASK = (1 << 64) - 1
LARGEST_HEADER = 1 << 18
"""Bytes of a message's headers, which RabbitMQ does not divide by a consumer's frame_max: twice what it takes by
default in one frame, for what dead lettering adds."""


class SpliceFlow(FastPath):
    """See the module. A `halted` flow does not read; `at_boundary` runs a callback between two frames."""

    __slots__ = ("_dead", "_failing", "_tune", "backlog", "halted", "index", "reading", "relay", "source")

    def __init__(
        self,
        owner: FlowOwner,
        relay: RelayContext,
        index: int,
        source: socket.SocketType,
        sink: socket.SocketType,
        tune: tuple[int, int],
        cell: int = NO_CELLS,
        limit: int = 0,
    ) -> None:
        """`index`: 0 from client to broker, 1 back; `tune`: frame_max in bytes and channel_max (0: no limit).

        `cell`: index of the session's first journal cell; `limit`: bytes of the largest frame that is let through (0:
        all; a broker holds what was agreed itself).
        """
        super().__init__(
            owner, relay.staging, (source.fileno(), sink.fileno()), cell + index, tune[0] or ANY_SIZE, limit
        )
        self._tune = tune
        self.index = index
        self.source = source
        self.halted = True
        self.relay = relay
        self.backlog = Backlog(relay, self.fd_out, self.cell + 2)
        self.reading = self._dead = self._failing = False

    # --- used by the session ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start or resume reading."""
        self.halted = False
        if not self._dead:
            self.relay.poller.watch(self.fd_in, self)
        self._schedule()

    def halt(self) -> None:
        """Stop reading, at any position; bytes in flight are still written."""
        self.halted = True
        self._schedule()

    def heed(self, every: bool) -> None:
        """From now on read every frame header, or not: somebody must not miss what passes."""
        self.profile.heeded = every

    def at_boundary(self, run: Callable[[], bool]) -> None:
        """Call `run` as soon as the sink is between two frames; the flow halts there if it returns True."""
        self.boundary_waiters += (run,)
        self._run_boundary_waiters()

    def inject(self, data: bytes) -> None:
        """Write `data` to the sink behind the bytes in flight. Only between two frames, see `at_boundary`."""
        cells, cell, backlog = self.relay.cells, self.cell + 4, self.backlog
        # They are written without having been read.
        cells[cell] = (cells[cell] - len(data)) & _MASK
        if not backlog.empty:
            backlog.append(data)
            return
        try:
            sent = transmit(self.fd_out, data)
        except OSError as error:
            self.failed(False, error)
            return
        if sent < len(data):
            backlog.append(data[sent:])
            self._wait_for_sink()

    def feed(self, data: bytes) -> None:
        """Take bytes that were read from the source before `start`."""
        _, method, _ = walk(data, 0, len(data), len(data))
        self.blocked = method == codec.BLOCKED
        self.rest, self.part = position_behind(data, 0)
        self.total += len(data)
        self.inject(data)

    @property
    def clear(self) -> bool:
        """Whether everything read has been written."""
        return self.backlog.empty

    @property
    def boundary_awaited(self) -> bool:
        """Whether a callback waits for a frame boundary."""
        return bool(self.boundary_waiters)

    @property
    def unproven(self) -> bool:
        """Whether frames pass unread and nothing has proven yet where they begin."""
        return self.blind is not None

    def known_boundary(self) -> bool:
        """Return whether the sink is provably between two frames."""
        if self.blind is not None:
            self.blind.resynchronise()
        return self.blind is None and not self._dead and not self.rest and not self.part and self.backlog.empty

    def stop(self) -> None:
        """Release everything but the sockets. Idempotent."""
        if self._dead:
            return
        self._dead = True
        self.boundary_waiters, self.meter = (), None
        if self.reading:
            self._stop_reading()
            self.reading = False
        if not self.backlog.empty:
            self.backlog.stop()
        if self.blind is not None:
            self.blind.close()
            self.blind = None

    # --- event loop -------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        wanted = not self.halted and not self._dead and self.backlog.empty
        if wanted != self.reading:
            self.reading = wanted
            if wanted:
                self._read_on()
                if self._failing:
                    self.relay.loop.call_soon(self.drain_on_error)
            else:
                self._stop_reading()

    def _read_on(self) -> None:
        if self.blind is None:
            self.relay.poller.read(self.fd_in, self.readable)
        else:
            self.blind.read_on()

    def _stop_reading(self) -> None:
        if self.blind is None:
            self.relay.poller.unread(self.fd_in)
        else:
            self.blind.stop_reading()

    def drain_on_error(self) -> None:
        """The source has failed or is shut in both directions: read until the error or the end is seen."""
        self._failing = True
        for _ in range(_TURNS):
            before = self.total
            if not self.reading:
                return  # `_schedule` comes back here
            self.readable()
            if self.total == before:
                return
        self.relay.loop.call_soon(self.drain_on_error)

    # --- splicing ---------------------------------------------------------------------------------------------------

    def _crowded(self) -> None:
        """The stream is busy: go on unseen, but without a descriptor for another pipe as before."""
        with contextlib.suppress(OSError):
            self.splice_blindly(Position(self.rest, self.part))

    def splice_blindly(self, start: Position | None) -> None:
        """Start a blind splice. `start`: the source's position, None if unknown. Raises OSError if there is no pipe."""
        bounds = FrameBounds(self._tune[0] or ANY_SIZE, self._tune[1], LARGEST_HEADER if self.index else 0)
        self.blind = BlindSplice(self, bounds, start)
        self.record_position()

    def resynchronised(self, position: Position, method: int) -> None:
        """The blind splice is over at `position`; `method` is a Close or Close-Ok that ends there, else 0."""
        self.blind = None
        if position.boundary:
            self.last_method = method or self.last_method
            if self.last_method == codec.CLOSE_OK:
                # Somebody may be about to inject something behind it.
                self.relay.loop.call_soon(self.owner.flow_close_ok, self)
        self.profile.reset_peek()
        self.rest, self.part = position.rest, position.part
        self.record_position()

    # --- after a read, in `fastpath` and in `blind_splice` ----------------------------------------------------------

    def _first_large_frame(self) -> None:
        """A large frame has begun, the first one of this flow."""
        with contextlib.suppress(OSError):  # a source that failed is seen by who reads it
            widen_receive_window(self.source)

    def _too_large(self, size: int) -> None:
        # Its bytes stay unread, and the position is lost: the session ends.
        self.owner.flow_frame_too_large(self, size + 8)

    def _keep_staged(self, sent: int, got: int, error: OSError | None) -> None:
        """The sink is full, or failed with `error`: move the staged bytes to a pipe, where they outlive the process."""
        data = self.relay.read_area[sent:got]
        try:
            if error is None:
                self.backlog.take_staged(data)
            else:
                self.backlog.append(bytes(data))
        except OSError as lost:
            error = lost
        self._wait_for_sink(error)

    def keep_spliced(self, left: int, error: OSError | None = None) -> None:
        """The sink is full, or failed with `error`: keep the pool's last pipe, with `left` bytes, and read nothing
        until it is empty."""
        try:
            self.backlog.take_pipe(left)
        except OSError as lost:
            error = error or lost
        self._wait_for_sink(error)

    def _wait_for_sink(self, error: OSError | None = None) -> None:
        if error is not None:
            self.failed(False, error)
            return
        self.backlog.write_on(self)
        self._schedule()

    def drained(self) -> None:
        """The backlog is written."""
        self._schedule()
        self._run_boundary_waiters()

    def moved(self, count: int) -> None:
        """`count` bytes were read, and written or kept in a pipe."""
        if self.boundary_waiters:
            self._run_boundary_waiters()
        if self.meter is not None:
            self.meter(self, count)

    def _run_boundary_waiters(self) -> None:
        """Run the callbacks that wait for a boundary, if this is one."""
        while self.boundary_waiters and self.known_boundary():
            run, *others = self.boundary_waiters
            self.boundary_waiters = tuple(others)
            if run():
                self.halt()

    def ended(self) -> None:
        """End of stream at the source."""
        self.halt()
        self.owner.flow_ended(self)

    def failed(self, at_source: bool, error: OSError) -> None:
        """The source's or the sink's socket failed."""
        self.halted = True
        self._schedule()
        self.relay.loop.remove_writer(self.fd_out)
        self.owner.flow_failed(self, at_source, error)
