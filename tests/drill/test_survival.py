"""A runner that dies in the middle of a fault leaves a system that becomes whole, and a ledger that can be judged."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.json_lines import entries
from brokerdrill.faults.lease import SILENT_S, left_over
from brokerdrill.inventory.topology import Topology
from brokerdrill.ledger import journal
from brokerdrill.runner.watching.live_file import LIVE_FILE

from .conftest import BROKERDRILL, ROOT

pytestmark = pytest.mark.usefixtures("unleased")

SCENARIO = """\
title: Hold the active broker down
description: The runner is ended while the fault lasts.
topology: artemis_quorum
load: {producers: 2, consumers: 2, workers: 2, addresses: [drill.q0], rate: 100, transaction: 5}
steady_state: {acknowledged: 20}
method:
  - {type: action, name: hold, fault: kill, target: active, ttl: TTL}
  - {type: probe, name: never, until: acknowledged, count: 100000000, timeout: 300}
promises: [no_loss, no_duplicates, single_active]
"""


@pytest.fixture
def held(topology: Topology, tmp_path: Path) -> Iterator[Callable[[int], tuple[subprocess.Popen[str], Path]]]:
    """Start a runner that holds a fault with the given time-to-live; returns it when the fault is verified."""
    started: list[subprocess.Popen[str]] = []

    def start(ttl: int) -> tuple[subprocess.Popen[str], Path]:
        scenario = tmp_path / "hold.yml"
        scenario.write_text(SCENARIO.replace("TTL", str(ttl)))
        runs = tmp_path / "runs"
        command = [*BROKERDRILL, "run", str(scenario), "--runs", str(runs), "--seed", "1"]
        runner = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        started.append(runner)
        deadline = time.monotonic() + 180
        while True:
            noted = [e for path in runs.glob("*/journal.jsonl") for e in journal.read(path)]
            if any(entry["phase"] == "verified" for entry in noted):
                return runner, runs
            assert runner.poll() is None, runner.communicate()[0]
            assert time.monotonic() < deadline, "the fault was never verified"
            time.sleep(0.1)

    yield start
    for runner in started:
        if runner.poll() is None:
            runner.kill()
        if runner.stdout is not None and not runner.stdout.closed:
            runner.communicate()


def until_whole(on_hosts: Callable[..., Any], limit_s: float) -> None:
    """Wait until no host holds a fault; the lease of a runner that was killed ends by itself, too."""

    async def work(connections: Any) -> None:
        deadline = time.monotonic() + limit_s
        while await left_over(connections.values()):
            assert time.monotonic() < deadline, "a fault is still there"
            await asyncio.sleep(0.2)
        deadline += SILENT_S
        while any([(await one.kernel("status"))["lease"] for one in connections.values()]):
            assert time.monotonic() < deadline, "a lease is still there"
            await asyncio.sleep(0.2)

    on_hosts(work)


def only_run(runs: Path) -> Path:
    """The directory of the one run; the table of results may stand beside it."""
    (run_file,) = runs.glob("*/run.json")
    return run_file.parent


def analyse(runs: Path, tmp_path: Path) -> dict[str, Any]:
    run_dir = only_run(runs)
    subprocess.run([*BROKERDRILL, "analyze", str(run_dir), "--json", str(tmp_path / "v.json")], cwd=ROOT)
    return dict(json.loads((tmp_path / "v.json").read_text()))


def assert_serves_again(tmp_path: Path) -> None:
    """The system is whole when a whole drill passes on it."""
    scenario = tmp_path / "again.yml"
    text = SCENARIO.replace("TTL", "60").replace("count: 100000000", "count: 50")
    lines = [line for line in text.splitlines() if "name: hold" not in line]
    scenario.write_text("\n".join(lines))
    done = subprocess.run(
        [*BROKERDRILL, "run", str(scenario), "--runs", str(tmp_path / "again")],
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_sigkill_and_then_heal(held: Callable[..., Any], on_hosts: Callable[..., Any], tmp_path: Path) -> None:
    runner, runs = held(300)
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    refused = subprocess.run(
        [*BROKERDRILL, "run", str(tmp_path / "hold.yml"), "--runs", str(tmp_path / "other")],
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    assert refused.returncode == 3
    # The first host that is asked may be one without the fault: there it is the dead run's lease that says so.
    assert re.search(r"is not healed \(kill of run|holds it for run \S+-hold-", refused.stderr), refused.stderr
    healed = subprocess.run([*BROKERDRILL, "heal", str(runs)], cwd=ROOT, text=True, capture_output=True)
    assert healed.returncode == 0, healed.stdout + healed.stderr
    until_whole(on_hosts, 1)
    verdict = analyse(runs, tmp_path)
    assert sum(verdict["messages"].values()) > 0
    assert {item["name"]: item["verdict"] for item in verdict["promises"]}["no_duplicates"] == "pass"
    assert_serves_again(tmp_path)


def test_sigkill_and_nothing_but_the_hosts_timer(
    held: Callable[..., Any], on_hosts: Callable[..., Any], tmp_path: Path
) -> None:
    runner, _ = held(10)
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    until_whole(on_hosts, 40)
    assert_serves_again(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_heals_drains_and_judges(
    held: Callable[..., Any], on_hosts: Callable[..., Any], number: signal.Signals
) -> None:
    runner, runs = held(300)
    runner.send_signal(number)
    output, _ = runner.communicate(timeout=180)
    assert runner.returncode == 2, output
    assert "every fault is healed" in output
    assert "note: it ended early: interrupted" in output
    assert re.search(r"kept\s+no_duplicates", output)
    until_whole(on_hosts, 1)
    run_dir = only_run(runs)
    assert json.loads((run_dir / "run.json").read_text())["outcome"] == "aborted"
    assert (run_dir / "report.html").exists()


def run_early(tmp_path: Path, scenario: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run a scenario that ends early; return how its process ended and the verdict that it wrote."""
    path = tmp_path / "early.yml"
    path.write_text(scenario)
    command = [*BROKERDRILL, "run", str(path), "--runs", str(tmp_path / "runs"), "--json", str(tmp_path / "v.json")]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert (tmp_path / "v.json").exists(), done.stdout + done.stderr
    assert len([*(tmp_path / "runs").glob("*/report.html")]) == 1
    return done, dict(json.loads((tmp_path / "v.json").read_text()))


