"""Guard of the load while it goes on: a run ends where nothing is acknowledged for too long, or it takes too long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import Unmet
from brokerdrill.base.progress import Progress
from brokerdrill.runner.load.control import LoadControl, Totals
from brokerdrill.runner.system import System

GUARD_PERIOD_S = 0.5
# A shorter delay is one transaction that takes its time.
BEHIND_SHOWN_S = 0.5


async def under_load(
    steps: Callable[[], Coroutine[Any, Any, None]],
    silence_s: float,
    longest_s: float,
    load: LoadControl,
    system: System,
    progress: Progress,
) -> None:
    """Let the load begin and take `steps` under it.

    Raises Unmet as soon as nothing is acknowledged for `silence_s` or load and method took `longest_s`,
    InfrastructureError as soon as a worker fails, and whatever `steps` raise; they have ended then.
    """
    deadline = asyncio.get_running_loop().time() + longest_s
    await load.begin()
    guard = asyncio.create_task(_guard(silence_s, load, system, progress))
    try:
        async with asyncio.timeout_at(deadline):
            taken = asyncio.create_task(steps())
            try:
                await asyncio.wait({taken, guard}, return_when=asyncio.FIRST_COMPLETED)
                if guard.done():
                    guard.result()
                await taken
            finally:
                taken.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await taken
    except TimeoutError:
        if asyncio.get_running_loop().time() < deadline:
            raise
        raise Unmet(f"abort: load and method took longer than {longest_s:.0f} s") from None
    finally:
        guard.cancel()


async def _guard(silence_s: float, load: LoadControl, system: System, progress: Progress) -> None:
    """Raise InfrastructureError when a worker fails, Unmet when nothing is acknowledged for too long."""
    best, since = -1, now_ns()
    while True:
        acknowledged = load.totals().sent_ok
        if acknowledged != best:
            best, since = acknowledged, now_ns()
        silent = (now_ns() - since) / 1e9
        if silent > silence_s:
            raise Unmet(f"abort: no send was acknowledged for {silent:.0f} s")
        progress.tick(status_line(load.totals(), system.roles))
        await system.changes.wait(GUARD_PERIOD_S)


def status_line(totals: Totals, roles: Mapping[str, str]) -> str:
    """Return what the console says while the load goes on; how far that is behind its rate where it cannot keep it."""
    known = "  ".join(f"{name} {role}" for name, role in sorted(roles.items()))
    behind = f"{totals.behind_s:.1f} s behind its rate  " if totals.behind_s >= BEHIND_SHOWN_S else ""
    unanswered = f"unanswered: {totals.sent_unknown} sends, {totals.received_unknown} receipts"
    return f"{totals.sent_ok} acknowledged  {totals.received} received  {unanswered}  {behind} {known}"
