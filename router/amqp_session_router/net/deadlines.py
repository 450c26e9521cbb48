"""Deadlines that are nearly always cancelled: one timer for all of the same length instead of one each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class Deadline:
    """One pending call; see `Deadlines.after`."""

    __slots__ = ("_arguments", "_when", "act")

    def __init__(self, when: float, act: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._when = when
        self.act: Callable[..., object] | None = act
        """None: it is called or cancelled."""
        self._arguments = arguments

    def when(self) -> float:
        """Return when it is due, in seconds of the loop's clock."""
        return self._when

    def cancel(self) -> None:
        """Cancel the call. Idempotent."""
        self.act, self._arguments = None, ()

    def expire(self) -> None:
        """Call it now, if it is pending."""
        act, arguments = self.act, self._arguments
        if act is not None:
            self.cancel()
            act(*arguments)


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[float, deque[Deadline]] = {}
        """By length in seconds; each queue here has a timer."""

    def after(self, seconds: float, act: Callable[..., object], *arguments: Any) -> Deadline:
        """Call `act` with `arguments` after `seconds`, not earlier. For a small number of distinct lengths."""
        deadline = Deadline(self._loop.time() + seconds, act, arguments)
        queue = self._queues.get(seconds)
        if queue is None:
            queue = self._queues[seconds] = deque()
            self._loop.call_at(deadline.when(), self._due, seconds, queue)
        # Deadlines of one length are due in the order in which they were set.
        while queue and queue[0].act is None:
            queue.popleft()
        queue.append(deadline)
        return deadline

    def _due(self, seconds: float, queue: deque[Deadline]) -> None:
        now = self._loop.time()
        while queue and (queue[0].act is None or queue[0].when() <= now):
            deadline = queue.popleft()
            if deadline.act is not None:
                self._loop.call_soon(deadline.expire)
        if queue:
            self._loop.call_at(queue[0].when(), self._due, seconds, queue)
        else:
            del self._queues[seconds]
