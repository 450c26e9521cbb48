"""What game days came to, from their lines alone; the stray watch's question."""

from __future__ import annotations

import datetime
from pathlib import Path

from brokerdrill.base.locks import held
from brokerdrill.gameday.guards import broken_now, strays
from brokerdrill.gameday.history import (
    CRASHED,
    EXPECTED,
    FAILED,
    RUNNING,
    STOPPED,
    UNEXPECTED,
    GameDayLog,
    days,
    last_begun,
    worst,
)
from brokerdrill.inventory.planned import load_hosts
from brokerdrill.scenario.drill import load_drill, resolve

from .pair import PAIR, topology


def begun(record: GameDayLog, day: str) -> None:
    record.write(day, "begin")
    record.write(day, "drill", drill="kill_active", topology="pair", run=f"run-{day}")


def test_a_day_that_ended(tmp_path: Path) -> None:
    record = GameDayLog(tmp_path, "weekly")
    begun(record, "1")
    record.write("1", "drilled", state=UNEXPECTED, why="verdict fail: no_loss", run="run-1")
    record.write("1", "end", state=UNEXPECTED, why="")
    (day,) = record.days()
    assert (day.state, day.word, day.announced) == (UNEXPECTED, "not as expected", False)
    assert [(one.drill, one.state, one.run) for one in day.drills] == [("kill_active", UNEXPECTED, "run-1")]


def test_a_day_without_an_end_runs_while_its_lock_is_held_and_has_crashed_after(tmp_path: Path) -> None:
    record = GameDayLog(tmp_path, "weekly")
    begun(record, "1")
    begun(record, "2")
    with held(record.lock, "busy"):
        first, second = record.days()
        assert (first.state, second.state, second.drills[0].state) == (CRASHED, RUNNING, RUNNING)
    _, second = record.days()
    assert (second.state, second.drills[0].state, second.drills[0].run) == (CRASHED, CRASHED, "run-2")


def test_a_line_that_a_crash_tore_was_not_written(tmp_path: Path) -> None:
    record = GameDayLog(tmp_path, "weekly")
    begun(record, "1")
    with record.path.open("a") as file:
        file.write('{"day": "1", "phase": "end", "sta')
    assert [day.state for day in record.days()] == [CRASHED]
    begun(record, "2")
    assert [day.id for day in record.days()] == ["1", "2"]


def test_what_was_refused_or_missed_was_not_begun() -> None:
    lines = [
        {"day": "1", "phase": "begin", "at": "2026-11-01T08:00:00+00:00"},
        {"day": "1", "phase": "end", "at": "2026-11-01T09:00:00+00:00", "state": EXPECTED},
        {"day": "2", "phase": "begin", "at": "2026-11-08T08:00:00+00:00"},
        {"day": "2", "phase": "end", "at": "2026-11-08T08:00:01+00:00", "state": "refused", "why": "blackout"},
    ]
    assert last_begun(days(lines, alive=False)) == datetime.datetime(2026, 11, 1, 8, tzinfo=datetime.UTC)
    assert last_begun([]) is None


def test_the_worst_state_is_the_days() -> None:
    assert worst([]) == EXPECTED
    assert worst([EXPECTED, "failed", UNEXPECTED]) == UNEXPECTED
    assert worst(["failed", "stopped"]) == "stopped"


def test_only_what_no_fault_has_hit_is_a_stray() -> None:
    roles = {"a": "down", "b": "failed", "c": "passive", "d": "syncing"}
    assert strays(roles, {"a"}) == {"b"}
    assert strays(roles, {"a", "b"}) == set()


def test_a_promise_that_is_seen_to_be_broken() -> None:
    scenario = resolve(load_drill("kill_active"), [*PAIR, *load_hosts(topology())], "pair").scenario
    bound = next(one.spec().bound_ms for one in scenario.promises if one.name == "available")
    assert bound is not None
    served = [["active", "passive"]]
    assert broken_now(scenario, served, bound) is None
    assert "available is broken" in str(broken_now(scenario, served, bound + 1))
    assert "single_active is broken" in str(broken_now(scenario, [["active", "active"]], 0))
    assert broken_now(scenario, [["active"], ["active"]], 0) is None
    # What a drill expects to see broken does not end it.
    meant = scenario.model_copy(update={"expect_violation": ["available", "single_active"]})
    assert broken_now(meant, [["active", "active"]], bound + 1) is None


def test_why_a_day_ended_may_have_what_some_take_for_the_end_of_a_line(tmp_path: Path) -> None:
    record = GameDayLog(tmp_path, "it")
    begun(record, "one")
    record.write("one", "end", state=FAILED, why="odd\u2028words\x85of a log")
    assert [(day.state, day.why) for day in record.days()] == [(FAILED, "odd\u2028words\x85of a log")]


def test_a_drill_that_its_days_end_cut_off_runs_no_more(tmp_path: Path) -> None:
    record = GameDayLog(tmp_path, "it")
    begun(record, "one")
    record.write("one", "end", state=STOPPED, why="interrupted by SIGTERM")
    (day,) = record.days()
    assert [(one.state, one.run) for one in day.drills] == [(STOPPED, "run-one")]
