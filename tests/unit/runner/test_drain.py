"""The drain: what it says of addresses that it does not see empty."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.base.clock import ClockOffset
from brokerdrill.base.progress import Progress
from brokerdrill.products.base import ManagementError, QueueCounts
from brokerdrill.runner.drain import drain

EMPTY = QueueCounts(0, 0, 0, 9)
STUCK = QueueCounts(10, 10, 0, 9)


class Broker:
    """An active broker with these counts, looked at again and again; a ManagementError is what it answers."""

    def __init__(
        self, name: str, counts: Mapping[str, QueueCounts] | ManagementError, prepared: tuple[str, ...] = ()
    ) -> None:
        self.descriptor = SimpleNamespace(instance=name)
        self.management = self
        self._counts = counts
        self._prepared = prepared

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        if isinstance(self._counts, ManagementError):
            raise self._counts
        return self._counts

    async def prepared(self) -> Collection[str]:
        return self._prepared

    async def in_transit(self) -> int:
        return 0


class Load:
    """A load whose producers stop and whose consumers close at once; `steps` says when its worker was asked what."""

    def __init__(self, steps: list[str] | None = None) -> None:
        self.steps = [] if steps is None else steps
        self.workers = self.living = [self]
        self.clock_name, self.connection = "worker-0", SimpleNamespace(name="load1")

    async def _done(self, *_: Any, **__: Any) -> None:
        pass

    stop_producers = all_reach = _done

    async def measured_clock(self) -> ClockOffset:
        self.steps.append("clock")
        return ClockOffset()

    async def stop(self, *_: Any) -> None:
        self.steps.append("stop")

    def totals(self) -> Any:
        return SimpleNamespace(sent_ok=9, received=9, received_unknown=0)


def drained(
    *brokers: Broker,
    served: bool = True,
    prepared_before: frozenset[str] = frozenset(),
    steps: list[str] | None = None,
) -> tuple[dict[str, bool], str]:
    """Return what the drain says of the addresses q and r, and its words on the console."""
    said = io.StringIO()
    system: Any = SimpleNamespace(
        served=lambda: served,
        active_brokers=lambda: brokers,
        descriptors=list,
        prepared_before=prepared_before,
        brokers=lambda: brokers,
    )
    events: Any = SimpleNamespace(write=lambda *_, **__: None, base_ns=0)
    load: Any = Load(steps)
    found = asyncio.run(drain(["q", "r"], 0.01, load, system, events, Progress(Console(file=said, width=500))))
    return found, said.getvalue()


@pytest.mark.parametrize(
    ("brokers", "served", "empty", "words"),
    [
        ([Broker("b1", {"q": STUCK, "r": EMPTY})], True, {"q": False, "r": True}, "q: 10 messages, 10 handed out, 0"),
        ([Broker("b1", {"q": EMPTY})], True, {"q": True, "r": False}, "r: no such address at b1"),
        (
            [Broker("b1", {"q": EMPTY, "r": EMPTY}), Broker("b2", {"q": EMPTY, "r": EMPTY}, prepared=("t1", "t2"))],
            True,
            {"q": False, "r": False},
            "q: 2 transactions prepared at b2; r: 2 transactions prepared at b2",
        ),
        ([Broker("b1", ManagementError("gone"))], True, {"q": False, "r": False}, "q: b1 does not say: gone"),
        ([], False, {"q": False, "r": False}, "q: not every store is served"),
    ],
)
def test_what_is_left_is_said(brokers: list[Broker], served: bool, empty: dict[str, bool], words: str) -> None:
    found, said = drained(*brokers, served=served)
    assert found == empty
    assert f"not drained within 0 s: {words}" in said


def test_what_is_empty_is_drained() -> None:
    found, said = drained(Broker("b1", {"q": EMPTY, "r": EMPTY}))
    assert found == {"q": True, "r": True} and "not drained" not in said


def test_the_clocks_are_read_for_the_last_time_before_the_workers_stop() -> None:
    steps: list[str] = []
    drained(Broker("b1", {"q": EMPTY, "r": EMPTY}), steps=steps)
    assert steps == ["clock", "stop"]


def test_a_transaction_that_was_prepared_before_the_run_is_not_waited_for() -> None:
    broker = Broker("b1", {"q": EMPTY, "r": EMPTY}, prepared=("old",))
    assert drained(broker, prepared_before=frozenset({"old"}))[0] == {"q": True, "r": True}
    assert drained(broker, prepared_before=frozenset({"other"}))[0] == {"q": False, "r": False}
