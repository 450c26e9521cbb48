"""`brokerdrill prove`: what has its rows is not run again, here or elsewhere, and the pages count the rows."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from brokerdrill.base.errors import EXIT_INFRASTRUCTURE, BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.campaigns import execute
from brokerdrill.campaigns.execute import CampaignOptions
from brokerdrill.campaigns.prove import Kept, exit_status, prove_plan
from brokerdrill.campaigns.sweep import sweep_plan
from brokerdrill.cli import campaigns
from brokerdrill.cli.app import app
from brokerdrill.inventory import planned as planning
from brokerdrill.inventory.topology import Host, Topology, find_topology
from brokerdrill.results import proof
from brokerdrill.runner.recording import Interrupted
from brokerdrill.scenario.drill import load_drill
from brokerdrill.scenario.table import KeptResults
from tests.free_ports import free_port
from tests.unit.descriptors import broker

from .fake import DRILL, TOPOLOGY, Fake

CONSOLE = Console(file=sys.stdout, width=200)
DRILLS = [load_drill(DRILL)]


@pytest.fixture(autouse=True)
def _a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every topology is a pair of brokers, without asking Ansible."""
    pair = [broker("artemis", "artemis1"), broker("artemis", "artemis2")]
    monkeypatch.setattr(planning, "planned", lambda *_: pair)
    monkeypatch.setattr(execute, "planned", lambda *_: pair)


def prove(fake: Fake, repeat: int | None, kept: Kept, **options: Any) -> int | None:
    topology = find_topology(TOPOLOGY)
    return campaigns.prove(topology, DRILLS, repeat, 7, kept, CampaignOptions(fake.runs, **options), CONSOLE)


def ran(fake: Fake) -> list[int]:
    return [entry["seed"] for entry in fake.entries() if "run" in entry]


