"""Work that goes on in the background, of which each name has one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class NamedTasks:
    """Tasks by name."""

    def __init__(self, what: str) -> None:
        """`what`: begins the tasks' own names."""
        self._what = what
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Do `work`; what was begun by this name before ends."""
        self._end(name)
        task = self._tasks[name] = asyncio.create_task(work, name=f"{self._what} {name}")
        task.add_done_callback(lambda done: self._tasks.pop(name) if self._tasks.get(name) is done else None)

    def stop(self) -> None:
        """Do no more of it."""
        for name in [*self._tasks]:
            self._end(name)

    def _end(self, name: str) -> None:
        if (task := self._tasks.pop(name, None)) is not None:
            task.cancel()
