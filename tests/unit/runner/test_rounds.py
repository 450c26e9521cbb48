"""A method that is repeated: how often, under which names, and what the next round finds healed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.report.view import repeated
from brokerdrill.runner import method as method_module
from brokerdrill.runner.injections import ARM_TTL_MARGIN_S, arm_ttl_s
from brokerdrill.runner.method import Method
from brokerdrill.scenario.drill import load_drill
from brokerdrill.scenario.model import Action, Scenario, parse
from brokerdrill.scenario.rounds import another, changes_of, in_round, settings_of
from brokerdrill.web.live import steps as live_steps

SCENARIO = """\
title: Repeated
description: What it is for
{repeat}
load:
  addresses: [drill.q0]
method:
  - {{type: action, name: kill, fault: kill, target: active}}
  - {{type: probe, name: over, until: failed_over, of: kill}}
  - {{type: heal, name: restart, of: kill}}
  - {{type: probe, name: synced, until: in_sync}}
abort: {{duration: 100, drain: 10}}
promises: [no_loss]
"""


def scenario(repeat: str = "") -> Scenario:
    return parse(SCENARIO.format(repeat=repeat), Path("s.yml"))


@pytest.mark.parametrize(
    ("repeat", "repeated", "longest_s"),
    [
        ("", False, 100),
        ("rounds: 1", False, 100),
        ("rounds: 3", True, 300),
        ("for: 60m", True, 3700),
        ("for: 90", True, 190),
        ("for: 1.5h", True, 5500),
    ],
)
def test_what_bounds_a_run_outlives_its_rounds(repeat: str, repeated: bool, longest_s: float) -> None:
    told = scenario(repeat)
    assert (told.repeated, told.longest_s()) == (repeated, longest_s)
    assert arm_ttl_s(told) == longest_s + 10 + told.steady_state.timeout + ARM_TTL_MARGIN_S


@pytest.mark.parametrize(
    ("repeat", "message"),
    [
        ("rounds: 0", "line 3: rounds: Input should be greater than or equal to 1"),
        ("rounds: some", "line 3: rounds: Input should be a valid integer"),
        ("for: soon", "line 3: for: 'soon' is no time: write 90s, 60m or 2h"),
        ("for: 0m", "line 3: for: '0m' is no time"),
        ("for: -5", "line 3: for: -5 is no time"),
        ("for: true", "line 3: for: True is no time"),
        ("for: [60]", r"line 3: for: \[60\] is no time"),
        ("rounds: 3\nfor: 60m", "rounds and for both say how often the method is repeated: give one of them"),
        ("lasting: 60", "line 3: lasting: there is no such field"),
    ],
)
def test_a_repetition_that_is_none(repeat: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        scenario(repeat)
    assert "\n" not in str(raised.value)


def test_the_command_takes_the_place_of_the_drill() -> None:
    assert changes_of(None, None) == {}
    assert changes_of(3, None) == {"rounds": 3, "for": None}
    assert settings_of(changes_of(3, None)) == {"rounds": "3"}
    assert settings_of(changes_of(None, "2m")) == {"for": "2m"}
    assert changes_of(None, "2m") == {"for": "2m", "rounds": None}


@pytest.mark.parametrize(
    ("rounds", "lasting", "message"),
    [
        (3, "60m", "--rounds and --for both say"),
        (0, None, "--rounds 0: a number from 1"),
        (-1, None, "--rounds -1: a number from 1"),
        (None, "an hour", "--for: 'an hour' is no time: write 90s, 60m or 2h"),
        (None, "", "--for: '' is no time"),
    ],
)
def test_a_command_that_says_no_repetition(rounds: int | None, lasting: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        changes_of(rounds, lasting)


def test_the_nearer_word_counts(tmp_path: Path) -> None:
    """A drill that extends another one says how often in its own way."""
    first, second = tmp_path / "first.yml", tmp_path / "second.yml"
    first.write_text(SCENARIO.format(repeat="rounds: 3"))
    second.write_text(f"extends: {first}\nfor: 5m\n")
    told = load_drill(str(second)).scenario
    assert (told.rounds, told.lasting) == (None, 300)


def test_a_report_says_how_to_repeat_it() -> None:
    assert repeated("rounds: 3") == ["--rounds", "3"]
    assert repeated("for: 60m") == ["--for", "60m"]
    assert repeated("title: once") == repeated("[") == repeated("- 1") == []


@pytest.mark.parametrize(
    ("done", "passed_s", "rounds", "lasting_s", "more"),
    [
        (0, 0, None, None, True),
        (1, 5, None, None, False),
        (1, 5, 2, None, True),
        (2, 5, 2, None, False),
        (0, 100, None, 60, True),
        (7, 59.9, None, 60, True),
        (7, 60, None, 60, False),
    ],
)
def test_whether_another_round_begins(
    done: int, passed_s: float, rounds: int | None, lasting_s: float | None, more: bool
) -> None:
    assert another(done, passed_s, rounds, lasting_s) is more


def test_steps_of_a_round_refer_to_each_other() -> None:
    named = in_round(scenario().method, 2)
    assert [step.name for step in named] == [f"{name} (round 2)" for name in ("kill", "over", "restart", "synced")]
    assert [getattr(step, "of", None) for step in named] == [None, "kill (round 2)", "kill (round 2)", None]


def test_an_action_of_a_round_hits_what_one_of_the_same_round_hit() -> None:
    again = Action(type="action", name="again", fault="stop", of="kill")
    *_, named = in_round([*scenario().method, again], 2)
    assert isinstance(named, Action)
    assert (named.name, named.of) == ("again (round 2)", "kill (round 2)")


class RecordedMethod:
    """What a method does to its surroundings, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def inject(self, step: Any) -> None:
        self.done.append(f"inject {step.name}")

    async def heal(self, of: str) -> None:
        self.done.append(f"heal {of}")

    async def heal_left(self) -> None:
        self.done.append("heal left")

    def injected(self, of: str | None) -> Any:
        return of

    def write(self, kind: str, *, name: str, **fields: Any) -> None:
        if kind == "note":
            self.done.append(f"round {name} {fields['detail']['round']}s")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Runs a method; returns what it did. Each look at the clock is a second later."""
    ticks = itertools.count()
    monkeypatch.setattr(method_module, "now_ns", lambda: next(ticks) * 1_000_000_000)
    monkeypatch.setattr(method_module.probes, "condition", lambda *_: lambda: True)

    def take(repeat: str) -> list[str]:
        recorded: Any = RecordedMethod()

        async def until(*_: Any) -> None:
            return

        system: Any = SimpleNamespace(until=until, acted=lambda: None)
        progress: Any = SimpleNamespace(step=lambda _: None)
        topology = load = recorded
        one = Method(topology, {}, system, load, recorded, {}, ["drill.q0"], recorded, progress)
        asyncio.run(one.take(scenario(repeat)))
        return list(recorded.done)

    return take


def test_a_method_that_is_not_repeated_names_no_round(taken: Callable[[str], list[str]]) -> None:
    assert taken("") == ["inject kill", "heal kill"]


def test_each_round_begins_healed_and_is_named(taken: Callable[[str], list[str]]) -> None:
    assert taken("rounds: 2") == [
        line
        for number in (1, 2)
        for line in (
            "heal left",
            f"round {number} begins",
            f"inject kill (round {number})",
            f"heal kill (round {number})",
            f"round {number} ends",
        )
    ]


def test_rounds_end_with_their_time(taken: Callable[[str], list[str]]) -> None:
    """A round looks at the clock eight times, a second each: the second one is the last that begins in time."""
    assert [line for line in taken("for: 12s") if line.endswith("ends")] == ["round 1 ends", "round 2 ends"]


def test_the_live_page_shows_the_steps_of_the_newest_round() -> None:
    told = scenario("rounds: 3")
    events: list[dict[str, Any]] = [{"kind": "phase", "name": "load", "value": "begin"}]
    for number in (1, 2):
        events.append({"kind": "note", "name": str(number), "detail": {"round": "begin"}})
        events.append({"kind": "fault", "name": "kill", "value": f"kill (round {number})"})
    shown = live_steps(told, events)
    assert [row["name"] for row in shown][:2] == ["kill (round 2)", "over (round 2)"]
    assert [row["state"] for row in shown] == ["done", "now", "next", "next"]
    assert live_steps(told, [])[0]["name"] == "kill (round 1)"
