"""The load's end: not before each address was served again, or has not been for longer than `available` allows.

A load that ends earlier cuts off the span for which an address is not served, and nobody can say whether it would have
been longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from brokerdrill.base.errors import Unmet
from brokerdrill.base.progress import Progress
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.system import System
from brokerdrill.scenario.promised import UNSERVED_MARGIN_S


async def until_served_again(
    unserved_s: Mapping[str, float], addresses: Sequence[str], load: LoadControl, system: System, progress: Progress
) -> None:
    """Wait until each of `addresses` has had one more success of each side in `unserved_s`, or that side's seconds are
    over; say which have not. Raises InfrastructureError where a worker has failed."""

    async def of(side: str, limit_s: float) -> None:
        before = load.served(side)

        def unserved() -> list[str]:
            load.totals()  # raises where a worker has failed
            now = load.served(side)
            return [name for name in addresses if now.get(name, 0) <= before.get(name, 0)]

        try:
            await system.until(lambda: not unserved(), limit_s + UNSERVED_MARGIN_S, "")
        except Unmet:
            progress.step(f"{', '.join(unserved())}: no success of {side} for {limit_s:.0f} s")

    await asyncio.gather(*(of(side, limit_s) for side, limit_s in unserved_s.items()))
