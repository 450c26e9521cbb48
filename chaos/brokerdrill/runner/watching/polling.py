"""Polling: what all watches share that ask over and over while a run goes on, one loop for each that is asked."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import in_words


class PollingWatch(ABC):
    """Asks each of `names` until it is stopped. What it sees is written down from `record` on, not before."""

    # What is watched, for people.
    what: ClassVar[str]
    # Seconds from one question to the next, to the same one.
    period_s: ClassVar[float]

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._tasks: list[asyncio.Task[None]] = []
        # Since when what is seen is written down (controller's clock, ns); None: not yet.
        self._since_ns: int | None = None

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._watch(name)) for name in self._names]

    def record(self) -> int:
        """Write what is known now, and from here on every change. Returns since when (controller's clock, ns)."""
        self._since_ns = now_ns()
        self._write_known(self._since_ns)
        return self._since_ns

    async def stop(self) -> None:
        """Stop asking."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def failures(self) -> Iterator[str]:
        """Say what ended a loop before its time, a sentence each: what it asked for is not known any more."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                yield f"the watch of {self.what} failed: {in_words(error)}"

    async def _watch(self, name: str) -> None:
        while True:
            asked = now_ns()
            await self._ask(name, asked)
            await asyncio.sleep(max(0.0, self.period_s - (now_ns() - asked) / 1e9))

    @abstractmethod
    async def _ask(self, name: str, asked_ns: int) -> None:
        """Ask one of the names, at `asked_ns` (controller's clock), and write what changed."""

    @abstractmethod
    def _write_known(self, at_ns: int) -> None:
        """Write all that is known, as seen at `at_ns` (controller's clock)."""

    def _placed(self, asked_ns: int, before_ns: int) -> tuple[int, int] | None:
        """Return when a change came that the answer to the question of `asked_ns` shows and the one before, of
        `before_ns` (0: there was none), did not, and how uncertain that is (ns). None: nothing is written yet.

        The change lies between the earlier question and this answer. The question's time stands for it: an answer
        that was overtaken by the next change must not come after that change.
        """
        if self._since_ns is None:
            return None
        # What is asked before the beginning and answered after it is of the time since.
        at = max(asked_ns, self._since_ns)
        return at, max(at - (before_ns or asked_ns), now_ns() - at)
