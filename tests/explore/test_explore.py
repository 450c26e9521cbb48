"""`brokerdrill explore` with made-up hosts: journal, the drills' files, finds and page are the real ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from brokerdrill.base.errors import InfrastructureError, Unmet, UsageError
from brokerdrill.campaigns import deployments, execute
from brokerdrill.cli.app import app
from brokerdrill.inventory import planned as planning
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import Verdict
from brokerdrill.scenario.drill import load_drill
from brokerdrill.scenario.model import Action
from tests.campaigns.fake import Fake
from tests.campaigns.series import verdict

from .places import TOPOLOGY, pair


class System(Fake):
    """Hosts whose messages are lost when `bad` is killed."""

    bad = "majority of zookeeper"

    def judge(
        self, run_dirs: Sequence[Path], console: Console, *, master: str | None = None
    ) -> tuple[Verdict, list[Path]]:
        info = contract.read_run(run_dirs[0])
        drill = load_drill(str(next(self.runs.glob(f"plans/*/drills/{info.scenario.name}.yml"))))
        steps = [step for step in drill.scenario.method if isinstance(step, Action)]
        lost = any((step.fault, step.target) == ("kill", self.bad) for step in steps)
        result = verdict(info.run_id, 4000.0, ["no_loss"] if lost else [])
        (run_dirs[0] / "verdict.json").write_text(json.dumps(result))
        return Verdict.from_json(result), []


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    made = System(tmp_path / "runs")
    for module, name in ((deployments, "run_playbook"), (execute, "record"), (execute, "judge")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    monkeypatch.setattr(planning, "planned", lambda *_: pair()[:-1])
    monkeypatch.setattr("brokerdrill.explore.explore.warm_up", lambda *_: None)
    made.install()
    made.log(begin=True)
    return made


def explore(system: System, *words: str) -> tuple[int, str]:
    came = CliRunner().invoke(app, ["explore", TOPOLOGY, "--runs", str(system.runs), *words])
    if came.exception and not isinstance(came.exception, SystemExit):
        raise came.exception
    return came.exit_code, came.output


def ran(system: System) -> list[str]:
    return [entry["run"] for entry in system.entries() if "run" in entry]


def test_what_it_finds_is_a_small_drill_that_a_later_exploration_knows(system: System) -> None:
    status, said = explore(system, "--trials", "90", "--seed", "3")
    assert status == 1
    (path,) = (system.runs / "finds").glob("*.yml")
    drill = load_drill(str(path))
    faults = [(step.fault, step.target) for step in drill.scenario.method if isinstance(step, Action)]
    assert faults == [("kill", "majority of zookeeper")]
    assert len(drill.scenario.method) <= 3
    known = json.loads(path.with_suffix(".json").read_text())
    assert (known["promise"], known["faults"]) == ("no_loss", ["kill majority of zookeeper"])
    assert known["spent"] <= 30 and known["broken"] == known["runs"]
    assert f"brokerdrill run {path}" in said.replace("\n", "")
    (page,) = system.runs.glob("plans/explore-*/index.html")
    assert "no_loss" in page.read_text() and path.name in page.read_text()
    assert len(ran(system)) == 90
    # Another seed knows it; with --anew it would be found again.
    assert explore(system, "--trials", "25", "--seed", "4")[0] == 0
    assert len([*(system.runs / "finds").glob("*.yml")]) == 1


def test_it_goes_on_where_it_was_and_makes_no_run_twice(system: System) -> None:
    explore(system, "--trials", "20", "--seed", "3")
    first = ran(system)
    # A journal entry that a crash lost: the run is there, and is not made again.
    (journal,) = system.runs.glob("plans/explore-*/trials.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-2]))
    explore(system, "--trials", "30", "--seed", "3")
    assert ran(system)[:20] == first and len(ran(system)) == 30
    entries = [one for line in journal.read_text().splitlines() if "broke" in (one := json.loads(line))]
    assert [entry["trial"] for entry in entries] == [*range(1, 31)]
    other = System(system.runs.parent / "other")
    other.install()
    other.log(begin=True)
    explore(other, "--trials", "30", "--seed", "3")
    (whole,) = other.runs.glob("plans/explore-*/trials.jsonl")
    told = [one for line in whole.read_text().splitlines() if "broke" in (one := json.loads(line))]
    # The same from the same seed, up to where the first was stopped: there a verdict more was known.
    assert [entry["schedule"] for entry in told][:20] == [entry["schedule"] for entry in entries][:20]


def test_what_can_no_longer_be_run_is_deployed_anew_and_then_said(system: System) -> None:
    system.bad = "nobody"
    system.fails = [InfrastructureError("not in sync")] * 9
    with pytest.raises(InfrastructureError, match=r"4 runs in a row could not be made, .* because: not in sync"):
        explore(system, "--trials", "20", "--deploy")
    assert [entry["deploy"] for entry in system.entries() if "deploy" in entry] == ["site", "teardown", "site"]
    # One that broke off says nothing, and is no reason to stop.
    system.fails = [Unmet("gone")]
    assert explore(system, "--trials", "8", "--deploy")[0] in (0, 1)


def test_nothing_is_deployed_that_was_not_asked_for_or_goes_too_far(system: System) -> None:
    system.bad = "nobody"
    system.fails = [InfrastructureError("not in sync")] * 9
    with pytest.raises(InfrastructureError, match="mended by a deployment, which was not asked for"):
        explore(system, "--trials", "20")
    with pytest.raises(UsageError, match=r"deploying artemis_quorum: .*nothing touched"):
        explore(system, "--trials", "20", "--deploy", "--at-once", "1", "--seed", "9")
    assert not [entry for entry in system.entries() if "deploy" in entry]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "how long is not said: give --for 40m or --trials 100"),
        (["--for", "soon"], "--for: 'soon' is no time"),
        (["--for", ""], "--for: '' is no time"),
    ],
)
def test_wrong_words_are_told_in_one_sentence(system: System, words: list[str], said: str) -> None:
    with pytest.raises(Exception, match=said) as raised:
        explore(system, *words)
    assert getattr(raised.value, "exit_status", None) == 64
    assert ran(system) == []


def test_nothing_that_is_drawn_goes_further_than_it_may(system: System) -> None:
    explore(system, "--trials", "12", "--at-once", "1")
    for path in system.runs.glob("plans/*/drills/*.yml"):
        drill = load_drill(str(path))
        targets = {step.target for step in drill.scenario.method if isinstance(step, Action)}
        assert not {one for one in targets if one.startswith(("all of", "majority"))}


def test_a_find_of_somebody_elses_making_is_refused(system: System) -> None:
    (system.runs / "finds").mkdir()
    (system.runs / "finds" / "odd.json").write_text('{"promise": 1}')
    with pytest.raises(Exception, match=r"odd\.json is no find of an exploration"):
        explore(system, "--trials", "1")
