"""What a run that ends early leaves: its ledger is judged, and the exit status says what was found."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import Awaitable, Callable
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
from brokerdrill.ledger.verdict import PromiseVerdict, RunVerdict, Verdict
from brokerdrill.report.words import headline
from brokerdrill.results import judging
from brokerdrill.runner import recording
from brokerdrill.runner.evidence.run_dir import has_load, make_run_dir
from brokerdrill.runner.run import _Run
from brokerdrill.scenario.drill import load_drill

CONSOLE = Console(quiet=True)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the analysis is made to find, the first of it; and then which runs it was asked about."""
    found: list[Any] = []

    def judge(run_dirs: Any, *_: Any, **__: Any) -> tuple[Verdict, list[Path]]:
        found.append({"asked": list(run_dirs)})
        return found[0], [Path("report.html")]

    monkeypatch.setattr(judging, "judge", judge)
    return found


def _ends(error: InfrastructureError, *runs: str) -> Any:
    def record() -> list[Path]:
        error.runs = tuple(map(Path, runs))
        raise error

    return record


KEPT = judging_verdict.together([RunVerdict("pass", as_expected=True)])
LOST = PromiseVerdict("no_loss", "fail", as_expected=False)
BROKEN = judging_verdict.together([RunVerdict("fail", promises=(LOST,))])


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
    told: list[Any], error: InfrastructureError, verdict: Verdict, status: int
) -> None:
    told.append(verdict)
    with pytest.raises(type(error), match=str(error)) as raised:
        judged(_ends(error, "one", "two"), CONSOLE)
    assert raised.value.exit_status == status
    assert told[1]["asked"] == [Path("one"), Path("two")]


def test_what_did_not_work_on_the_way_out_of_an_interrupted_run_counts(told: list[Any]) -> None:
    told.append(KEPT)
    ended = recording.Interrupted("interrupted by SIGINT; a fault is not healed")
    ended.__cause__ = InfrastructureError("a fault is not healed")
    with pytest.raises(recording.Interrupted) as raised:
        judged(_ends(ended, "one"), CONSOLE)
    assert raised.value.exit_status == 3


def test_nothing_recorded_is_nothing_to_judge(told: list[Any]) -> None:
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

    class IdleExecutor:
        async def heal_all(self) -> list[str]:
            raise OSError("the line is gone")

    said: list[str] = []
    parts: dict[str, Any] = {field.name: None for field in dataclasses.fields(_Run)}
    parts |= {
        "load": SimpleNamespace(sending=True),
        "executor": IdleExecutor(),
        "progress": SimpleNamespace(step=said.append),
    }
    assert asyncio.run(_Run(**parts)._drain_early()) == {}
    assert said == ["not drained: the line is gone"]


@pytest.mark.parametrize("outcome", ["completed", "aborted", "crashed"])
@pytest.mark.parametrize(("count", "expected"), [(0, "kept"), (1, "kept"), (1, "violated"), (0, "violated")])
def test_a_run_that_ended_early_says_of_nothing_that_it_was_kept(outcome: str, count: int, expected: str) -> None:
    run = contract.RunInfo("run", outcome=outcome)
    one = judging_verdict.of_promise(contract.PromiseSpec("no_loss"), expected, count=count, evidence=True)
    not_met = {"no_loss": "it is not as expected"} if (count == 0) != (expected == "kept") else {}
    found = judging_verdict.concluded(run, RunVerdict(promises=(one,)), not_met)
    told = headline(found)
    if outcome == "completed" or count:
        assert found.as_expected == ((count == 0) == (expected == "kept"))
        assert told.startswith("broken" if count else "kept")
    else:
        assert (found.verdict, found.as_expected) == ("unknown", False)
        assert "kept" not in told
        assert judging_verdict.exit_status(judging_verdict.together([found])) == (
            EXIT_UNKNOWN if expected == "kept" else EXIT_BROKEN
        )
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

    class FinishedRun(_Run):
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
    said = asyncio.run(FinishedRun(**parts)._finish("completed", {}))
    assert said == [f"ValueError: {name} breaks" for name in ("heal_all", "close", "stop_watching")] + [
        "ValueError: a log that is none"
    ]
    assert done == ["fetched", "close", "give_back"]
    assert contract.read_run(tmp_path / "run").outcome == "aborted"


