"""The workers' clocks while a run goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerdrill.base.clock import Clock, now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.ledger.events import FILE, EventWriter
from brokerdrill.runner import clocks
from brokerdrill.runner.watches import Watched


class Drifting:
    """A worker whose clock loses 1 ms between two measurements, and which once does not answer."""

    def __init__(self) -> None:
        self.clock_name, self.connection = "worker-0", SimpleNamespace(name="load1")
        self.measured = 0

    async def measured_clock(self) -> Clock:
        self.measured += 1
        if self.measured == 2:
            raise InfrastructureError("worker worker-0 does not answer")
        return Clock(5_000_000 + self.measured * 1_000_000, 70)


def test_clocks_are_measured_through_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "PERIOD_S", 0.01)
    worker = Drifting()

    async def main() -> int:
        events = EventWriter(tmp_path, "run", base_ns := now_ns())
        load = SimpleNamespace(workers=[worker], begun=False)
        task = asyncio.ensure_future(clocks.measure_clocks(cast(Watched, SimpleNamespace(load=load, events=events))))
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
