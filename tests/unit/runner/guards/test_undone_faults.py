"""A fault that is gone before its heal ends the drill; one that is being healed, or that is over at once, does not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults.base import MOMENTARY, HostChange
from brokerdrill.faults.executor import AppliedChange, Executor, Injection
from brokerdrill.inventory.targets import Target
from brokerdrill.ledger.contract import EVENTS_DIR, FAULT_GONE
from brokerdrill.ledger.events import EventWriter
from brokerdrill.runner.guards import undone_faults
from brokerdrill.runner.guards.undone_faults import until_fault_undone
from brokerdrill.runner.live_run import LiveRun


@dataclass
class Host:
    """A host that says of each script whether the fault is there, and which faults it holds."""

    there: dict[str, int] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    silent: bool = False

    hangs: str = ""

    async def sh(self, script: str) -> Any:
        self.asked.append(script)
        if self.silent:
            raise InfrastructureError("host h is lost")
        if script == self.hangs:
            await asyncio.sleep(60)
        return SimpleNamespace(rc=self.there.get(script, 0))

    async def kernel(self, verb: str) -> dict[str, Any]:
        assert verb == "status"
        return {"faults": self.faults}


class Drill:
    """A run whose host has the injected faults in effect."""

    def __init__(self, folder: Path) -> None:
        self.host = Host()
        (folder / EVENTS_DIR).mkdir()
        self.events = EventWriter(folder, "run", 0)
        self.file = folder / EVENTS_DIR / "runner.jsonl"
        self.executor = Executor({"h": cast(Any, self.host)}, cast(Any, None), cast(Any, None), self.events)

    def inject(self, name: str, instance: str | None = None, lasting: str = "") -> Injection:
        change = HostChange("h", "", f"verify {name}", "", "", lasting=lasting, target=name, instance=instance)
        target = Target(name, instances=(cast(Any, None),) if instance else ())
        injection = Injection(name, cast(Any, None), target, {name: change}, [AppliedChange(name, change, 0, 0)])
        self.executor.injections.append(injection)
        self.host.faults.append({"fault": name, "by": ""})
        return injection

    def watch(self, looks: int) -> str:
        """Return what the watch says; "" if it says nothing in so many looks."""

        async def main() -> str:
            watched = LiveRun(Path(), cast(Any, None), cast(Any, None), cast(Any, None), self.executor, self.events)
            watching = asyncio.ensure_future(until_fault_undone(watched))
            seen = self.host.asked.count("verify watched")
            while not watching.done() and self.host.asked.count("verify watched") - seen < looks:
                await asyncio.sleep(0.001)
            if watching.done():
                return watching.result()
            watching.cancel()
            return ""

        return asyncio.run(asyncio.wait_for(main(), 30))


@pytest.fixture
def drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drill:
    monkeypatch.setattr(undone_faults, "LOOK_PERIOD_S", 0.001)
    made = Drill(tmp_path)
    made.inject("watched")
    return made


def test_a_fault_that_is_gone_is_said_and_written_down(drill: Drill) -> None:
    assert drill.watch(5) == ""
    drill.inject("flushed")
    drill.host.there["verify flushed"] = 1
    said = drill.watch(5)
    assert said == "fault flushed on flushed is gone, and nobody here healed it; what follows proves nothing"
    (row,) = (json.loads(line) for line in drill.file.read_text().splitlines())
    assert (row["kind"], row["name"], row["value"], row["target"]) == ("note", FAULT_GONE, "flushed", "flushed")


@pytest.mark.parametrize("status", [2, 124, 127])
def test_a_look_that_cannot_tell_tells_nothing(drill: Drill, status: int) -> None:
    drill.inject("unclear")
    drill.host.there["verify unclear"] = status
    assert drill.watch(5) == ""


def test_a_host_that_is_lost_tells_nothing(drill: Drill) -> None:
    drill.host.silent = True
    assert drill.watch(5) == ""


def test_what_its_host_has_healed_or_is_about_to_is_not_gone(drill: Drill) -> None:
    drill.inject("over")
    drill.host.there["verify over"] = 1
    drill.host.faults[-1]["by"] = "time-to-live"
    assert drill.watch(5) == ""
    drill.host.faults.pop()
    assert drill.watch(5) == ""


def test_what_the_run_heals_is_not_gone(drill: Drill) -> None:
    healing = drill.inject("healing")
    healing.lasts = False
    drill.host.there["verify healing"] = 1
    assert drill.watch(5) == ""


def test_a_fault_that_is_over_at_once_is_not_watched_for(drill: Drill) -> None:
    drill.inject("moment", lasting=MOMENTARY)
    drill.host.there["verify moment"] = 1
    assert drill.watch(5) == ""


def test_of_several_faults_of_an_instance_the_newest_counts(drill: Drill) -> None:
    drill.inject("paused", "broker")
    drill.inject("killed", "broker")
    drill.host.there["verify paused"] = 1
    assert drill.watch(5) == ""
    drill.host.there["verify killed"] = 1
    assert drill.watch(5).startswith("fault killed")


def test_what_a_step_of_the_drill_may_end_is_not_watched_any_more(drill: Drill) -> None:
    drill.inject("stopped", "broker")
    drill.host.there["verify stopped"] = 1
    drill.executor.meddled()
    assert drill.watch(5) == ""
    # No playbook changes a link.
    drill.host.there["verify watched"] = 1
    assert drill.watch(5).startswith("fault watched")


def test_a_host_that_takes_its_time_hides_nothing_of_the_others(drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undone_faults, "ANSWER_S", 0.05)
    drill.inject("slow")
    drill.inject("flushed")
    drill.host.hangs = "verify slow"
    drill.host.there["verify flushed"] = 1
    assert drill.watch(50).startswith("fault flushed")
