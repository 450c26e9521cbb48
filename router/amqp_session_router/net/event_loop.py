"""The event loop of a router's process: asyncio's own, which waits in the poller.

What is there for asyncio is one event of the poller's epoll. The other way round, with the poller's epoll inside of the
loop's, each message costs one more system call and wakes two of them: 7 % of it at one session.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import time
from collections.abc import Callable, Coroutine, Sized
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
Wait = Callable[[float | None, Sized, Sized], bool]
"""Wait at most so many seconds (None: for ever), not longer than until the second or the third is not empty; return
whether there is something for asyncio's selector."""


class _Selector(selectors.EpollSelector):
    """asyncio's, which somebody may wait for."""

    wait: Wait | None = None
    ready: Sized = ()

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[float] = []
        """Those that were set since the loop reckoned how long to wait."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.wait is None:
            return super().select(timeout)
        self.timers.clear()
        return super().select(0) if self.wait(timeout, self.ready, self.timers) else []


class EventLoop(asyncio.SelectorEventLoop):
    """An event loop for one poller."""

    _ready: Sized
    # asyncio's own is a Python function around this one.
    time = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._waited_for = _Selector()
        super().__init__(self._waited_for)
        # The callbacks that are due. asyncio does not announce them, so the wait looks here and returns for them.
        self._waited_for.ready = self._ready

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio. One that is set while the loop waits may be due before it would return."""
        self._waited_for.timers.append(when)
        return super().call_at(when, callback, *args, context=context)

    def wait_by(self, wait: Wait | None) -> int:
        """Have `wait` do the waiting, None: do it again oneself. Returns the descriptor of asyncio's epoll, which can
        be read when there is something for it."""
        self._waited_for.wait = wait
        return self._waited_for.fileno()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in an event loop of its own and return its result."""
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        return runner.run(main)
