"""What a worker begins with."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from amqp_session_router.process.place import Place


@dataclass(frozen=True, slots=True)
class Start:
    """What a supervisor gives a new worker.

    A supervisor from before an upgrade gives the fields of its time, in this order and without names: a new one comes
    last, and needs a default.
    """

    path: str
    """The configuration's file."""
    drain: float
    """Seconds that sessions have to end after SIGTERM."""
    journal: int
    """The journal's descriptor."""
    line: socket.socket
    """Where a successor will ask."""
    kept: set[int]
    """The descriptors that belong to the supervisor."""
    recover: bool
    """The journal has the sessions of a process that died."""
    predecessor: socket.socket | None
    """Where a process that is still there is asked for its sessions."""
    store: int
    """The descriptor of the last good configuration."""
    place: Place
    """Which of several workers it is."""
    turn: int
    """Which of its two regions of the shared memory it uses."""
    stored: str = "[]"
    """The listeners that the service manager had kept, as JSON."""