def _run_that(way: Callable[[], Awaitable[dict[str, bool]]], finish: Callable[[], Awaitable[list[str]]]) -> Any:
    """A run with that way, and that end."""

    class Run(_Run):
        async def _way(self, *_: Any) -> dict[str, bool]:
            return await way()

        async def _finish(self, outcome: str, drained: Any) -> list[str]:
            return await finish()

    parts: dict[str, Any] = {field.name: None for field in dataclasses.fields(_Run)}
    nobody = SimpleNamespace(lost="", keep=lambda _: None)
    parts |= {
        "request": SimpleNamespace(run_dir=Path("/nonexistent/run"), guards=()),
        "load": SimpleNamespace(sending=False, begun=False, workers=[]),
        "executor": SimpleNamespace(lease=nobody, silenced="", in_effect=list),
        "system": SimpleNamespace(failed_watches=list),
        "events": SimpleNamespace(write=lambda *_, **__: None),
    }
    return Run(**parts)


@pytest.mark.parametrize("breaks", [False, True])
def test_who_asks_a_run_to_end_while_it_ends_cuts_nothing_of_that_off(
    breaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Healing, evidence and giving the hosts back are all of them after the signal here."""
    for name in ("until_disk_full", "until_fault_undone", "fetch_finished", "measure_clocks", "write_samples"):
        monkeypatch.setattr(f"brokerdrill.runner.run.{name}", lambda _: asyncio.sleep(60))
    done: list[str] = []

    async def way() -> dict[str, bool]:
        if breaks:
            raise Unmet("probe back: not failed_back")
        return {}

    async def finish() -> list[str]:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)
        done.append("finished")
        return ["a host was not given back"]

    with pytest.raises(recording.Interrupted, match=r"interrupted by SIGTERM; .*a host was not given back"):
        recording.run_async(_run_that(way, finish).carry_out([], []), CONSOLE)
    assert done == ["finished"]


def test_who_is_asked_to_end_ends_also_where_that_does_not_work() -> None:
    """A game day, or a plan, would go on with its next run otherwise."""

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            error = InfrastructureError("fault t-1 on h is not healed within 60 s")
            error.runs = (Path("one"),)
            raise error from None

    with pytest.raises(recording.Interrupted, match="interrupted by SIGINT; fault t-1 on h is not healed") as raised:
        recording.run_async(work(), CONSOLE)
    assert raised.value.runs == (Path("one"),)
    assert isinstance(raised.value.__cause__, InfrastructureError)


def test_evidence_of_a_host_that_is_gone_keeps_no_other_hosts_back() -> None:
    kept: list[str] = []

    class LeasedHost:
        def __init__(self, name: str) -> None:
            self.name = name

        async def sh(self, *_: Any, **__: Any) -> Any:
            if self.name == "a":
                raise InfrastructureError("host a is lost")
            kept.append(self.name)
            return SimpleNamespace(rc=0, out="", err="")

    parts: dict[str, Any] = {field.name: None for field in dataclasses.fields(_Run)}
    parts |= {
        "request": SimpleNamespace(run_dir=Path("/nonexistent/run")),
        "load": SimpleNamespace(workers=[]),
        "system": SimpleNamespace(recorded_since_ns=0, instances={}),
        "injections": SimpleNamespace(hit=list),
        "events": SimpleNamespace(base_ns=0),
        "connections": {name: LeasedHost(name) for name in "ab"},
        "descriptors": [SimpleNamespace(host=name, instance=name, evidence={"it": "true"}) for name in "ab"],
    }

    async def all_of_it() -> list[str]:
        problems: list[str] = []
        for part in _Run(**parts)._evidence(1):
            try:
                await part
            except InfrastructureError as error:
                problems.append(str(error))
        return problems

    assert asyncio.run(all_of_it())[0] == "host a is lost"
    assert kept == ["b"]


def test_a_vacuous_run_says_what_broke_all_the_same() -> None:
    """A loss in a run whose load met no fault is a loss."""
    promises = [
        judging_verdict.of_promise(contract.PromiseSpec(name), "kept", count=count, evidence=True)
        for name, count in (("no_loss", 3), ("no_duplicates", 0))
    ]
    found = RunVerdict(promises=tuple(promises), verdict="fail", vacuous=("kill-active hit nobody's store",))
    assert headline(found).endswith("kill-active hit nobody's store; broken all the same: no_loss")
    quiet = RunVerdict(promises=tuple(promises[1:]), verdict="unknown", vacuous=("kill-active hit nobody's store",))
    assert "broken" not in headline(quiet)
