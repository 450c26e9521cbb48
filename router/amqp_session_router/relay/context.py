"""What all flows of a process share."""

from __future__ import annotations

import array
import asyncio
import os

from amqp_session_router.net.event_loop import EventLoop
from amqp_session_router.net.poller import Poller
from amqp_session_router.relay.fastpath import StagingBuffer
from amqp_session_router.relay.journal import HEADROOM, READ_SIZE, WORDS, Journal
from amqp_session_router.relay.pipes import PipePool


class RelayContext:
    """Shared by the flows of one event loop. The staging area holds nothing between callbacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, journal: Journal | None = None) -> None:
        """`journal`: has the cells and the staging area; None keeps them in private memory."""
        self.loop = loop
        self.pool = PipePool()
        self.staging_area = memoryview(bytearray(HEADROOM + READ_SIZE)) if journal is None else journal.staging
        self.read_area = self.staging_area[HEADROOM:]
        self.dev_null = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        self.cells: memoryview = memoryview(array.array("Q", [0] * WORDS)) if journal is None else journal.cells
        self.staging = StagingBuffer(self.staging_area, self.cells, self.pool.free)
        if not isinstance(loop, EventLoop):
            raise TypeError("the poller needs the router's own event loop")
        self.poller = Poller(loop)

    def close(self) -> None:
        """Release everything."""
        self.poller.close()
        self.pool.close()
        os.close(self.dev_null)
