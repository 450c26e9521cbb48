"""What goes wrong for a user: each one clear sentence and the documented exit status, nothing left running or lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from brokerdrill.hosts.connection import HostConnection
from brokerdrill.inventory.topology import Topology
from brokerdrill.runner.guards import disks

from .conftest import BROKERDRILL, ROOT

QUICK = """\
title: A short load
description: Sends a little, breaks nothing.
topology: artemis_quorum
load: {producers: 2, consumers: 2, addresses: [drill.q0], RATE transaction: 5}
steady_state: {acknowledged: 20, timeout: 60}
method:
  - {type: probe, name: sends, until: acknowledged, count: COUNT, timeout: 60}
promises: [no_loss, no_duplicates]
"""


def brokerdrill(*words: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*BROKERDRILL, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, env={**os.environ, **(env or {})})


def assert_refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """One sentence on standard error with these words, and this exit status."""
    said = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode == status, (done.stdout, done.stderr)
    assert len(said) == 1, said
    assert said[0].startswith("brokerdrill: ")
    for word in words:
        assert word in said[0], said[0]


@pytest.fixture
def inventory(tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], None]], Path]:
    """Return a copy of the inventory, with the bench's addresses and variables, that a function has changed."""

    def make(change: Callable[[dict[str, Any]], None]) -> Path:
        folder = tmp_path / "changed"
        shutil.copytree(ROOT / "inventories" / "artemis_quorum", folder)
        shutil.copy(ROOT / "bench" / "artemis_quorum.yml", folder / "bench.yml")
        for path in (ROOT / "bench" / "group_vars").glob("*.yml"):
            with (folder / "group_vars" / path.name).open("a") as file:
                file.write(path.read_text())
        hosts = yaml.safe_load((folder / "bench.yml").read_text())
        change(hosts)
        (folder / "bench.yml").write_text(yaml.safe_dump(hosts))
        return folder

    return make


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    path = tmp_path / "quick.yml"
    path.write_text(QUICK.replace("RATE", "rate: 100,").replace("COUNT", "20"))
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "kill_activ", "artemis_quorum"), "did you mean 'kill_active'?"),
        (("run", "kill_active"), "say where to run it: brokerdrill run kill_active TOPOLOGY"),
        (("run",), "name a drill and a topology"),
        (("run", "--all", "kill_active", "artemis_quorum"), "name the topology and nothing else"),
        (("run", "kill_active", "artemis_quorun"), "did you mean 'artemis_quorum'?"),
        (("deploy", "artemis_quorun"), "did you mean 'artemis_quorum'?"),
        (("deploy", "artemis_quorum", "-e", "nothing"), "write NAME=VALUE, a mapping as JSON, or @FILE"),
        (("bench", "up", "artemis_quorun"), "did you mean 'artemis_quorum'?"),
        (("analyze", "/nowhere/at/all"), "/nowhere/at/all"),
        (("analyze", "/nowhere", "--promise", "no_los"), "did you mean 'no_loss'?"),
        (("heal", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_names_that_are_not_there(words: tuple[str, ...], said: str) -> None:
    assert_refused(brokerdrill(*words), 64, said)


def test_a_copied_inventory_does_not_allow_drills(tmp_path: Path, quick: Path) -> None:
    folder = tmp_path / "production"
    shutil.copytree(ROOT / "inventories" / "artemis_quorum", folder)
    assert_refused(brokerdrill("run", quick, folder), 64, "production", "drill_allowed: true")


def test_preflight_refuses_before_anything_is_touched(topology: Topology, inventory: Callable[..., Path]) -> None:
    folder = inventory(lambda hosts: None)
    for path in (folder / "group_vars").rglob("*.yml"):
        path.write_text(path.read_text().replace("artemis_quorum_session_ms: 4000", "artemis_quorum_session_ms: 40000"))
    assert_refused(brokerdrill("deploy", folder), 64, "preflight", "session")


def test_a_host_that_does_not_answer(topology: Topology, inventory: Callable[..., Path], quick: Path) -> None:
    def add(hosts: dict[str, Any]) -> None:
        hosts["all"]["children"]["load"]["hosts"] = {"load9": {"ansible_host": "172.30.16.99"}}

    done = brokerdrill("run", quick, inventory(add), "--runs", quick.parent / "runs")
    assert_refused(done, 3, "load9", "172.30.16.99")


def test_a_topology_that_is_not_deployed(topology: Topology, inventory: Callable[..., Path], tmp_path: Path) -> None:
    def only_load(hosts: dict[str, Any]) -> None:
        hosts["all"]["hosts"] = {"load1": hosts["all"]["hosts"]["load1"]}
        hosts["all"]["children"] = {"load": hosts["all"]["children"]["load"]}

    folder = inventory(only_load)
    (folder / "hosts.yml").write_text("all: {children: {load: {hosts: {load1: }}}}\n")
    done = brokerdrill("run", "by_client", folder, "--runs", tmp_path / "runs")
    assert_refused(done, 3, "no host has the descriptor of a broker", "is the topology deployed?")


def test_a_run_directory_that_exists(topology: Topology, quick: Path) -> None:
    assert_refused(brokerdrill("run", quick, "--run-dir", quick.parent), 64, "exists already")


def test_no_engine() -> None:
    done = brokerdrill("bench", "up", "artemis_quorum", env={"DOCKER_HOST": "tcp://127.0.0.1:1"})
    assert_refused(done, 3, "engine")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


def test_a_disk_full_while_the_ledger_comes_home(topology: Topology, quick: Path, small_disk: Path) -> None:
    done = brokerdrill("run", quick, "--runs", small_disk)
    assert_refused(done, 3, "small")


@pytest.fixture
def small_spools(on_hosts: Callable[..., Any]) -> Iterator[None]:
    """The load host's spools are on a disk that the guard lets a run begin on, and soon ends it."""
    spool = "/var/lib/brokerdrill/runs"
    size = disks.RESERVE_BYTES + 2 * disks.MIB

    async def shrink(connections: dict[str, HostConnection]) -> None:
        await connections["load1"].sh(f"mount -t tmpfs -o size={size} tmpfs {spool}", check=True)

    async def restore(connections: dict[str, HostConnection]) -> None:
        await connections["load1"].sh(f"umount {spool}", check=True)

    on_hosts(shrink)
    yield
    on_hosts(restore)


@pytest.mark.usefixtures("topology", "small_spools")
def test_a_disk_that_gets_full_while_workers_write(tmp_path: Path) -> None:
    scenario = tmp_path / "full.yml"
    scenario.write_text(QUICK.replace("RATE", "").replace("COUNT", "10000000"))
    done = brokerdrill("run", scenario, "--runs", tmp_path / "runs")
    # It ended early, with all that it saw as expected.
    assert_refused(done, 2, "abort: load host load1 has", "MiB left for spools")
    # What had been written by then is home and judged, and nothing is left to heal.
    (report,) = (tmp_path / "runs").glob("*/report.html")
    run_dir = report.parent
    assert all(path.stat().st_size > 0 for path in (run_dir / "ops").iterdir())
    assert brokerdrill("heal", tmp_path / "runs").returncode == 0


@pytest.mark.usefixtures("topology")
def test_a_workers_virtual_machine_that_dies(on_hosts: Callable[..., Any], tmp_path: Path) -> None:
    """The sentence tells what befell it and where, and the machine's whole report is evidence."""
    scenario, runs = tmp_path / "dies.yml", tmp_path / "runs"
    scenario.write_text(QUICK.replace("RATE", "").replace("COUNT", "10000000"))

    async def crash(connections: dict[str, HostConnection]) -> None:
        # The machine is there as soon as something has been sent; what other runs left is older than the mark.
        script = """mark=$(mktemp)
until pid=$(pgrep -o -f 'brokerdrill.workload.worke[r]') &&
  [ -n "$(find /var/lib/brokerdrill/runs -name 'worker-1.spool' -newer $mark -size +8k)" ]; do sleep 0.2; done
rm $mark
kill -SEGV $pid"""
        await connections["load1"].sh(script, timeout=60, check=True)

    command = [*BROKERDRILL, "run", str(scenario), "--runs", str(runs)]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        on_hosts(crash)
        out, err = running.communicate(timeout=120)
    done = subprocess.CompletedProcess(command, running.returncode, out, err)
    assert_refused(done, 3, "worker worker-", "signal ABRT", "A fatal error has been detected", "SIGSEGV")
    (report,) = runs.glob("*/evidence/worker-*.txt")
    assert "R E G I S T E R S" in report.read_text() or "Registers:" in report.read_text()