def verdicts(verdict: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["verdict"] for item in verdict["promises"]}


def test_a_limit_ends_the_run_heals_and_judges(on_hosts: Callable[..., Any], tmp_path: Path) -> None:
    done, verdict = run_early(
        tmp_path,
        SCENARIO.replace(
            "{type: action, name: hold, fault: kill, target: active, ttl: TTL}",
            "{type: action, name: cut-off, fault: partition, target: link load→artemis, ttl: 60}",
        )
        + "abort: {silence: 4}\n",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "abort: no send was acknowledged for" in done.stderr
    assert verdicts(verdict)["no_loss"] == verdicts(verdict)["no_duplicates"] == "pass"
    until_whole(on_hosts, 1)


def test_a_broker_that_does_not_come_back_is_a_verdict(on_hosts: Callable[..., Any], tmp_path: Path) -> None:
    """The probe waits for a failback that cannot come: the killed broker is held down."""
    text = SCENARIO.replace("TTL", "120").replace(
        "{type: probe, name: never, until: acknowledged, count: 100000000, timeout: 300}",
        "{type: probe, name: back, until: failed_back, of: hold, timeout: 12}",
    )
    text = text.replace("single_active]", "single_active, {name: available, bound_ms: 1}]")
    done, verdict = run_early(tmp_path, text)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "probe back: not failed_back within 12 s" in done.stderr
    assert verdicts(verdict)["available"] == "fail"
    assert verdicts(verdict)["no_loss"] == "pass"
    until_whole(on_hosts, 1)


def test_an_end_that_no_fault_explains_breaks_stays_up(on_hosts: Callable[..., Any], tmp_path: Path) -> None:
    """Somebody else kills the passive broker while the drill goes on; systemd starts it again."""
    path = tmp_path / "stranger.yml"
    text = SCENARIO.replace("TTL", "60").replace("count: 100000000, timeout: 300", "count: 1500, timeout: 120")
    text = "\n".join(line for line in text.splitlines() if "name: hold" not in line)
    path.write_text(text.replace("single_active]", "single_active, stays_up]"))
    runs = tmp_path / "runs"
    command = [*BROKERDRILL, "run", str(path), "--runs", str(runs), "--json", str(tmp_path / "v.json")]
    runner = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 180
        while not any('"load"' in path.read_text() for path in runs.glob("*/events/*.jsonl")):
            assert runner.poll() is None, runner.communicate()[0]
            assert time.monotonic() < deadline, "the load never began"
            time.sleep(0.1)

        async def kill(connections: Any) -> None:
            await connections["artemis2"].sh("systemctl kill --signal=SIGKILL artemis.service", check=True)

        on_hosts(kill)
        output, _ = runner.communicate(timeout=240)
    finally:
        if runner.poll() is None:
            runner.kill()
            runner.communicate()
    assert runner.returncode == 1, output
    assert re.search(r"artemis2's process ended at [\d.]+ s \(killed, KILL\)", output)
    (broken,) = [
        item for item in json.loads((tmp_path / "v.json").read_text())["promises"] if item["verdict"] == "fail"
    ]
    assert broken["name"] == "stays_up"
    (witness,) = [one for one in broken["witnesses"] if one["instance"] == "artemis2"]
    assert (witness["how"], witness["status"]) == ("killed", "KILL")
    assert "SIGKILL" not in witness["last"], "the broker's own words, not systemd's"


def until_nothing_is_acknowledged(runs: Path) -> None:
    """Wait until the load has got no reply for a second, ten times as long as a producer's transactions are apart."""
    deadline = time.monotonic() + 60
    while True:
        counts = [row["sent_ok"] for file in runs.glob(f"*/{LIVE_FILE}") for row in entries(file) if "sent_ok" in row]
        if len(counts) > 4 and len({*counts[-5:]}) == 1:
            return
        assert time.monotonic() < deadline, counts[-5:]
        time.sleep(0.1)


def test_workers_killed_in_the_middle_of_a_transaction_leave_a_ledger_that_stands(
    held: Callable[..., Any], on_hosts: Callable[..., Any], tmp_path: Path
) -> None:
    """The active broker is down, so every producer is in the middle of a transaction when SIGKILL comes."""
    runner, runs = held(300)

    async def kill_workers(connections: Any) -> None:
        await connections["load1"].sh("kill -9 $(pgrep -f '[b]rokerdrill.workload.worker')", check=True)

    until_nothing_is_acknowledged(runs)
    on_hosts(kill_workers)
    output, _ = runner.communicate(timeout=180)
    assert runner.returncode == 3, output
    assert "it ended with signal KILL" in output
    assert "verdict: " in output, "what was recorded is judged all the same"
    until_whole(on_hosts, 1)
    verdict = analyse(runs, tmp_path)
    judged = {item["name"]: item["verdict"] for item in verdict["promises"]}
    assert verdict["messages"]["ok"] > 0
    # Its producer may have been told by then that the transaction is rolled back, and not have begun it anew.
    assert verdict["messages"]["unresolved"] + verdict["messages"]["rejected"] > 0
    assert verdict["messages"]["unexpected"] == verdict["messages"]["phantom"] == 0
    assert judged["no_duplicates"] == "pass"
    # The consumers may have taken all that was acknowledged before they were killed.
    assert judged["no_loss"] == ("unknown" if verdict["messages"]["unseen"] else "pass")
