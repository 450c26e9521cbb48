"""The main job as its user runs it: `brokerdrill demo`, from any state of the bench to verdicts and reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.ledger.contract import CLASSES
from tests.conftest import DEPLOYED

ROOT = Path(__file__).resolve().parents[2]
BROKERDRILL = [sys.executable, "-m", "brokerdrill"]
PROMISES = {
    "no_loss",
    "no_duplicates",
    "no_phantoms",
    "no_dead_letters",
    "atomic",
    "ordered",
    "single_active",
    "failover_within",
    "failback_within",
    "available",
    "stays_up",
}


@pytest.fixture(scope="module")
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Path]]:
    """The demo's output, and its run directories by scenario."""
    runs = tmp_path_factory.mktemp("demo") / "runs"
    done = subprocess.run([*BROKERDRILL, "demo", "--runs", str(runs)], cwd=ROOT, text=True, capture_output=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    request.config.stash[DEPLOYED] = True
    by_scenario = {json.loads(path.read_text())["scenario"]["name"]: path.parent for path in runs.glob("*/run.json")}
    return done.stdout, by_scenario


def verdict(run_dir: Path) -> dict[str, Any]:
    return dict(json.loads((run_dir / "verdict.json").read_text()))


def test_the_killed_broker_kept_every_promise(demo: tuple[str, dict[str, Path]]) -> None:
    result = verdict(demo[1]["kill_active"])
    assert (result["verdict"], result["as_expected"]) == ("pass", True)
    assert {item["name"] for item in result["promises"]} == PROMISES
    assert {item["verdict"] for item in result["promises"]} == {"pass"}
    assert set(result["messages"]) == set(CLASSES)
    assert sum(result["messages"].values()) > 1000
    assert result["failover"]
    assert all(0 < item["first_send_ms"] <= 8000 for item in result["failover"])


def test_the_lost_reply_is_harmless_with_detection_and_named_without(demo: tuple[str, dict[str, Path]]) -> None:
    assert verdict(demo[1]["lost_reply"])["messages"]["duplicated"] == 0
    result = verdict(demo[1]["lost_reply_undetected"])
    assert (result["verdict"], result["as_expected"]) == ("fail", True)
    (promise,) = [item for item in result["promises"] if item["name"] == "no_duplicates"]
    assert promise["count"] == result["messages"]["duplicated"] > 0
    assert promise["witnesses"][0]["message_id"]


def test_the_faults_took_effect_and_are_healed(demo: tuple[str, dict[str, Path]]) -> None:
    for run_dir in demo[1].values():
        phases = [json.loads(line)["phase"] for line in (run_dir / "journal.jsonl").read_text().splitlines()]
        assert phases.count("intent") == phases.count("verified") == phases.count("healed") > 0


def test_the_user_sees_tables_reports_and_the_verdict(demo: tuple[str, dict[str, Path]]) -> None:
    for promise in PROMISES:
        assert promise in demo[0]
    for run_dir in demo[1].values():
        assert f"{run_dir.name}/report.html" in demo[0].replace("\n", "")
        page = (run_dir / "report.html").read_text()
        assert len(page) > 10_000
        # The page forbids itself to load anything; tests/report sees a browser obey.
        assert "default-src 'none'" in page
    assert "as expected" in demo[0]


def test_the_ledger_alone_gives_the_verdict_again(demo: tuple[str, dict[str, Path]], tmp_path: Path) -> None:
    run_dir = demo[1]["kill_active"]
    out = tmp_path / "again.json"
    command = [*BROKERDRILL, "analyze", str(run_dir), "--json", str(out), "--promise", "failover_within=1"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 1
    (promise,) = [p for p in json.loads(out.read_text())["promises"] if p["name"] == "failover_within"]
    assert (promise["verdict"], promise["bound"]) == ("fail", 1)


def test_what_the_services_waited_for_is_told_apart_from_what_else_their_hosts_do(
    demo: tuple[str, dict[str, Path]],
) -> None:
    by_group = "- cgroup2 " in Path("/proc/self/mountinfo").read_text()
    for run_dir in demo[1].values():
        rows = [json.loads(line) for path in (run_dir / "events").iterdir() for line in path.read_text().splitlines()]
        found = [row for row in rows if row["kind"] == "pressure" and row["name"] == "cpu"]
        assert {row["target"] for row in found} >= {"controller", "artemis1", "artemis2", "load1"}
        # A controller whose processes are in no group of their own cannot tell.
        of_hosts = [row for row in found if row["target"] != "controller"]
        assert {row["detail"]["scope"] for row in of_hosts} == {"services" if by_group else "host"}
