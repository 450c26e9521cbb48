"""Guards of what the runner must have in its hands: its lease of the hosts, and its view of the drilled system."""

from __future__ import annotations

import asyncio

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.runner.live_run import LiveRun

PERIOD_S = 0.1


async def until_lease_lost(run: LiveRun) -> str:
    """Wait until a host is not this run's any more, or has healed what this run broke as it heard nothing of it."""
    executor = run.executor
    while not executor.lease.lost and not executor.silenced:
        await asyncio.sleep(PERIOD_S)
    if executor.lease.lost:
        raise InfrastructureError(executor.lease.lost)
    return f"hosts heard nothing of this run for {executor.lease.request.silent_s:g} s, and healed {executor.silenced}"


async def until_watch_failed(run: LiveRun) -> str:
    """Wait until a watch of the drilled system has ended before its time: the roles that steps go by may be old."""
    while not (failed := run.system.failed_watches()):
        await asyncio.sleep(PERIOD_S)
    raise InfrastructureError("; ".join(failed))
