"""Guard of the faults in effect: a host's own firewall, service manager or operator may have undone one.

A fault that is gone before its heal ends the drill: what came after it says nothing of the promises.
"""

from __future__ import annotations

import asyncio
import contextlib

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import BrokerdrillError
from brokerdrill.faults.executor import AppliedChange
from brokerdrill.ledger.contract import FAULT_GONE
from brokerdrill.runner.live_run import LiveRun

LOOK_PERIOD_S = 2.0
# A host that takes longer is skipped this time, so that the others are still looked at.
ANSWER_S = 5.0


async def until_fault_undone(run: LiveRun) -> str:
    """Wait until a fault is not in effect any more that nobody here has healed, write that down, and say it. A host
    that does not answer says nothing of its faults."""
    missing: set[str] = set()
    while True:
        looked_at = run.executor.in_effect()
        found = await asyncio.gather(*(_is_absent(run, item) for item in looked_at))
        absent = [item for item, gone in zip(looked_at, found, strict=True) if gone]
        # Ask twice: the check may be slow, or the host about to heal the fault.
        for item in absent:
            if item.fault_id in missing and await _is_unhealed(run, item):
                return _said(run, item)
        missing = {item.fault_id for item in absent}
        await asyncio.sleep(LOOK_PERIOD_S)


async def _is_absent(run: LiveRun, item: AppliedChange) -> bool:
    change = item.change
    with contextlib.suppress(BrokerdrillError, TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            return (await run.executor.host(change).sh(change.lasting or change.verify)).rc == 1
    return False


async def _is_unhealed(run: LiveRun, item: AppliedChange) -> bool:
    """Whether the host's safety kernel still holds the fault, and neither the run nor the host is about to heal it."""
    held = []
    with contextlib.suppress(BrokerdrillError, TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            held = (await run.executor.host(item.change).kernel("status"))["faults"]
    open_ones = {record["fault"] for record in held if not record["by"]}
    return item.fault_id in open_ones and any(item.fault_id == one.fault_id for one in run.executor.in_effect())


def _said(run: LiveRun, item: AppliedChange) -> str:
    change = item.change
    said = f"fault {item.fault_id} on {change.target} is gone, and nobody here healed it; what follows proves nothing"
    with contextlib.suppress(BrokerdrillError):
        run.events.write(
            "note",
            at_ns=now_ns(),
            target=change.target,
            instance=change.instance,
            store=change.store,
            name=FAULT_GONE,
            value=item.fault_id,
        )
    return said
