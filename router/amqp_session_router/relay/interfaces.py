"""The interfaces between flows, their blind splice and the session that owns them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from amqp_session_router.relay.pipes import Pipe


class Flow(Protocol):
    """One direction of a session, as the session sees it; `splice_flow.SpliceFlow` documents each member."""

    index: int
    total: int
    last_method: int
    meter: Callable[[Flow, int], None] | None
    halted: bool
    blocked: bool

    def start(self) -> None: ...
    def halt(self) -> None: ...
    def heed(self, every: bool) -> None: ...
    def at_boundary(self, run: Callable[[], bool]) -> None: ...
    def inject(self, data: bytes) -> None: ...
    def feed(self, data: bytes) -> None: ...
    def known_boundary(self) -> bool: ...
    def stop(self) -> None: ...

    @property
    def clear(self) -> bool: ...
    @property
    def boundary_awaited(self) -> bool: ...
    @property
    def unproven(self) -> bool: ...


class FlowOwner(Protocol):
    """The session, as its flows see it. Everything is called from the event loop."""

    def flow_ended(self, flow: Flow) -> None:
        """End of stream at the source, and everything was written."""

    def flow_failed(self, flow: Flow, at_source: bool, error: OSError) -> None:
        """One side's socket failed."""

    def flow_frame_too_large(self, flow: Flow, size: int) -> None:
        """The source sent a frame above the negotiated frame_max; it was not forwarded."""

    def flow_close_ok(self, flow: Flow) -> None:
        """The source sent a Close-Ok, written as far as the sink takes it. Not called by flows with TLS."""

    def flow_alarmed(self, flow: Flow) -> None:
        """The source sent a Blocked or an Unblocked (`flow.blocked`), written as far as the sink takes it."""


class BlindMover(Protocol):
    """A blind splice in progress, as its flow sees it."""

    def read_on(self) -> None: ...
    def stop_reading(self) -> None: ...
    def readable(self) -> None: ...
    def flush(self, pipe: Pipe, count: int) -> int: ...
    def resynchronise(self) -> None: ...
    def close(self) -> None: ...
