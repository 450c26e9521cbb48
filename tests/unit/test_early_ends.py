"""What a run that ends early leaves: its ledger is judged, and the exit status says what was found."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.analysis import verdict as judging_verdict
from brokerdrill.base.errors import EXIT_BROKEN, EXIT_UNKNOWN, InfrastructureError, Unmet
from brokerdrill.cli import judged as judged_module
from brokerdrill.cli.judged import judged
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import run_verdict
from brokerdrill.report.words import headline
from brokerdrill.results import judging
from brokerdrill.runner import recording
from brokerdrill.runner.run import _Run
from brokerdrill.runner.run_dir import has_load, make_run_dir
from brokerdrill.scenario.drill import load_drill

CONSOLE = Console(quiet=True)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the analysis is made to find, the first of it; and then which runs it was asked about."""
    found: list[dict[str, Any]] = []

    def judge(run_dirs: Any, *_: Any, **__: Any) -> tuple[dict[str, Any], list[Path]]:
        found.append({"asked": list(run_dirs)})
        return found[0], [Path("report.html")]

    monkeypatch.setattr(judging, "judge", judge)
    return found


def _ends(error: InfrastructureError, *runs: str) -> Any:
    def record() -> list[Path]:
        error.runs = tuple(map(Path, runs))
        raise error

    return record


KEPT = {"as_expected": True, "verdict": "pass", "promises": []}
BROKEN = {"as_expected": False, "verdict": "fail", "promises": [{"verdict": "fail", "as_expected": False}]}


@pytest.mark.parametrize(
    ("error", "verdict", "status"),
    [
        (Unmet("probe back: not failed_back"), KEPT, 2),
        (Unmet("probe back: not failed_back"), BROKEN, 1),
        (recording.Interrupted("interrupted by SIGINT"), KEPT, 2),
        (InfrastructureError("no SSH"), BROKEN, 3),
    ],
)
def test_what_was_recorded_is_judged(
    told: list[dict[str, Any]], error: InfrastructureError, verdict: dict[str, Any], status: int
) -> None:
    told.append(verdict)
    with pytest.raises(type(error), match=str(error)) as raised:
        judged(_ends(error, "one", "two"), CONSOLE)
    assert raised.value.exit_status == status
    assert told[1]["asked"] == [Path("one"), Path("two")]


def test_nothing_recorded_is_nothing_to_judge(told: list[dict[str, Any]]) -> None:
    with pytest.raises(InfrastructureError, match="no SSH"):
        judged(_ends(InfrastructureError("no SSH")), CONSOLE)
    assert told == []


def test_a_ledger_that_cannot_be_judged_does_not_hide_why_the_run_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise InfrastructureError("there is no Java")

    monkeypatch.setattr(judging, "judge", fails)
    with pytest.raises(
        InfrastructureError, match="probe back; and what was recorded cannot be judged: there is no Java"
    ):
        judged_module.judged(_ends(Unmet("probe back"), "one"), CONSOLE)


def test_a_run_that_is_over_outlives_the_next_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second of three repeats cannot begin: the first one's ledger is named all the same."""
    begun = []

    async def run(request: Any, _: Any) -> Path:
        begun.append(request.run_dir)
        if len(begun) == 2:
            raise InfrastructureError("the topology was not in sync within 120 s")
        return Path(request.run_dir)

    class Topology:
        name = "t"

    monkeypatch.setattr(recording, "run", run)
    monkeypatch.setattr(recording, "check_request", lambda request: None)
    with pytest.raises(InfrastructureError, match="not in sync") as raised:
        recording.record(load_drill("kill_active"), Topology(), tmp_path, [1, 2, 3], CONSOLE)  # type: ignore[arg-type]
    assert len(begun) == 2
    assert raised.value.runs == (begun[0],)


def test_a_run_directory_has_a_load_once_clients_wrote(tmp_path: Path) -> None:
    make_run_dir(tmp_path / "run")
    assert not has_load(tmp_path / "run")
    (tmp_path / "run" / "ops" / "load1-w0.jsonl").write_text("{}\n")
    assert has_load(tmp_path / "run")


