"""Sweeps and matrices: what is varied, in which order it is run, and that a killed runner goes on where it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.base import paths
from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.base.locks import held
from brokerdrill.bench import bench
from brokerdrill.campaigns import deployments, execute
from brokerdrill.campaigns.everything import everything_plan
from brokerdrill.campaigns.execute import DONE, FAILED, CampaignOptions, CellLog, Ended, plan_folder
from brokerdrill.campaigns.matrix import Matrix, load_matrix, matrix_plan, squares
from brokerdrill.campaigns.plan import Cell
from brokerdrill.campaigns.results import CellOutcome, OutcomeGroup, compared, outcomes, place_json, places
from brokerdrill.campaigns.settings import text
from brokerdrill.campaigns.sweep import parse_vary, sweep_plan
from brokerdrill.inventory.topology import find_topology
from brokerdrill.ledger.verdict import RunVerdict, Takeover, Verdict
from brokerdrill.scenario.drill import load_drill
from tests.unit.descriptors import broker

from .fake import DRILL, TOPOLOGY, VARIABLE, Fake, carry_out, plan
from .series import verdict

DEADLINE_S = 300


# --- what is varied -------------------------------------------------------------------------------------------------


def test_vary_words() -> None:
    found = parse_vary(["a=1,2.5,x", "load.payload_bytes=[256],[1024,4096]", "flag=true,false"])
    assert found == {"a": [1, 2.5, "x"], "load.payload_bytes": [[256], [1024, 4096]], "flag": [True, False]}
    assert [text(value) for value in (1, 2.5, "x", [1, 2], True, "2")] == ["1", "2.5", "x", "[1, 2]", "true", "'2'"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rate"], "write NAME=VALUE"),
        (["=1"], "write NAME=VALUE"),
        (["load.rate=1,1"], "a value is there twice"),
        (["load.rate=1,"], None),
        (["load.rate=1,,2"], "is no YAML value"),
        (["load.rate=[1"], "is no YAML value"),
        (["load.rate=1", "load.rate=2"], "is varied twice"),
    ],
)
def test_bad_vary_words(words: list[str], sentence: str | None) -> None:
    if sentence is None:
        assert parse_vary(words) == {"load.rate": [1]}
        return
    with pytest.raises(UsageError, match=sentence):
        parse_vary(words)


@pytest.mark.parametrize(
    ("vary", "sentence"),
    [
        ({"artemis_quorum_sesion_ms": [1]}, "did you mean 'artemis_quorum_session_ms'"),
        ({"load.rate": ["fast"]}, "load.rate: Input should be a valid number"),
        ({"load.speed": [1]}, "load.speed: there is no such field"),
        ({"method.nobody.ttl": [1]}, "the list has no element 'nobody'"),
        ({"title.x": [1]}, "title has no parts"),
        ({}, "nothing is varied"),
    ],
)
def test_what_cannot_be_varied_is_refused_before_anything_is_touched(vary: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        sweep_plan(DRILL, TOPOLOGY, vary, 1, 1)


def test_one_deployment_after_the_other_and_repeats_in_rounds() -> None:
    made = sweep_plan(DRILL, TOPOLOGY, {"load.rate": [100, 200], VARIABLE: [2000, 4000]}, 2, 5)
    told = [(cell.changes[VARIABLE], cell.repeat, cell.changes["load.rate"], cell.seed) for cell in made.cells]
    assert told == [
        (2000, 1, 100, 5), (2000, 1, 200, 5), (2000, 2, 100, 6), (2000, 2, 200, 6),
        (4000, 1, 100, 5), (4000, 1, 200, 5), (4000, 2, 100, 6), (4000, 2, 200, 6),
    ]  # fmt: skip
    assert len({cell.key for cell in made.cells}) == 8
    assert made.key == sweep_plan(DRILL, TOPOLOGY, {"load.rate": [100, 200], VARIABLE: [2000, 4000]}, 2, 5).key
    assert made.key != sweep_plan(DRILL, TOPOLOGY, {"load.rate": [100, 200], VARIABLE: [2000, 4000]}, 2, 6).key


# --- carrying it out ------------------------------------------------------------------------------------------------


def test_a_sweep_deploys_each_setting_once_runs_and_leaves_the_inventorys_own(fake: Fake) -> None:
    assert carry_out(fake, plan()) == 0
    told = [(entry["settings"], entry["seed"], entry["rate"]) if "run" in entry else entry for entry in fake.entries()]
    assert told == [
        {"deploy": "teardown", VARIABLE: 2000}, {"deploy": "site", VARIABLE: 2000},
        ({VARIABLE: "2000", "load.rate": "400"}, 11, 400), ({VARIABLE: "2000", "load.rate": "400"}, 12, 400),
        {"deploy": "teardown", VARIABLE: 4000}, {"deploy": "site", VARIABLE: 4000},
        ({VARIABLE: "4000", "load.rate": "400"}, 11, 400), ({VARIABLE: "4000", "load.rate": "400"}, 12, 400),
        {"deploy": "teardown"}, {"deploy": "site"},
    ]  # fmt: skip
    folder = plan_folder(plan(), fake.runs)
    told = json.loads((folder / "results.json").read_text())
    assert told["done"] == 4 and [place["failover_ms"]["count"] for place in told["places"]] == [2, 2]
    assert [place["failover_ms"]["max"] for place in told["places"]] == [2120, 4120]
    (pair,) = told["comparisons"]
    assert pair["failover"]["shift"]["estimate"] == 2000 and pair["significant"] is False
    page = (folder / "index.html").read_text()
    assert "cannot show a difference" in page and "/report.html" in page
    # Started again there is nothing left to do.
    assert carry_out(fake, plan()) == 0 and len(fake.entries()) == 10


def test_a_killed_runner_goes_on_where_it_was(tmp_path: Path) -> None:
    """SIGKILL in the middle of a run: what was done stays done, the run that was cut off is made again."""
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "tests.campaigns.fake", str(runs)]
    process = subprocess.Popen([*command, "0.5"], cwd=paths.ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + DEADLINE_S
    try:
        while not ((log := runs / "log.jsonl").exists() and log.read_text().count('"run"') == 3):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = [entry for entry in Fake(runs).entries() if "run" in entry]
    folder = plan_folder(plan(repeat=3), runs)
    done = set(CellLog(folder).ended())
    assert len(done) == 2
    # A crash may also tear the last line of the record.
    with (folder / "cells.jsonl").open("ab") as file:
        file.write(b'{"cell": "12')
    again = subprocess.run([*command, "0"], cwd=paths.ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert again.returncode == 0 and "2 of 6 cells are done" in again.stdout, again.stdout + again.stderr
    after = [entry for entry in Fake(runs).entries() if "run" in entry]
    assert after[:3] == before and len(after) == 3 + 4
    ended = CellLog(folder).ended()
    assert len(ended) == 6 and done <= set(ended) and {end.state for end in ended.values()} == {DONE}
    assert len({end.run_dir for end in ended.values()} & {before[2]["run"]}) == 0
    # The settings of the run that was cut off were deployed: they are made sure of first, and undone at the end.
    deployed = [entry for entry in Fake(runs).entries() if "deploy" in entry]
    assert deployed[-2:] == [{"deploy": "teardown"}, {"deploy": "site"}] and not (folder / "deployed.json").exists()


def test_what_a_killed_runner_left_deployed_is_undone_even_if_no_run_is_left(fake: Fake) -> None:
    assert carry_out(fake, plan()) == 0
    folder = plan_folder(plan(), fake.runs)
    before = len(fake.entries())
    (folder / "deployed.json").write_text(json.dumps("artemis_quorum"))
    assert carry_out(fake, plan()) == 0
    assert fake.entries()[before:] == [{"deploy": "teardown"}, {"deploy": "site"}]
    assert not (folder / "deployed.json").exists()


def test_a_run_that_could_not_be_made_is_tried_again_and_two_in_a_row_end_it(fake: Fake) -> None:
    fake.fails = [InfrastructureError("artemis1 does not answer")]
    # Its ledger can be judged and broke nothing: that is no evidence of a run that never was whole.
    assert carry_out(fake, plan()) == 3
    made = [entry["run"] for entry in fake.entries() if "run" in entry]
    assert carry_out(fake, plan()) == 0
    assert len([entry for entry in fake.entries() if "run" in entry]) == len(made) + 1
    other = sweep_plan(DRILL, TOPOLOGY, {"load.rate": [100, 200, 300]}, 1, 5)
    fake.judge = lambda *_, **__: (_ for _ in ()).throw(UsageError("no ledger"))  # type: ignore[method-assign,assignment]
    fake.install()
    fake.fails = [InfrastructureError("artemis1 does not answer"), InfrastructureError("nor does artemis2")]
    with pytest.raises(InfrastructureError, match=r"2 runs in a row could not be made.*nor does artemis2"):
        carry_out(fake, other)
    ended = CellLog(plan_folder(other, fake.runs)).ended()
    assert [end.state for end in ended.values()] == [FAILED, FAILED]


def test_hosts_of_the_plans_own_are_made_anew_after_a_run_that_could_not_be_made(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "up", lambda topology, **_: fake.log(up=topology.name))
    monkeypatch.setattr(bench, "down", lambda topology, _: fake.log(down=topology))
    fake.judge = lambda *_, **__: (_ for _ in ()).throw(UsageError("no ledger"))  # type: ignore[method-assign,assignment]
    fake.install()
    three = sweep_plan(DRILL, TOPOLOGY, {"load.rate": [100, 200, 300, 400]}, 1, 5)
    fake.fails = [InfrastructureError(f"artemis{number} does not answer") for number in range(3)]
    with pytest.raises(InfrastructureError, match=r"3 runs in a row could not be made.*artemis2"):
        execute.execute(three, CampaignOptions(fake.runs, bench_hosts=True), Console(quiet=True), lambda _: None)
    assert [next(iter(entry)) for entry in fake.entries()] == ["up", "deploy", "run", "down"] * 3


def test_a_run_that_was_surprised_leaves_its_hosts_to_nobody(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What broke a broker for good broke each drill after it, too; one that saw nothing of its own is tried again."""
    monkeypatch.setattr(bench, "up", lambda topology, **_: fake.log(up=topology.name))
    monkeypatch.setattr(bench, "down", lambda topology, _: fake.log(down=topology))
    two = sweep_plan(DRILL, TOPOLOGY, {"load.rate": [100, 200]}, 1, 5)
    results = [verdict("broken", 4000, broken=["no_loss"]), verdict("kept", 4000)]
    fake.judge = lambda *_, **__: (Verdict.from_json(results.pop(0)), [])  # type: ignore[method-assign]
    fake.install()
    first, second = execute.execute(
        two, CampaignOptions(fake.runs, bench_hosts=True), Console(quiet=True), lambda _: None
    ).values()
    assert (first.state, first.surprised, second.surprised) == (DONE, True, False)
    assert [next(iter(entry)) for entry in fake.entries()] == ["up", "deploy", "run", "down"] * 2
    early = sweep_plan(DRILL, TOPOLOGY, {"load.rate": [300]}, 1, 5)
    fake.fails = [InfrastructureError("no steady state")]
    results.append(verdict("early", None, broken=["no_loss"]) | {"vacuous": ["kill-active"]})
    (only,) = execute.execute(early, CampaignOptions(fake.runs), Console(quiet=True), lambda _: None).values()
    assert (only.state, only.error) == (FAILED, "no steady state")


