"""The steady state: before the load all stores in sync and all routers' targets ready; under the load, messages
acknowledged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import Unmet
from brokerdrill.base.progress import Progress
from brokerdrill.products.base import ManagementError, NotAllowed
from brokerdrill.runner.changes import POLL_S
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.system import System
from brokerdrill.scenario.model import SteadyState

SETTLE_DEADLINE_S = 120
ARRIVAL_S = 5


async def settle(system: System, addresses: Sequence[str], progress: Progress) -> None:
    """Wait until the topology is in sync, its routers have ready what is active, and who serves `addresses` says what
    is in them. Raises Unmet after SETTLE_DEADLINE_S, NotAllowed at once."""
    progress.step("wait until every store has one active instance and the others are in sync")
    end = now_ns() + int(SETTLE_DEADLINE_S * 1e9)
    while True:
        await system.until(system.in_sync, SETTLE_DEADLINE_S, "the topology was not in sync")
        try:
            await _until_led(system, end)
            await _until_arrived(system, progress)
            for management in system.active():
                await management.counts(addresses)
            return
        except NotAllowed:
            raise
        except ManagementError:
            # A primary that came back is in sync for a moment before it takes its role back: no broker answers then.
            if now_ns() > end:
                raise
        await system.changes.wait(POLL_S)


async def _until_led(system: System, end_ns: int) -> None:
    """Wait until all routers that are active have ready what is active: with fewer targets than it takes for granted a
    drill breaks nothing, or finds nobody who serves. Raises Unmet at `end_ns` (controller's clock)."""
    while lacking := system.lacking():
        if now_ns() > end_ns:
            raise Unmet(f"{lacks(lacking)}; a router takes up again what it has lost when it is restarted")
        await system.changes.wait(POLL_S)


def lacks(lacking: Mapping[str, Sequence[str]]) -> str:
    """Say which routers do not have which active instances ready."""
    return "; ".join(f"{router} does not have {', '.join(missing)} ready" for router, missing in lacking.items())


async def _until_arrived(system: System, progress: Progress) -> None:
    """Give what is on its way between the instances time to arrive where it can be taken away; what does not is said:
    it may arrive during the run."""
    end = now_ns() + int(ARRIVAL_S * 1e9)
    while left := sum([await management.in_transit() for management in system.active()]):
        if now_ns() > end:
            progress.step(
                f"{left} messages of an earlier run wait between the instances, and may arrive during this one"
            )
            return
        await system.changes.wait(POLL_S)


async def until_steady(steady: SteadyState, system: System, load: LoadControl) -> None:
    """Wait until the load is served and all stores are in sync. Raises Unmet when that takes too long."""
    await system.until(
        lambda: load.totals().sent_ok >= steady.acknowledged and system.in_sync(), steady.timeout, "no steady state"
    )
