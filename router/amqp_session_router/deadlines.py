"""Deadlines that hardly ever come: one timer for all that wait equally long, where each would have one of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class Deadline:
    """One call that is due; see `Deadlines.after`."""

    __slots__ = ("_act", "_arguments", "_when")

    def __init__(self, when: float, act: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._when = when
        self._act: Callable[..., object] | None = act
        self._arguments = arguments

    def when(self) -> float:
        """Return the loop's time at which it is due, in seconds."""
        return self._when

    @property
    def pending(self) -> bool:
        """Is it neither called nor cancelled?"""
        return self._act is not None

    def cancel(self) -> None:
        """Call nothing. Idempotent."""
        self._act, self._arguments = None, ()

    def fall(self) -> None:
        """Call it now, if it is pending."""
        act, arguments = self._act, self._arguments
        if act is not None:
            self.cancel()
            act(*arguments)


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[float, deque[Deadline]] = {}
        """By their length; a queue that is here has a timer."""

    def after(self, seconds: float, act: Callable[..., object], *arguments: Any) -> Deadline:
        """Call `act` with `arguments` after so many seconds, not earlier; for lengths of which there are few."""
        deadline = Deadline(self._loop.time() + seconds, act, arguments)
        queue = self._queues.get(seconds)
        if queue is None:
            queue = self._queues[seconds] = deque()
            self._loop.call_at(deadline.when(), self._due, seconds, queue)
        # Those of one length are due in the order in which they came.
        while queue and not queue[0].pending:
            queue.popleft()
        queue.append(deadline)
        return deadline

    def _due(self, seconds: float, queue: deque[Deadline]) -> None:
        now = self._loop.time()
        while queue and (not queue[0].pending or queue[0].when() <= now):
            deadline = queue.popleft()
            if deadline.pending:
                self._loop.call_soon(deadline.fall)
        if queue:
            self._loop.call_at(queue[0].when(), self._due, seconds, queue)
        else:
            del self._queues[seconds]