def test_what_leaves_something_leaves_its_hosts_to_nobody(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may keep in its memory what it held, long after that is delivered; a drill may say what it leaves."""
    monkeypatch.setattr(bench, "up", lambda topology, **_: fake.log(up=topology.name))
    monkeypatch.setattr(bench, "down", lambda topology, _: fake.log(down=topology))
    fake.install()
    options = CampaignOptions(fake.runs, bench_hosts=True)
    for name in (DRILL, "kill_active_backlog", "active_stopped"):
        two = sweep_plan(name, TOPOLOGY, {"load.producers": [2, 4]}, 1, 5)
        execute.execute(two, options, Console(quiet=True), lambda _: None)
    once, twice = ["up", "deploy", "run", "run", "down"], ["up", "deploy", "run", "down"] * 2
    assert [next(iter(entry)) for entry in fake.entries()] == once + twice * 2


def test_settings_that_preflight_refuses_are_told_once_and_the_rest_is_run(fake: Fake) -> None:
    fake.refused = 2000
    assert carry_out(fake, plan()) == 3
    sites = [entry for entry in fake.entries() if entry.get("deploy") == "site"]
    assert [entry.get(VARIABLE) for entry in sites] == [2000, 4000, None]
    words = [one.word for one in outcomes(plan(), CellLog(plan_folder(plan(), fake.runs)).ended(), fake.runs)]
    assert words == ["refused", "refused", "kept", "kept"]
    assert "preflight refuses artemis1" in (plan_folder(plan(), fake.runs) / "index.html").read_text()


def test_one_process_at_a_time(fake: Fake) -> None:
    folder = plan_folder(plan(), fake.runs)
    refused = "another process carries out this plan"
    with held(folder / ".lock", refused), pytest.raises(InfrastructureError, match=refused):
        carry_out(fake, plan())


# --- what it says ---------------------------------------------------------------------------------------------------


def outcome(labels: dict[str, str], repeat: int, word: str, failover: float | None = 4000.0) -> CellOutcome:
    cell = Cell(labels, repeat, DRILL, "artemis_quorum", labels, repeat)
    if word in ("failed", "refused"):
        return CellOutcome(cell, Ended(word, None, "why"), None)
    if word == "pending":
        return CellOutcome(cell, None, None)
    result = verdict("r", failover, ("no_loss",) if word == "broken" else (), ("no_loss",) if word == "unknown" else ())
    return CellOutcome(cell, Ended(DONE, "r"), RunVerdict.from_json(result))


def test_settings_that_differ_are_told_apart() -> None:
    found = places(
        [outcome({"x": x}, n, "kept", base + n) for x, base in (("1", 100.0), ("2", 200.0)) for n in range(8)]
    )
    (one,) = compared(found)
    assert one.significant and one.times is not None and one.times.shift.estimate == 100
    # Smallest two-sided p of 8 and 8.
    assert one.times.p == pytest.approx(2 / 12870)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"a": ["kept", "kept"], "b": ["kept", "kept"]}, "kept"),
        ({"a": ["kept", "kept"], "b": ["kept", "broken"]}, "only"),
        ({"a": ["broken"], "b": ["broken"]}, "broken"),
        ({"a": ["kept"], "b": ["unknown"]}, "unknown"),
        ({"a": ["kept"], "b": ["failed"]}, "failed"),
        ({"a": ["kept"], "b": ["pending"]}, "pending"),
        ({"a": ["broken"], "b": ["pending"]}, "pending"),
        # What cannot be deployed neither keeps nor breaks.
        ({"a": ["kept"], "b": ["refused"]}, "kept"),
        ({"a": ["refused"], "b": ["refused"]}, "refused"),
    ],
)
def test_a_square_is_kept_broken_or_kept_only_with_some_settings(words: dict[str, list[str]], said: str) -> None:
    found = [
        outcome({"mode": "m", "fault": "f", "client": "c", "settings": settings}, number, word)
        for settings, one in words.items()
        for number, word in enumerate(one)
    ]
    (square,) = squares(places(found)).values()
    assert square.word == said
    if said == "only":
        assert (square.kept_with, square.broken_with) == (["a"], ["b"])


def test_a_place_counts_violations_and_failovers_that_never_ended() -> None:
    place = OutcomeGroup({"x": "1"}, tuple(
        outcome({"x": "1"}, n, word, time)
        for n, (word, time) in enumerate([("kept", 1.0), ("broken", None), ("unknown", 3.0), ("failed", None)])
    ))  # fmt: skip
    assert place.violations == (1, 2) and place.never == 1 and place.times == [1.0, 3.0]
    assert place.broken() == {"no_loss": 1} and place.messages("lost") == 1 and place.word == "broken"


def test_a_place_counts_how_often_its_stores_changed_hands() -> None:
    changed = ([], ["pair1", "pair1"], ["pair1", "db"])
    place = OutcomeGroup({}, tuple(
        replace(one, result=replace(one.result or RunVerdict(), takeovers=tuple(map(Takeover, stores))))
        for stores, one in zip(changed, (outcome({}, n, "kept") for n in range(3)), strict=True)
    ))  # fmt: skip
    assert place.takeovers() == {"db": (1, 1), "pair1": (3, 2)}
    assert place_json(place)["takeovers"] == {"db": {"count": 1, "runs": 1}, "pair1": {"count": 3, "runs": 2}}


# --- all drills of a topology ---------------------------------------------------------------------------------------


def test_all_drills_that_apply_and_no_others() -> None:
    pair = [broker("artemis", "a", features=["duplicate_ids"]), broker("artemis", "b", features=["duplicate_ids"])]
    some = [load_drill(name) for name in ("kill_broker", "kill_active", "lost_reply")]
    made = everything_plan(some, find_topology(TOPOLOGY), pair, 2, 7)
    assert [(cell.drill, cell.topology, cell.repeat, cell.seed) for cell in made.cells] == [
        (name, TOPOLOGY, number + 1, 7 + number) for name in ("kill_active", "lost_reply") for number in range(2)
    ]
    with pytest.raises(UsageError, match="no drill applies to artemis_quorum"):
        everything_plan(some, find_topology(TOPOLOGY), [], 1, 1)


# --- matrices -------------------------------------------------------------------------------------------------------


def test_every_matrix_that_is_shipped_makes_a_plan() -> None:
    for path in sorted((paths.ROOT / "chaos" / "matrices").glob("*.yml")):
        name, matrix = load_matrix(path.stem)
        made = matrix_plan(name, matrix, None, 1)
        assert made.cells and {"mode", "fault", "client", "settings"} == set(made.axes)


def test_a_matrix_is_every_combination_but_those_without_sense() -> None:
    matrix = Matrix.model_validate(
        {
            "title": "t",
            "modes": {
                "quorum": {"topology": "artemis_quorum"},
                "short": {"topology": "artemis_quorum", "set": {VARIABLE: 2000}},
            },
            "faults": {"kill": {"drill": DRILL}, "reply": {"drill": "lost_reply"}},
            "clients": {"tx": {}, "single": {"set": {"load.transaction": 0}}},
            "without": [{"fault": "reply", "mode": "short"}],
        }
    )
    made = matrix_plan("m", matrix, 2, 1)
    assert len(made.cells) == (8 - 2) * 2
    assert made.cells[-1].changes == {VARIABLE: 2000, "load.transaction": 0} and made.cells[-1].drill == DRILL
    assert made.cells[-1].labels == {"mode": "short", "fault": "kill", "client": "single", "settings": "as it is"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("modes: [", "line 1: not YAML"),
        ("title: t", "modes: Field required"),
        ("title: t\nmodes: {m: {}}\nfaults: {f: {}}\n", "neither the fault nor another axis names a drill"),
        ("title: t\nmodes: {m: {}}\nfaults: {f: {drill: lost_reply}}\n", "names a topology"),
        (
            "title: t\nmodes: {m: {}}\nfaults: {f: {drill: lost_replay}}\n",
            "did you mean 'lost_reply'",
        ),
        (
            "title: t\nmodes: {m: {speed: 1}}\nfaults: {f: {drill: lost_reply}}\n",
            "modes.m.speed: there is no such field",
        ),
        (
            "title: t\nmodes: {m: {}}\nfaults: {f: {drill: lost_reply}}\nwithout: [{fault: g}]\n",
            "without.0: there is no fault 'g'",
        ),
        (
            "title: t\nmodes: {m: {topology: artemis_quorum, set: {zookeper_tick_time_ms: 1}}}\n"
            "faults: {f: {drill: lost_reply}}\n",
            "did you mean 'zookeeper_tick_time_ms'",
        ),
    ],
)
def test_bad_matrices_are_refused_with_the_place(content: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "m.yml"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        matrix_plan(*load_matrix(str(path)), None, 1)
    assert sentence in str(caught.value)


def test_an_unknown_matrix_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'artemis_quorum'"):
        load_matrix("artemis_qorum")


def test_a_killed_runner_takes_its_playbook_with_it(tmp_path: Path) -> None:
    """A playbook that outlives its runner would change hosts while the next one deploys them."""
    playbook = tmp_path / "long.yml"
    playbook.write_text(
        "- hosts: all\n  gather_facts: false\n  connection: local\n  tasks:\n"
        "    - {name: Wait, ansible.builtin.wait_for: {timeout: 300}}\n"
    )
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts.yml").write_text("all: {hosts: {here: {drill_allowed: true}}}\n")
    program = (
        "from pathlib import Path\nfrom rich.console import Console\n"
        "from brokerdrill.inventory import playbooks, topology\nfrom brokerdrill.base.progress import Progress\n"
        f"playbooks.PLAYBOOKS = Path({str(tmp_path)!r})\n"
        f"found = topology.load(Path({str(tmp_path / 'inventory')!r}))\n"
        f"playbooks.run_playbook(found, 'long', Progress(Console()))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=paths.ROOT, stdout=subprocess.DEVNULL)

    def playing() -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if str(playbook).encode() in words and not words[0].endswith(b"setpriv"):
                found.append(int(path.parent.name))
        return found

    deadline = time.monotonic() + DEADLINE_S
    try:
        while not playing():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    while playing():
        assert time.monotonic() < deadline, "the playbook outlives its runner"
        time.sleep(0.05)


def test_what_a_killed_plan_left_is_never_overlooked(tmp_path: Path) -> None:
    """A spoiled note is said: its topology still has the plan's settings."""
    (tmp_path / "deployed.json").write_text('"artemis_qu')
    with (
        pytest.raises(InfrastructureError, match=r"deployed\.json does not say what a killed plan left deployed"),
        deployments.Deployments(tmp_path, Console(), deploy=False, bench_hosts=False),
    ):
        pass
