"""A run that goes on, as what runs beside its way sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from brokerdrill.faults.executor import Executor
from brokerdrill.ledger.events import EventWriter
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.system import System
from brokerdrill.scenario.model import Scenario


@dataclass(frozen=True)
class LiveRun:
    """A run that goes on, as its guards and all else beside its way may look at it."""

    run_dir: Path
    scenario: Scenario
    system: System
    load: LoadControl
    executor: Executor
    events: EventWriter


# Returns, when a run must end, why; cancelled when the run ends without it.
RunGuard = Callable[[LiveRun], Awaitable[str]]
