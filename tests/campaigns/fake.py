"""A sweep whose runs are made up: no host is touched, but plan, state, resuming, verdicts and pages are the real ones.

As a program: `python -m tests.campaigns.fake RUNS SPEED [REFUSED]` carries out a plan of six cells, each run taking
SPEED seconds; deployments of the session time REFUSED are refused as preflight would.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from brokerdrill.base.errors import BrokerdrillError, UsageError
from brokerdrill.campaigns import deployments, execute
from brokerdrill.campaigns.execute import CampaignOptions
from brokerdrill.campaigns.plan import CampaignPlan
from brokerdrill.campaigns.sweep import sweep_plan
from brokerdrill.cli import campaigns
from brokerdrill.inventory.topology import Topology
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import Verdict
from brokerdrill.scenario.drill import Drill

from .series import START, verdict

DRILL = "kill_active"
TOPOLOGY = "artemis_quorum"
VARIABLE = "artemis_quorum_session_ms"


def plan(repeat: int = 2) -> CampaignPlan:
    return sweep_plan(DRILL, TOPOLOGY, {VARIABLE: [2000, 4000], "load.rate": [400]}, repeat, seed=11)


class Fake:
    """Stands in for hosts: what was deployed, what was run, in order, in RUNS/log.jsonl."""

    def __init__(self, runs: Path, seconds: float = 0.0, refused: int | None = None) -> None:
        self.runs, self.seconds, self.refused = runs, seconds, refused
        runs.mkdir(exist_ok=True)
        self.fails: list[Exception] = []
        # Whether a run that fails does so before its load has met a fault.
        self.fails_early = False

    def log(self, **entry: Any) -> None:
        with (self.runs / "log.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.runs / "log.jsonl").read_text().splitlines()]

    def deploy(self, topology: Topology, playbook: str, progress: object, extra: Sequence[str] = ()) -> None:
        changed = json.loads(Path(extra[1].removeprefix("@")).read_text()) if extra else {}
        self.log(deploy=playbook, **changed)
        if playbook == "site" and self.refused is not None and changed.get(VARIABLE) == self.refused:
            raise UsageError(f"preflight refuses artemis1: session of {self.refused} ms")

    def record(
        self, drill: Drill, topology: Topology, runs: Path, seeds: Sequence[int], console: Console,
        run_dir: Path, settings: Mapping[str, str], changes: Mapping[str, Any], **_: Any,
    ) -> list[Path]:  # fmt: skip
        self.log(run=run_dir.name, seed=seeds[0], settings=dict(settings), rate=changes.get("load.rate"))
        run_dir.mkdir(parents=True)
        scenario = contract.ScenarioText(drill.name)
        started_at = START.isoformat()
        begun = contract.new_run(
            run_dir.name,
            scenario=scenario,
            topology=topology.name,
            seed=seeds[0],
            started_at=started_at,
            settings=settings,
        )
        contract.write_run(run_dir, begun)
        time.sleep(self.seconds)
        contract.write_run(run_dir, replace(begun, outcome="aborted" if self.fails else "completed"))
        if self.fails:
            raise self.fails.pop(0)
        return [run_dir]

    def judge(
        self, run_dirs: Sequence[Path], console: Console, *, master: str | None = None
    ) -> tuple[Verdict, list[Path]]:
        info = contract.read_run(run_dirs[0])
        session = float(info.settings.get(VARIABLE, 4000))
        result = verdict(info.run_id, session + 10 * (info.seed or 0))
        if info.outcome != "completed":
            result |= {"verdict": "unknown", "as_expected": False, "vacuous": ["met too little"] * self.fails_early}
        (run_dirs[0] / "verdict.json").write_text(json.dumps(result))
        (run_dirs[0] / "report.html").write_text("<title>a run</title>")
        return Verdict.from_json(result), []

    def install(self) -> None:
        """Put this in the place of hosts and Spark."""
        deployments.run_playbook = self.deploy  # type: ignore[assignment]
        execute.record = self.record  # type: ignore[assignment]
        execute.judge = self.judge  # type: ignore[assignment]
        execute.away = self.away  # type: ignore[assignment]

    async def away(self, *_: object) -> dict[str, BrokerdrillError]:
        """All hosts are up."""
        return {}


def carry_out(fake: Fake, chosen: CampaignPlan, **options: Any) -> int:
    return campaigns.carry_out(chosen, CampaignOptions(fake.runs, **options), Console(file=sys.stdout, width=200))


if __name__ == "__main__":
    standing_in = Fake(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
    standing_in.install()
    sys.exit(carry_out(standing_in, plan(repeat=3)))
