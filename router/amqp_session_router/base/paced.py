"""Long work of the event loop's thread in steps: between two of them other events are handled.

Such work is a generator that yields at places where anything may happen meanwhile, and returns its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]

_SLICE = 0.002
"""Seconds of work until other events are handled."""
_STRIDE = 32


def now(work: Steps[T]) -> T:
    """Return the result of `work`, done in one go."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Hold the garbage collector off: what long work makes for itself would have it look at all sessions, in one go.
    Work that begins meanwhile does not prolong it, so that work without end does not hold it off for ever."""
    held = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if held:
            gc.enable()


async def paced(work: Steps[T]) -> T:
    """Return the result of `work`; after each slice of it the event loop goes round."""
    with _no_collection():
        begin = time.perf_counter()
        while True:
            try:
                next(work)
            except StopIteration as end:
                return end.value
            if time.perf_counter() - begin > _SLICE:
                await asyncio.sleep(0)
                begin = time.perf_counter()


def strides(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield `items`, as they are now, some at a time: what happens between two of a stride's items is one step."""
    every = list(items)
    for at in range(0, len(every), _STRIDE):
        yield every[at : at + _STRIDE]
