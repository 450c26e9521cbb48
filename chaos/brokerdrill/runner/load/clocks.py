"""The workers' clocks, measured again and again: the two that a run begins with drift apart while it goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.evidence import OFFSET, UNCERTAINTY
from brokerdrill.runner.live_run import LiveRun
from brokerdrill.runner.load.worker import Worker

# A clock that is off by 100 parts in a million, more than quartz is, drifts half a millisecond meanwhile.
PERIOD_S = 5.0


async def measure_clocks(run: LiveRun) -> str:
    """Measure the clock of each worker of a load that has begun every PERIOD_S until cancelled, and write it down. One
    that does not answer leaves a gap."""
    while True:
        if run.load.begun:
            await write_clocks(run.load.living, run.events)
        await asyncio.sleep(PERIOD_S)


async def write_clocks(workers: Iterable[Worker], events: EventWriter) -> None:
    """Measure the clocks of `workers`, all at once, and write them down, but for those that do not answer: one that
    takes its time keeps nobody waiting for longer than that."""

    async def measured(worker: Worker) -> None:
        with contextlib.suppress(InfrastructureError):
            await write_clock(worker, events)

    await asyncio.gather(*map(measured, workers))


async def write_clock(worker: Worker, events: EventWriter) -> None:
    """Measure the clock of `worker` and write it down. Raises InfrastructureError where that fails."""
    clock = await worker.measured_clock()
    detail = {OFFSET: str(clock.offset_ns - events.base_ns), UNCERTAINTY: str(clock.uncertainty_ns)}
    events.write("clock", at_ns=now_ns(), target=worker.connection.name, name=worker.clock_name, detail=detail)
