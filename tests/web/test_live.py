"""What the page says of a run, from its files."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest

from brokerdrill.ledger.contract import EVENTS_DIR
from brokerdrill.ledger.events import FILE as EVENTS_FILE
from brokerdrill.web.app import Board
from brokerdrill.web.live import Stage, Throughput, two_active
from brokerdrill.web.tail import Tail

from .running import Running


def test_no_run_goes_on(tmp_path: Path) -> None:
    assert Stage(tmp_path).look() is None
    with Running(tmp_path):
        pass
    # Its runner is gone.
    assert Stage(tmp_path).look() is None


def test_a_run_from_the_wait_to_the_fault_and_its_heal(tmp_path: Path) -> None:
    with Running(tmp_path) as run:
        stage = Stage(tmp_path)
        run.sample()
        seen = stage.look()
        assert seen is not None
        assert (seen["drill"], seen["topology"], seen["phase"]) == (
            "kill_active",
            "pair",
            "waiting for the steady state",
        )
        assert {one["state"] for one in seen["steps"]} == {"next"}
        assert seen["roles"] == [{"name": "artemis1", "role": "active"}, {"name": "artemis2", "role": "passive"}]
        run.load()
        run.sample(100)
        seen = stage.look()
        assert seen is not None and (seen["phase"], seen["acknowledged"]) == ("drilling", 100)
        assert seen["unanswered"] == {"sends": 2, "receipts": 3}
        assert [one["state"] for one in seen["steps"]][:2] == ["now", "next"]
        run.kill()
        run.sample()
        seen = stage.look()
        assert seen is not None
        (fault,) = seen["faults"]
        assert (fault["name"], fault["fault"], fault["target"], fault["armed"]) == (
            "kill-active",
            "kill",
            "artemis1",
            False,
        )
        assert 110 < fault["left_s"] <= 120
        assert [one["state"] for one in seen["steps"]][:2] == ["done", "now"]
        assert seen["events"][-1]["text"] == "fault kill-active: kill artemis1"
        run.heal()
        seen = stage.look()
        assert seen is not None and seen["faults"] == []


def test_promises_as_they_stand(tmp_path: Path) -> None:
    with Running(tmp_path) as run:
        bound = next(one.spec().bound_ms for one in run.scenario.promises if one.name == "available")
        assert bound is not None
        stage = Stage(tmp_path)
        run.load()
        run.sample(100, at_s=1)

        def tones() -> dict[str, str]:
            seen = stage.look()
            assert seen is not None
            return {one["name"]: one["tone"] for one in seen["promises"]}

        assert (tones()["available"], tones()["single_active"], tones()["no_loss"]) == ("good", "good", "none")
        run.sample(0, at_s=1 + bound / 1000 + 0.5)
        assert tones()["available"] == "bad"
        run.sample(10, at_s=1 + bound / 1000 + 1)
        assert tones()["available"] == "bad", "a gap that is over was there"
        run.roles = {"artemis1": "active", "artemis2": "active"}
        run.sample(at_s=1 + bound / 1000 + 2)
        run.roles = {"artemis1": "active", "artemis2": "passive"}
        run.sample(at_s=1 + bound / 1000 + 3)
        assert tones()["single_active"] == "bad"


@pytest.mark.parametrize(
    ("roles", "two"),
    [
        ({"a": "active", "b": "passive"}, False),
        ({"a": "active", "b": "active"}, True),
        ({"a": "active", "c": "active"}, False),
    ],
)
def test_two_active_are_two_of_one_store(roles: dict[str, str], two: bool) -> None:
    assert two_active({"x": ("a", "b"), "y": ("c",)}, roles) is two


def test_throughput_is_a_point_a_second() -> None:
    flow = Throughput()
    for quarter in range(13):
        flow.take({"t_ns": int(quarter * 0.25e9), "sent_ok": quarter * 25, "received": quarter * 10})
    assert flow.points == type(flow.points)([(1.0, 100.0, 40.0), (2.0, 100.0, 40.0), (3.0, 100.0, 40.0)])
    assert flow.longest_gap == pytest.approx(0.25)


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    tail = Tail(path)
    assert tail.read() == []
    path.write_text('{"a": 1}\n{"b"')
    assert tail.read() == [{"a": 1}]
    with path.open("a") as file:
        file.write(': 2}\nno json\n"text"\n')
    assert tail.read() == [{"b": 2}]
    assert tail.read() == []


def test_what_a_page_is_sent_is_json(tmp_path: Path) -> None:
    with Running(tmp_path) as run:
        run.load()
        run.kill()
        run.sample(1)
        assert json.loads(json.dumps(Stage(tmp_path).look()))["run"] == run.run_dir.name


@pytest.mark.parametrize("odd", [{"kind": "fault"}, {"kind": "phase", "t_ns": "soon"}, {"t_ns": 1}])
def test_what_no_run_writes_is_said_and_ends_no_watch(tmp_path: Path, odd: dict[str, Any]) -> None:
    with Running(tmp_path) as run:
        run.load()
        with (run.run_dir / EVENTS_DIR / EVENTS_FILE).open("a") as file:
            file.write(json.dumps(odd) + "\n")
        state = Stage(tmp_path).look()
    assert state is not None
    assert (state["run"], state["unreadable"][:26]) == (run.run_dir.name, "its files say what no run ")


def test_who_comes_later_is_told_nothing_old() -> None:
    class Counting:
        looks = 0

        def look(self) -> dict[str, int]:
            self.looks += 1
            return {"looks": self.looks}

    stage = Counting()
    board = Board(cast(Stage, stage))

    async def first_state() -> str:
        async with contextlib.aclosing(cast(AsyncGenerator[str, None], board.watch())) as states:
            async for state in states:
                if state:
                    return state
        raise AssertionError("the watch ended")

    async def watched() -> None:
        await first_state()
        before = stage.looks
        assert json.loads(await first_state())["looks"] > before

    asyncio.run(watched())
