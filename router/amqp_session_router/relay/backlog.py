"""What the sink of a flow has not taken yet.

First the bytes in a pipe, which outlive the process (the journal's cell says which pipe it is), behind them those that
are only in this process's memory. The flow reads nothing until all are written.
"""

from __future__ import annotations

import os
from typing import Protocol

from amqp_session_router.base.native import transmit
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.interfaces import BlindMover
from amqp_session_router.relay.pipes import MOVE, Pipe


class BackloggedFlow(Protocol):
    """A flow, as its backlog sees it."""

    blind: BlindMover | None

    def drained(self) -> None:
        """The backlog is written."""

    def failed(self, at_source: bool, error: OSError) -> None:
        """The sink has failed, if not `at_source`."""


class Backlog:
    """The unwritten bytes of one flow, in order. `left`: bytes in `pipe`; `outbox`: bytes behind them; `empty`: whether
    there are none of either."""

    __slots__ = ("_cell", "_fd", "_relay", "empty", "left", "outbox", "pipe")

    def __init__(self, relay: RelayContext, fd: int, cell: int) -> None:
        """`fd`: the sink; `cell`: index of the flow's cell for its pipe."""
        self._relay = relay
        self._fd = fd
        self._cell = cell
        self.empty = True
        self.pipe: Pipe | None = None
        self.left = 0
        self.outbox = b""

    def append(self, data: bytes) -> None:
        """Put `data` behind all that waits already."""
        self.outbox += data
        self.empty = False

    def take_pipe(self, left: int) -> None:
        """Keep the pool's last pipe, with `left` bytes. Raises OSError, with the bytes lost, if there is no other."""
        self.pipe = self._relay.pool.acquire()
        self.left, self.empty = left, False
        self._relay.cells[self._cell] = self.pipe.ends

    def take_staged(self, data: memoryview) -> None:
        """Move staged bytes to a pipe; what does not fit there stays in this process's memory. Raises OSError."""
        wrote = os.write(self._relay.pool.free[-1].write, data)
        if wrote < len(data):
            self.append(bytes(data[wrote:]))
        self.take_pipe(wrote)

    def restore(self, left: int, outbox: bytes, pipe: Pipe | None) -> None:
        """Go on with what another process had, `left` bytes of it in `pipe`."""
        self.left, self.outbox = left, outbox
        self.empty = not left and not outbox
        if pipe is not None:
            self.pipe = pipe
            self._relay.cells[self._cell] = pipe.ends

    def write_on(self, flow: BackloggedFlow) -> None:
        """Write whenever the sink takes more, until `flow.drained`, `flow.failed` or `stop`."""
        self._relay.loop.add_writer(self._fd, self._writable, flow)

    def _writable(self, flow: BackloggedFlow) -> None:
        try:
            written = self._write(flow.blind)
        except BlockingIOError:
            return
        except OSError as error:
            flow.failed(False, error)
            return
        if written:
            self._relay.loop.remove_writer(self._fd)
            flow.drained()

    def _write(self, blind: BlindMover | None) -> bool:
        """Write what the sink takes, through the blind splice if there is one; returns whether that was all."""
        if self.left:
            assert self.pipe is not None
            if blind is None:
                self.left -= os.splice(self.pipe.read, self._fd, self.left, flags=MOVE)
            else:
                self.left = blind.flush(self.pipe, self.left)
            if self.left:
                return False
            self._relay.cells[self._cell] = 0
            self._release()
        if self.outbox:
            self.outbox = self.outbox[transmit(self._fd, self.outbox) :]
        self.empty = not self.outbox
        return self.empty

    def stop(self) -> None:
        """Write no more; what is left is lost."""
        self._relay.loop.remove_writer(self._fd)
        self._release()

    def _release(self) -> None:
        if self.pipe is not None:
            self._relay.pool.release(self.pipe, not self.left)
            self.pipe = None

    def hand_over(self) -> Pipe | None:
        """Return the pipe, which is another process's from now on."""
        pipe, self.pipe = self.pipe, None
        return pipe
