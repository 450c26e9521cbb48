"""The workers' clocks while a run goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerdrill.base.clock import ClockOffset, now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts.channels import CommandEnd
from brokerdrill.ledger.events import FILE, EventWriter
from brokerdrill.runner.live_run import LiveRun
from brokerdrill.runner.load import clocks
from brokerdrill.runner.load import worker as worker_module
from brokerdrill.runner.load.worker import Worker


class Drifting:
    """A worker whose clock loses 1 ms between two measurements, and which once does not answer."""

    def __init__(self) -> None:
        self.clock_name, self.connection = "worker-0", SimpleNamespace(name="load1")
        self.measured = 0

    async def measured_clock(self) -> ClockOffset:
        self.measured += 1
        if self.measured == 2:
            raise InfrastructureError("worker worker-0 does not answer")
        return ClockOffset(5_000_000 + self.measured * 1_000_000, 70)


def test_clocks_are_measured_through_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "PERIOD_S", 0.01)
    worker = Drifting()

    async def main() -> int:
        events = EventWriter(tmp_path, "run", base_ns := now_ns())
        load = SimpleNamespace(living=[worker], begun=False)
        task = asyncio.ensure_future(clocks.measure_clocks(cast(LiveRun, SimpleNamespace(load=load, events=events))))
        await asyncio.sleep(0.05)
        assert worker.measured == 0, "two measurements at a time would take one another's answers"
        load.begun = True
        async with asyncio.timeout(20):
            while worker.measured < 4:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        events.close()
        return base_ns

    base_ns = asyncio.run(main())
    rows: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "events" / FILE).read_text().splitlines()]
    assert {(row["kind"], row["name"], row["target"]) for row in rows} == {("clock", "worker-0", "load1")}
    offsets = [int(row["detail"]["offset_ns"]) + base_ns for row in rows]
    assert offsets[:2] == [6_000_000, 8_000_000], "as in run.json, and the one without an answer left out"
    assert {row["detail"]["uncertainty_ns"] for row in rows} == {"70"}


def test_one_that_takes_its_time_keeps_no_other_waiting(tmp_path: Path) -> None:
    """The last readings are on the way of the drain."""

    class Slow(Drifting):
        async def measured_clock(self) -> ClockOffset:
            await asyncio.sleep(0.3)
            raise InfrastructureError("worker worker-0 does not answer")

    async def main() -> float:
        events = EventWriter(tmp_path, "run", now_ns())
        begun = asyncio.get_running_loop().time()
        await clocks.write_clocks(cast(Any, [*(Slow() for _ in range(50)), Drifting()]), events)
        events.close()
        return asyncio.get_running_loop().time() - begun

    assert asyncio.run(main()) < 50 * 0.3, "not one after the other"
    assert len((tmp_path / "events" / FILE).read_text().splitlines()) == 1


class Line:
    """A worker's pipe: what it was told, and what it says."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.says: asyncio.Queue[str | None] = asyncio.Queue()

    async def write(self, line: str) -> None:
        self.told.append(json.loads(line))

    async def lines(self) -> AsyncIterator[str]:
        while (line := await self.says.get()) is not None:
            yield line

    async def ending(self) -> CommandEnd:
        return CommandEnd("it ended")


def test_a_worker_that_answers_too_late_is_listened_to_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither ends its late answer the reading, nor is it taken for one to the next question."""
    monkeypatch.setattr(worker_module, "PONG_S", 0.1)
    monkeypatch.setattr(worker_module, "CLOCK_SAMPLES", 1)

    async def main() -> ClockOffset:
        line = Line()
        worker = Worker("w", cast(Any, SimpleNamespace(name="load1")), "w", "/s", cast(Any, line))
        worker.reader = asyncio.ensure_future(worker.read(lambda: None))
        with pytest.raises(InfrastructureError, match="worker w does not answer"):
            await worker.measured_clock()
        measuring = asyncio.ensure_future(worker.measured_clock())
        while len(line.told) < 2:
            await asyncio.sleep(0)
        for asked, clock_ns in zip(line.told, (1, now_ns()), strict=True):
            line.says.put_nowait(json.dumps({"event": "pong", "n": asked["n"], "clock_ns": clock_ns}))
        found = await measuring
        assert not worker.reader.done()
        line.says.put_nowait(None)
        await worker.reader
        return found

    assert abs(asyncio.run(main()).offset_ns) < 10**9
