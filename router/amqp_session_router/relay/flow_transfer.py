"""Takes a flow from one process of the router to the next: its state, as a message of the hand-over has it, and its
pipe."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from amqp_session_router.net.socket_options import wake_for_any_byte
from amqp_session_router.relay.pipes import Pipe
from amqp_session_router.relay.splice_flow import SpliceFlow


class FlowState(NamedTuple):
    """One direction that stands still."""

    rest: int | None
    """Bytes left of the current frame; None: nobody knows."""
    part: bytes = b""
    """Behind a boundary: the first bytes of an incomplete header."""
    total: int = 0
    """Bytes read."""
    last_method: int = 0
    """Class and method of the last method frame on channel 0."""
    blocked: bool = False
    """The last of Connection.Blocked and Unblocked is Blocked."""
    left: int = 0
    """Bytes in its pipe."""
    outbox: bytes = b""
    """Bytes behind those, which are in no pipe."""

    def message(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return self._asdict() | {"part": self.part.hex(), "outbox": self.outbox.hex()}


def flow_state(message: Mapping[str, Any]) -> FlowState:
    """Return the state in a message. Another version of the router may have left something out."""
    return FlowState(
        rest=message["rest"],
        part=bytes.fromhex(message.get("part", "")),
        total=message.get("total", 0),
        last_method=message.get("last_method", 0),
        blocked=message.get("blocked", False),
        left=message["left"],
        outbox=bytes.fromhex(message.get("outbox", "")),
    )


def export_flow(flow: SpliceFlow) -> tuple[FlowState, Pipe | None]:
    """Stop the flow; return its state for another process, and the pipe in use."""
    if flow.blind is not None:
        flow.blind.resynchronise()
    backlog, pipe = flow.backlog, flow.backlog.hand_over()
    state = FlowState(
        rest=None if flow.blind is not None else flow.rest,
        part=flow.part,
        total=flow.total,
        last_method=flow.last_method,
        blocked=flow.blocked,
        left=backlog.left,
        outbox=backlog.outbox,
    )
    flow.stop()
    return state, pipe


def import_flow(flow: SpliceFlow, state: FlowState, pipe: Pipe | None) -> None:
    """Let a new flow continue from the state of another process's, and the pipe with `left` bytes."""
    with contextlib.suppress(OSError):
        # That process may have been killed while it widened the window.
        wake_for_any_byte(flow.source)
    flow.total, flow.last_method, flow.blocked = state.total, state.last_method, state.blocked
    flow.backlog.restore(state.left, state.outbox, pipe)
    if not flow.backlog.empty:
        flow.backlog.write_on(flow)
    if state.rest is None:
        flow.splice_blindly(None)
    else:
        flow.rest, flow.part = state.rest, state.part
        flow.record_position()
