"""The load's end waits for each address to be served again, as long as `available` may still be broken."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.runner import served_again, system
from brokerdrill.runner.served_again import until_served_again
from brokerdrill.runner.system import System
from brokerdrill.scenario.model import Scenario, parse

SCENARIO = """\
title: Served again
description: What it is for
load:
  addresses: [q, r]
method:
  - {type: action, name: kill, fault: kill, target: active}
abort: {duration: 100, drain: 10}
"""


class CountedLoad:
    """A load whose addresses have had so many successes each time that it is asked, the last answer for good."""

    def __init__(self, side: str, *answers: Mapping[str, int], failed: bool = False) -> None:
        self._side = side
        self._answers = iter(answers)
        self._last: Mapping[str, int] = {}
        self._failed = failed
        self.asked = 0

    def served(self, side: str) -> Mapping[str, int]:
        assert side == self._side
        self.asked += 1
        self._last = next(self._answers, self._last)
        return self._last

    def totals(self) -> None:
        if self._failed and self.asked > 1:
            raise InfrastructureError("worker w0 on load1 failed: no memory")


class Clock:
    """Time that passes by the second each time that it is asked for."""

    def __init__(self) -> None:
        self.now_s = 0

    def now_ns(self) -> int:
        self.now_s += 1
        return self.now_s * 10**9


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    ticking = Clock()
    monkeypatch.setattr(system, "now_ns", ticking.now_ns)
    monkeypatch.setattr(system, "POLL_S", 0.001)
    yield ticking


def waited(load: CountedLoad, unserved_s: Mapping[str, float]) -> str:
    """Wait for the addresses q and r; return what the console said."""
    said = io.StringIO()
    progress = Progress(Console(file=said, width=200))
    wanted: Any = load
    asyncio.run(until_served_again(unserved_s, ["q", "r"], wanted, System(progress), progress))
    return said.getvalue()


@pytest.mark.parametrize("side", ["send", "receive"])
def test_the_load_goes_on_until_each_address_had_another_success(clock: Clock, side: str) -> None:
    load = CountedLoad(side, {"q": 5}, {"q": 6}, {"q": 9}, {"q": 9, "r": 1})
    assert waited(load, {side: 60}) == ""
    assert load.asked == 4


def test_an_address_that_is_not_served_is_waited_for_longer_than_it_may_be_away(clock: Clock) -> None:
    assert "r: no success of send for 20 s" in waited(
        CountedLoad("send", {"q": 5, "r": 5}, {"q": 6, "r": 5}), {"send": 20}
    )
    assert clock.now_s > 20 + served_again.UNSERVED_MARGIN_S


def test_where_nothing_is_promised_nothing_is_waited_for(clock: Clock) -> None:
    load = CountedLoad("send")
    assert waited(load, {}) == "" and load.asked == 0


def test_a_worker_that_fails_ends_the_wait(clock: Clock) -> None:
    with pytest.raises(InfrastructureError, match="no memory"):
        waited(CountedLoad("send", {"q": 5}, failed=True), {"send": 60})


def scenario(*promises: str) -> Scenario:
    return parse(SCENARIO + f"promises: [no_loss{''.join(f', {one}' for one in promises)}]\n", Path("s.yml"))


def test_the_longest_bound_of_each_side_counts_and_the_run_may_last_as_much_longer() -> None:
    found = scenario(
        "{name: available, bound_ms: 20000}",
        "{name: available, bound_ms: 5000}",
        "{name: available, bound_ms: 30000, side: receive}",
    )
    assert found.unserved_s() == {"send": 20, "receive": 30}
    assert found.longest_s() == 100 + 30 + served_again.UNSERVED_MARGIN_S
    assert scenario().unserved_s() == {} and scenario().longest_s() == 100
