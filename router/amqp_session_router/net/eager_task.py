"""Coroutines that run at once until they wait, and go on inside the call that brings what they waited for.

An asyncio.Task begins in the loop's next iteration and goes on in yet another one. Of the instructions that a
connection takes, the task and these iterations were 6 %. (From Python 3.12 on asyncio's tasks can begin at once, too.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Outcome(Generic[T]):
    """What one EagerTask waits for. Who waits goes on within `set`."""

    __slots__ = ("_value", "is_set", "waiting")

    _value: T

    def __init__(self) -> None:
        self.is_set = False
        self.waiting: EagerTask | None = None

    def set(self, value: T) -> None:
        """Set the value that is waited for; only the first counts."""
        if self.is_set:
            return
        self._value, self.is_set = value, True
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.go_on()

    def __await__(self) -> Generator[Outcome[T], None, T]:
        if not self.is_set:
            yield self
        return self._value


class EagerTask:
    """Runs `coroutine`, which returns nothing and raises nothing but CancelledError. It may wait for outcomes and for
    asyncio's futures. asyncio does not know it as the current task: what needs one (asyncio.timeout, for one) it awaits
    as a task of its own.
    """

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine: Coroutine[Any, Any, None] | None = coroutine
        self._waits_for: Outcome[Any] | asyncio.Future[Any] | None = None
        self.go_on()

    @property
    def done(self) -> bool:
        """Whether the coroutine has ended."""
        return self._coroutine is None

    def go_on(self, _: object = None) -> None:
        """Run on, until it waits again: what it waited for is there."""
        coroutine = self._coroutine
        if coroutine is None:
            return
        try:
            waits_for = coroutine.send(None)
        except BaseException as end:
            self._coroutine = self._waits_for = None
            if isinstance(end, StopIteration | asyncio.CancelledError):
                return
            raise
        self._waits_for = waits_for
        if isinstance(waits_for, Outcome):
            waits_for.waiting = self
        else:
            # As asyncio.Task does: the future was awaited by `await`, not iterated over by mistake.
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(self.go_on)

    def cancel(self) -> None:
        """Have what it waits for raise CancelledError, now; after which it must not wait again. Not for the coroutine
        itself. Idempotent."""
        coroutine, waits_for = self._coroutine, self._waits_for
        self._coroutine = self._waits_for = None
        if coroutine is None:
            return
        if isinstance(waits_for, Outcome):
            waits_for.waiting = None
        elif waits_for is not None:
            waits_for.remove_done_callback(self.go_on)
            waits_for.cancel()
        try:
            coroutine.throw(asyncio.CancelledError())
        except (StopIteration, asyncio.CancelledError):
            return
        coroutine.close()
        raise RuntimeError("a coroutine that was cancelled waits for something else")
