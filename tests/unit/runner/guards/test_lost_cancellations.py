"""A run that must end ends, also where a task of it was cancelled and did not hear of that."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from brokerdrill.base.errors import Unmet
from brokerdrill.runner.guards import guarded


async def deaf(times: int) -> str:
    """Go on after so many cancellations: `asyncio.wait_for` loses one that comes with what it waits for."""
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
    await asyncio.sleep(3600)
    return ""


async def says() -> str:
    return "a fault is gone"


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_task_that_misses_a_cancellation_holds_up_no_end(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    monkeypatch.setattr(guarded, "CANCELLED_AGAIN_S", 0.05)

    async def main() -> None:
        with pytest.raises(Unmet, match="abort: a fault is gone"):
            await guarded.guarded(deaf(times), [says(), deaf(times)])

    asyncio.run(asyncio.wait_for(main(), 20))
