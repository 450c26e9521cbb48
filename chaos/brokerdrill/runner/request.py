"""What to run, and whether it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from brokerdrill.errors import UsageError
from brokerdrill.scenario import LoadedScenario
from brokerdrill.topology import Topology


@dataclass(frozen=True)
class RunRequest:
    """What to run: a scenario on a topology, with a seed, into a new directory `run_dir`; `settings` say what was set
    for this run, and go to run.json as they are."""

    loaded: LoadedScenario
    topology: Topology
    run_dir: Path
    seed: int
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """The run's id in its ledger."""
        return self.run_dir.name


def check_request(request: RunRequest) -> None:
    """Refuse before anything is touched. Raises UsageError: drills not allowed here, or the run directory exists."""
    if not request.topology.drill_allowed:
        raise UsageError(
            f"inventory {request.topology.name} does not say `drill_allowed: true` for all its hosts: nothing touched"
        )
    if request.run_dir.exists():
        raise UsageError(f"run directory {request.run_dir} exists already")
