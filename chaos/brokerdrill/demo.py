"""`brokerdrill demo`: the way through the whole house, once, from an empty machine to verdicts that can be trusted."""

from __future__ import annotations

import random
import time
from pathlib import Path

from rich.console import Console

from brokerdrill import bench
from brokerdrill.analysis.verdict import exit_status
from brokerdrill.deploying import run_playbook
from brokerdrill.errors import EXIT_KEPT
from brokerdrill.judging import judge
from brokerdrill.progress import Progress
from brokerdrill.recording import record
from brokerdrill.scenario import load_scenario
from brokerdrill.topology import find_topology

TOPOLOGY = "artemis_quorum"
# The main drill, and one question asked twice: with duplicate detection the answer is none, without it a duplicate.
SCENARIOS = ("artemis_quorum_kill_active", "artemis_lost_reply", "artemis_lost_reply_undetected")


def run_demo(runs: Path, console: Console) -> int:
    """Run the demo into `runs`; return the exit status of its verdicts."""
    started = time.monotonic()
    topology = find_topology(TOPOLOGY)
    with Progress(console) as progress:
        bench.up(topology, fresh=False, progress=progress.step)
        progress.step(f"deploy {TOPOLOGY}: site.yml on {len(topology.hosts)} hosts")
        run_playbook(topology, "site", progress)
        progress.step("deployed")
    seed = random.SystemRandom().randrange(1_000_000)
    done = [path for name in SCENARIOS for path in record(load_scenario(name), topology, runs, [seed], console)]
    console.print("analyse the ledgers")
    result, reports = judge(done, console)
    status = exit_status(result)
    verdict = "as expected: every promise kept, and the violation caught" if status == EXIT_KEPT else "NOT as expected"
    console.print(f"demo: {verdict}, after {time.monotonic() - started:.0f} s")
    for path in reports:
        console.print(f"report: {path}")
    return status
