"""Each operation playbook under load, on real brokers: nothing lost, nothing twice, and the gap as measured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.base.progress import Progress
from brokerdrill.bench import bench
from brokerdrill.inventory.playbooks import run_playbook
from brokerdrill.inventory.topology import Topology, find_topology
from tests.drill.conftest import BROKERDRILL, ROOT

pytestmark = pytest.mark.long


def fresh(name: str) -> Topology:
    found = find_topology(name)
    bench.up(found, fresh=True, progress=print)
    return found


@pytest.fixture(scope="module")
def shared_store() -> Iterator[Topology]:
    """A pair with a shared store at the older version, which the first test upgrades."""
    found = fresh("artemis_shared_store")
    run_playbook(found, "site", Progress(Console()), ["-e", "artemis_version=2.44.0"])
    yield found
    bench.down(found.name)


@pytest.fixture
def peers() -> Iterator[Topology]:
    found = fresh("artemis_peers")
    run_playbook(found, "site", Progress(Console()))
    yield found
    bench.down(found.name)


def drill(name: str, topology: Topology, runs: Path) -> dict[str, Any]:
    """Run the drill; return its promises by name. The exit status says whether all were kept."""
    done = subprocess.run(
        [*BROKERDRILL, "run", name, topology.name, "--runs", str(runs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (path.parent for path in runs.glob("*/run.json"))
    analyzed = [*BROKERDRILL, "analyze", str(run), "--json", str(runs / "verdict.json")]
    subprocess.run(analyzed, cwd=ROOT, capture_output=True, check=True)
    verdict = json.loads((runs / "verdict.json").read_text())
    return {promise["name"]: promise for promise in verdict["promises"]}


@pytest.mark.parametrize("name", ["upgrade", "rolling_restart", "takeover_failback"])
def test_a_pair_under_load(shared_store: Topology, tmp_path: Path, name: str) -> None:
    promises = drill(name, shared_store, tmp_path)
    assert promises["no_loss"]["count"] == promises["no_duplicates"]["count"] == 0
    assert promises["available"]["measured"] > 0, "the gap is reported"


def test_the_newest_data_start_first(peers: Topology, tmp_path: Path) -> None:
    promises = drill("newest_data", peers, tmp_path)
    assert promises["no_loss"]["count"] == 0