def test_a_drain_that_breaks_keeps_nothing_from_healing() -> None:
    """Whatever it is: `_finish` heals once more and fetches the evidence after it."""

    class Executor:
        async def heal_all(self) -> list[str]:
            raise OSError("the line is gone")

    said: list[str] = []
    parts: dict[str, Any] = {field.name: None for field in dataclasses.fields(_Run)}
    parts |= {
        "load": SimpleNamespace(sending=True),
        "executor": Executor(),
        "progress": SimpleNamespace(step=said.append),
    }
    assert asyncio.run(_Run(**parts)._drain_early()) == {}
    assert said == ["not drained: the line is gone"]


@pytest.mark.parametrize("outcome", ["completed", "aborted", "crashed"])
@pytest.mark.parametrize(("count", "expected"), [(0, "kept"), (1, "kept"), (1, "violated"), (0, "violated")])
def test_a_run_that_ended_early_says_of_nothing_that_it_was_kept(outcome: str, count: int, expected: str) -> None:
    run = contract.RunInfo("run", outcome=outcome)
    one = judging_verdict.promise_json(contract.PromiseSpec("no_loss"), expected, count=count, evidence=True)
    not_met = {"no_loss": "it is not as expected"} if (count == 0) != (expected == "kept") else {}
    more: dict[str, Any] = {"failover": (), "outages": (), "rounds": (), "notes": (), "not_met": not_met}
    found = judging_verdict.run_json(run, [one], messages={}, redelivered={}, **more)
    told = headline(run_verdict(found))
    if outcome == "completed" or count:
        assert found["as_expected"] == ((count == 0) == (expected == "kept"))
        assert told.startswith("broken" if count else "kept")
    else:
        assert (found["verdict"], found["as_expected"]) == ("unknown", False)
        assert "kept" not in told
        assert judging_verdict.exit_status(found) == (EXIT_UNKNOWN if expected == "kept" else EXIT_BROKEN)
    if outcome != "completed" and not count and expected == "kept":
        assert told == "unknown, not as expected: it ended early, and broke none of 1 promises until then"


def test_whatever_does_not_work_at_the_end_the_rest_of_it_does(tmp_path: Path) -> None:
    """A load host that is gone cannot be asked to end its workers; the evidence of the others is brought home, and the
    hosts are given back."""
    done: list[str] = []

    class Part:
        """Any part of a run; it does what it is told, or breaks."""

        def __init__(self, *broken: str) -> None:
            self.broken = broken

        def __getattr__(self, name: str) -> Any:
            async def act(*_: Any, **__: Any) -> list[str]:
                if name in self.broken:
                    raise ValueError(f"{name} breaks")
                done.append(name)
                return []

            return act

    async def fetched() -> None:
        done.append("fetched")

    async def broken() -> None:
        raise ValueError("a log that is none")

    class Run(_Run):
        def _evidence(self, until_ns: int) -> Any:
            yield broken()
            yield fetched()

    load = Part("close")
    load.left_by, load.workers = dict, []  # type: ignore[attr-defined]
    system = Part("stop_watching")
    system.lacking, system.failed_watches = dict, list  # type: ignore[attr-defined]
    executor = Part("heal_all")
    executor.lease = Part()  # type: ignore[attr-defined]
    make_run_dir(tmp_path / "run")
    info = contract.RunInfo("run")
    parts: dict[str, Any] = {field.name: None for field in dataclasses.fields(_Run)}
    parts |= {
        "request": SimpleNamespace(run_dir=tmp_path / "run"),
        "load": load,
        "executor": executor,
        "system": system,
        "info": info,
        "journal": SimpleNamespace(write=lambda *_: None, close=lambda: None),
        "events": SimpleNamespace(base_ns=0, close=lambda: None),
        "progress": SimpleNamespace(step=lambda _: None),
    }
    said = asyncio.run(Run(**parts)._finish("completed", {}))
    assert said == [f"ValueError: {name} breaks" for name in ("heal_all", "close", "stop_watching")] + [
        "ValueError: a log that is none"
    ]
    assert done == ["fetched", "close", "give_back"]
    assert contract.read_run(tmp_path / "run").outcome == "aborted"
