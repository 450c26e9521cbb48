"""What to run, and whether it may be."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import UsageError
from brokerdrill.faults.lease import SILENT_S, LeaseRequest
from brokerdrill.inventory.allowance import Allowance
from brokerdrill.inventory.topology import Topology
from brokerdrill.runner import approval
from brokerdrill.runner.approval import Approval
from brokerdrill.runner.guards.stop_files import refuse_stopped
from brokerdrill.runner.live_run import RunGuard
from brokerdrill.scenario.drill import Drill
from brokerdrill.scenario.model import LoadedScenario
from brokerdrill.scenario.radius import Limits, Radius, Reached, limits, too_far


@dataclass(frozen=True)
class RunRequest:
    """What to run: a drill on a topology, with a seed, into a new directory `run_dir`; `changes` are places of the
    scenario with values for this run, `settings` say all that was set for it, and go to run.json as they are. Each of
    `guards` may end the run. It stays within the inventory's radius, and within `radius`. `purge`: what waits in the
    drill's addresses is removed, whosever it is. A host that does not hear of the run for `silent_s` heals itself.
    `approval`: who allowed the run, where the inventory asks for that."""

    drill: Drill
    topology: Topology
    run_dir: Path
    seed: int
    settings: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    guards: tuple[RunGuard, ...] = ()
    radius: Radius | None = None
    purge: bool = False
    silent_s: float = SILENT_S
    approval: Approval | None = None

    @property
    def run_id(self) -> str:
        """The run's id in its ledger."""
        return self.run_dir.name

    @property
    def limits(self) -> Limits:
        """What the run must stay within. Raises UsageError where the inventory's radius is none."""
        return limits(self.topology, self.radius)

    def lease(self, allowances: Mapping[str, Allowance]) -> LeaseRequest:
        """What the run asks its hosts for before it touches anything."""
        return LeaseRequest(self.run_id, str(self.topology.directory.resolve()), self.silent_s, allowances)


def refuse_too_far(request: RunRequest, reach: Reached) -> None:
    """Raise UsageError where the run could go further than it may, whatever the live roles are."""
    problems = too_far(reach, request.limits)
    if problems:
        raise UsageError(f"{request.drill.name} on {request.topology.name}: {'; '.join(problems)}: nothing touched")


def approved(request: RunRequest, loaded: LoadedScenario, reach: Reached) -> RunRequest:
    """Return the request with an approval that is spent for it, where the inventory asks for one. Raises UsageError
    where there is none."""
    if not approval.asks(request.topology):
        return request
    what = approval.asked(loaded, request.topology, reach, request.purge)
    now = datetime.datetime.now(datetime.UTC)
    return replace(request, approval=approval.take(request.run_dir.parent, what, request.run_id, now))


def check_request(request: RunRequest) -> None:
    """Refuse before anything is touched. Raises UsageError: no drills allowed here, a STOP file, a run of that name."""
    if not request.topology.drill_allowed:
        raise UsageError(
            f"inventory {request.topology.name} does not say `drill_allowed: true` for all its hosts: nothing touched"
        )
    if request.run_dir.exists():
        raise UsageError(f"run directory {request.run_dir} exists already")
    refuse_stopped(request.run_dir.parent)
