"""Work that ends early as soon as one of its guards says why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

from brokerdrill.base.errors import InfrastructureError, Unmet, in_words

# A task that was cancelled may have to undo what it began; one that has not ended by then is cancelled again.
CANCELLED_AGAIN_S = 30.0

T = TypeVar("T")


async def guarded(work: Coroutine[Any, Any, T], guards: Iterable[Awaitable[str]]) -> T:
    """Return what `work` returns. After `work` was cancelled and has ended, raises Unmet as soon as one of `guards`
    says why it must end, InfrastructureError as soon as a guard fails."""
    working = asyncio.ensure_future(work)
    guarding = [asyncio.ensure_future(guard) for guard in guards]
    try:
        await asyncio.wait([working, *guarding], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        said = next(guard for guard in guarding if guard.done())
        if failure := said.exception():
            raise InfrastructureError(f"abort: {in_words(failure)}")
        raise Unmet(f"abort: {said.result()}")
    finally:
        await ended({working, *guarding})


async def ended(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel `tasks`, and again what has not ended by then: a cancellation is lost where it comes at the same moment as
    what the task waits for (asyncio.wait_for of Python 3.11)."""
    left = tasks
    while left := {task for task in left if not task.done()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCELLED_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
