"""The steady state: before the load all stores in sync and all routers' targets ready, under the load messages
acknowledged, after it the routers' targets ready again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import Unmet
from brokerdrill.base.progress import Progress
from brokerdrill.products.base import ManagementError, NotAllowed
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.system import POLL_S, System
from brokerdrill.scenario.model import SteadyState

SETTLE_DEADLINE_S = 120
ARRIVAL_S = 5
RECOVERY_S = 15
"""How long a router may take to have ready what is active; it looks every check-period, 5 s by default."""


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


async def routers_still_lacking(system: System) -> dict[str, list[str]]:
    """Return by router which active instances it does not have ready, and did not get ready within RECOVERY_S.

    A broker that a drill killed may never be ready again to an Artemis that leads clients to it (FINDINGS.md). Unless
    that one is restarted, the system is worse than the drill found it, and the next drill has fewer targets than it
    counts on.
    """
    end = now_ns() + int(RECOVERY_S * 1e9)
    while (lacking := system.lacking()) and now_ns() < end:
        await system.changes.wait(POLL_S)
    return lacking


async def restart_routers(lacking: Mapping[str, Sequence[str]], system: System, progress: Progress) -> None:
    """Restart the routers of `lacking`. Raises InfrastructureError where one does not start."""
    for name in lacking:
        item = system.instances[name]
        progress.step(f"restart {name}: {lacks({name: lacking[name]})}")
        await item.connection.sh(f"systemctl restart {quote(item.descriptor.unit or '')}", check=True, timeout=120)
