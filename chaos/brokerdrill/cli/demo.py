"""`brokerdrill demo`: the way through the whole house, once, from an empty machine to verdicts that can be trusted."""

from __future__ import annotations

import random
import time
from pathlib import Path

from rich.console import Console

from brokerdrill.base.errors import EXIT_KEPT
from brokerdrill.base.progress import Progress
from brokerdrill.bench import bench
from brokerdrill.cli.judged import judged
from brokerdrill.inventory.playbooks import run_playbook
from brokerdrill.inventory.topology import Topology, find_topology
from brokerdrill.results.warm import warm_up
from brokerdrill.runner.recording import record
from brokerdrill.scenario.drill import load_drill

TOPOLOGY = "artemis_quorum"
# The main drill, and one question asked twice: with duplicate detection the answer is none, without it a duplicate.
DRILLS = ("kill_active", "lost_reply", "lost_reply_undetected")


def run_demo(runs: Path, console: Console) -> int:
    """Run the demo into `runs`; return the exit status of its verdicts."""
    started = time.monotonic()
    topology = find_topology(TOPOLOGY)
    with Progress(console) as progress:
        bench.up(topology, fresh=False, progress=progress.step)
        progress.step(f"deploy {TOPOLOGY}: site.yml on {len(topology.hosts)} hosts")
        run_playbook(topology, "site", progress)
        progress.step("deployed")
    warm_up()
    seed = random.SystemRandom().randrange(1_000_000)
    status, reports = judged(lambda: _record(topology, runs, seed, console), console)
    verdict = "as expected: every promise kept, and the violation caught" if status == EXIT_KEPT else "NOT as expected"
    console.print(f"demo: {verdict}, after {time.monotonic() - started:.0f} s")
    for path in reports:
        console.print(f"report: {path}")
    return status


def _record(topology: Topology, runs: Path, seed: int, console: Console) -> list[Path]:
    done = [path for name in DRILLS for path in record(load_drill(name), topology, runs, [seed], console)]
    console.print("analyse the ledgers")
    return done
