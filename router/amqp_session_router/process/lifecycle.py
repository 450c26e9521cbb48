"""What the supervisor does when a worker ends: a table, without I/O.

A worker is STARTING until it owns anything, TAKING_OVER while a predecessor gives it sessions, then SERVING (see
`journal.PROGRESS`). Imports nothing that a new version replaces: the supervisor loads it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from amqp_session_router.relay.journal import STARTING

ASKED_TO_LEAVE = 0


class Step(enum.Enum):
    """What to do next."""

    END = enum.auto()
    """Leave, with the worker's exit status."""
    START = enum.auto()
    """Start a worker that begins with nothing."""
    RECOVER = enum.auto()
    """Start a worker that finds sessions and listeners in the journal; it goes on taking from a living predecessor."""
    FALL_BACK = enum.auto()
    """The predecessor has given nothing away: it goes on, and its keeper with it."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of the newest worker."""

    progress: int
    status: int | None
    """Its exit status; None: a signal ended it."""
    predecessor: bool
    """Whether a predecessor is alive that has not been asked to leave."""
    protected: bool
    """Whether the supervisor shares its table of descriptors."""
    served: bool
    """Whether any worker has served before: then the router does not end for a worker that cannot start."""


def after(death: Death) -> Step:
    """Return what to do after `death`."""
    if death.status == ASKED_TO_LEAVE:
        return Step.END
    if death.progress == STARTING:
        if death.predecessor:
            return Step.FALL_BACK
        return Step.END if death.status is not None and not death.served else Step.START
    return Step.RECOVER if death.protected else Step.START