def test_each_run_leaves_a_row_and_is_not_made_again_on_another_machine(fake: Fake, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    assert prove(fake, 2, Kept(folder)) == 0
    assert ran(fake) == [7, 8]
    rows = proof.read(folder)
    assert [(row["drill"], row["topology"], row["seed"], row["as_expected"]) for row in rows] == [
        (DRILL, TOPOLOGY, 7, True),
        (DRILL, TOPOLOGY, 8, True),
    ]
    assert [len(row["promises"]) > 0 and row["failover_ms"] != [] for row in rows] == [True, True]
    # Another machine has the rows and not the runs.
    other = Fake(tmp_path / "elsewhere")
    other.install()
    other.log(begin=True)
    assert prove(other, 3, Kept(folder)) == 0
    assert ran(other) == [9]
    assert len(proof.read(folder)) == 3


def test_a_row_counts_for_as_long_as_what_it_rests_on_is_the_same(fake: Fake, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    prove(fake, 1, Kept(folder))
    (row,) = proof.read(folder)
    plan = prove_plan(DRILLS, find_topology(TOPOLOGY), [], 1, 7)
    assert plan is None, "nothing applies where nothing is deployed"
    for part in proof.PARTS:
        now = {**row["rests_on"], part: "another"}
        assert not proof.unchanged(row, now, proof.PARTS)
        assert proof.unchanged(row, now, [one for one in proof.PARTS if one != part])
    with pytest.raises(UsageError, match="'weather' is nothing that a run rests on"):
        Kept(folder, ["weather"])


def test_a_run_that_could_not_be_made_is_lacking_and_made_the_next_time(fake: Fake, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    fake.fails, fake.fails_early = [InfrastructureError("a host is lost")], True
    assert prove(fake, 1, Kept(folder)) == 3
    assert proof.read(folder) == []
    assert prove(fake, 1, Kept(folder)) == 0
    assert ran(fake) == [7, 7] and len(proof.read(folder)) == 1


def test_a_run_that_ended_early_after_its_faults_is_told_and_made_again(fake: Fake, tmp_path: Path) -> None:
    """Else the pages would tell of those alone in which the brokers came back."""
    folder = tmp_path / "results"
    fake.fails = [InfrastructureError("not in_sync within 120 s")]
    assert prove(fake, 1, Kept(folder)) == 3
    assert [(row["outcome"], row["as_expected"]) for row in proof.read(folder)] == [("aborted", False)]
    assert prove(fake, 1, Kept(folder)) == 0
    assert ran(fake) == [7, 7]
    assert sorted(row["outcome"] for row in proof.read(folder)) == ["aborted", "completed"]


def test_again_runs_what_was_not_as_expected_once_more(fake: Fake, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    prove(fake, 2, Kept(folder))
    assert prove(fake, None, Kept(folder)) is None
    (_, last) = proof.read(folder)
    proof.append(folder, {**last, "as_expected": False, "verdict": "unknown"})
    prove(fake, None, Kept(folder))
    assert ran(fake) == [7, 8, 9]
    # The one that came now was.
    assert prove(fake, None, Kept(folder)) is None
    words = ["prove", TOPOLOGY, "--again", "--proof", str(folder), "--runs", str(fake.runs)]
    assert CliRunner().invoke(app, words).exit_code == 0


@pytest.mark.parametrize(("file", "said"), [(False, "has no kept row yet"), (True, "is no folder of kept rows")])
def test_again_of_nothing_is_no_success(fake: Fake, tmp_path: Path, file: bool, said: str) -> None:
    if file:
        (tmp_path / "results").touch()
    words = ["prove", TOPOLOGY, "--again", "--proof", str(tmp_path / "results"), "--runs", str(fake.runs)]
    told = CliRunner().invoke(app, words)
    assert isinstance(told.exception, UsageError) and said in str(told.exception)


def test_after_an_interrupt_no_other_topology_has_its_turn(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def execute(plan: Any, *_: Any) -> None:
        begun.append(plan)
        raise Interrupted("interrupted by SIGINT; every fault is healed")

    monkeypatch.setattr("brokerdrill.campaigns.execute.execute", execute)
    words = ["prove", TOPOLOGY, TOPOLOGY, "--proof", str(tmp_path / "results"), "--runs", str(fake.runs)]
    assert isinstance(CliRunner().invoke(app, words).exception, Interrupted)
    assert len(begun) == 1


def test_what_applies_nowhere_is_told(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "planned", lambda *_: [])
    assert prove(fake, 1, Kept(tmp_path / "results")) is None
    words = ["prove", TOPOLOGY, "--drill", DRILL, "--proof", str(tmp_path / "results"), "--runs", str(fake.runs)]
    told = CliRunner().invoke(app, words)
    assert isinstance(told.exception, UsageError) and "nothing to prove" in str(told.exception)


def test_no_run_begins_when_the_time_is_over(fake: Fake, tmp_path: Path) -> None:
    fake.log(begin=True)
    assert prove(fake, 2, Kept(tmp_path / "results"), until_s=0) == 3
    assert ran(fake) == []


@pytest.mark.parametrize(
    ("rows", "lacking", "status"),
    [
        ([("pass", True)], 0, 0),
        ([("fail", True)], 0, 0),
        ([("pass", True)], 1, 3),
        ([("unknown", False)], 0, 2),
        ([("unknown", False)], 1, 3),
        ([("fail", False), ("unknown", False)], 1, 1),
    ],
)
def test_the_exit_status_is_that_of_the_worst_run(rows: list[tuple[str, bool]], lacking: int, status: int) -> None:
    assert exit_status([{"verdict": word, "as_expected": right} for word, right in rows], lacking) == status


def test_what_was_seen_is_counted_from_the_rows(fake: Fake, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    prove(fake, 2, Kept(folder))
    first, last = proof.read(folder)
    last |= {"as_expected": False, "vacuous": ["no client was there"], "verdict": "fail"}
    last["promises"] = [{**one, "verdict": "fail"} for one in last["promises"]]
    found = proof.seen([first, last])[DRILL, TOPOLOGY]
    assert (found.runs, found.as_expected, found.vacuous) == (2, 1, 1)
    assert set(found.broken.values()) == {1}
    assert KeptResults(8, 7).words == "7 of 8 (47% to 100%)"


def test_a_row_of_another_text_or_inventory_is_not_counted(fake: Fake, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    prove(fake, 1, Kept(folder))
    (row,) = rows = proof.read(folder)
    assert proof.current(rows) == rows
    for part in (proof.DRILL, proof.INVENTORY):
        assert proof.current([{**row, "rests_on": {**row["rests_on"], part: "another"}}]) == []
    assert proof.current([{**row, "drill": "nobody's"}, {**row, "topology": "elsewhere"}]) == []


def test_a_file_that_is_no_proof_is_refused(tmp_path: Path) -> None:
    (tmp_path / "artemis_quorum.parquet").write_text("no Parquet")
    with pytest.raises(UsageError, match=r"artemis_quorum\.parquet cannot be read"):
        proof.read(tmp_path)


@pytest.fixture
def nobody(tmp_path: Path) -> Topology:
    """A pair of brokers on hosts of which none answers."""
    folder = tmp_path / "nobody"
    folder.mkdir()
    hosts = {name: {"ansible_host": "127.0.0.2", "ansible_port": free_port()} for name in ("artemis1", "artemis2")}
    groups = {"artemis": {"hosts": hosts, "vars": {"drill_allowed": True}}}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"children": groups}}))
    return find_topology(str(folder))


def test_hosts_that_are_not_up_are_said_at_once(
    nobody: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is not started for them: whoever proves all topologies has few of them up."""
    warmed: list[object] = []
    monkeypatch.setattr(execute, "warm_up", warmed.append)
    options, said = CampaignOptions(tmp_path / "runs"), io.StringIO()
    bounded = [broker("artemis", name, settings={"failover_within": 5000}) for name in ("artemis1", "artemis2")]
    for module in (planning, execute):
        monkeypatch.setattr(module, "planned", lambda *_: bounded)
    status = campaigns.prove(nobody, DRILLS, 1, 7, Kept(tmp_path / "results"), options, Console(file=said, width=200))
    assert status == EXIT_INFRASTRUCTURE
    assert "nobody: 2 of 2 hosts are not up: host artemis1 (127.0.0.2) cannot be reached: " in said.getvalue()
    assert "cell 1" not in said.getvalue()
    assert warmed == []
    assert not list((tmp_path / "runs").glob("*kill_active*"))


def test_what_is_up_is_proven_whatever_else_is_not(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a plan of several topologies one that is up is enough to begin."""
    up = find_topology(TOPOLOGY)

    async def away(hosts: Sequence[Host], _: float) -> dict[str, BrokerdrillError]:
        return {} if list(hosts) == list(up.hosts) else {"one": InfrastructureError("away")}

    monkeypatch.setattr(execute, "away", away)
    (cell, *_) = sweep_plan(DRILL, TOPOLOGY, {"load.rate": [400]}, 1, seed=1).cells
    execute._refuse_away([replace(cell, topology="artemis_peers"), cell])
    with pytest.raises(InfrastructureError, match="a host is not up: away; `brokerdrill bench up artemis_peers`"):
        execute._refuse_away([replace(cell, topology="artemis_peers")])


def test_what_all_drills_rest_on_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles are a thousand files, and there are hundreds of drills."""
    read: list[Path] = []
    monkeypatch.setattr(proof, "fingerprint", lambda directory, *_: read.append(directory) or str(directory))
    found = proof.rests_on([replace(DRILLS[0], name=f"drill{number}") for number in range(9)], find_topology(TOPOLOGY))
    assert len(found) == 9
    assert len(read) == len(set(read)) > 0
