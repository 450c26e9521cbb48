"""What all flows of a process share, and how they splice."""

from __future__ import annotations

import array
import asyncio
import os

from amqp_session_router.failures import Failures
from amqp_session_router.journal import AHEAD, LOOK, WORDS, Journal
from amqp_session_router.light import Hold
from amqp_session_router.pipes import Pool

MOVE = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
MOVE_MORE = MOVE | os.SPLICE_F_MORE
"""More follows at once: no segment has to go half full."""
CHUNK = 1 << 20
"""What is asked for at once."""


class Plane:
    """What they share. `scratch` holds nothing from one callback to the next."""

    def __init__(self, loop: asyncio.AbstractEventLoop, journal: Journal | None = None) -> None:
        """`journal` has the cells and the hold, none where nobody would look for them."""
        self.loop = loop
        self.pool = Pool()
        self.scratch = memoryview(bytearray(AHEAD + LOOK)) if journal is None else journal.hold
        self.look = self.scratch[AHEAD:]
        self.nowhere = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        self.cells: memoryview = memoryview(array.array("Q", [0] * WORDS)) if journal is None else journal.cells
        self.hold = Hold(self.scratch, self.cells)
        self.failures = Failures(loop)

    def close(self) -> None:
        """Give everything back."""
        self.failures.close()
        self.pool.close()
        os.close(self.nowhere)
