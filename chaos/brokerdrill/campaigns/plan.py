"""A plan: cells, each one run of a scenario with settings, in the order in which they are carried out. Plain values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from brokerdrill.campaigns.settings import in_scenario


@dataclass(frozen=True)
class Cell:
    """One run: `labels` (axis → word) are its place on the page, `repeat` counts runs of the same place from 1,
    `drill` and `topology` are names or paths, `changes` what is set (`settings.in_scenario` says what is
    deployed)."""

    labels: Mapping[str, str]
    repeat: int
    drill: str
    topology: str
    changes: Mapping[str, Any]
    seed: int

    @property
    def key(self) -> str:
        """What names the cell in the journal of its plan."""
        return digest(asdict(self))

    @property
    def deployment(self) -> dict[str, Any]:
        """The inventory variables that it changes."""
        return {name: value for name, value in self.changes.items() if not in_scenario(name)}

    @property
    def scenario_changes(self) -> dict[str, Any]:
        return {name: value for name, value in self.changes.items() if in_scenario(name)}


@dataclass(frozen=True)
class CampaignPlan:
    """`kind` (sweep, matrix), `name` and `title` say what it is; `axes` the names of the labels in order; `versions`
    what it rests on (a drill's or inventory's name → sha256): another text is another plan."""

    kind: str
    name: str
    title: str
    axes: tuple[str, ...]
    cells: tuple[Cell, ...]
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return digest(asdict(self))

    @property
    def folder(self) -> str:
        """The name of the folder that keeps the plan's state and page."""
        return f"{self.kind}-{self.name}-{self.key[:8]}"

    def places(self) -> list[dict[str, str]]:
        """The labels of all cells, each once, in order."""
        found: dict[tuple[str, ...], dict[str, str]] = {}
        for cell in self.cells:
            found.setdefault(tuple(cell.labels.values()), dict(cell.labels))
        return list(found.values())


def digest(value: Any) -> str:
    """Return the SHA-256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def ordered(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return cells so that each deployment is made once, and within it the repeats come in rounds: what changes slowly
    while a plan is carried out then falls on all settings of a deployment alike."""
    deployments: dict[str, int] = {}
    for cell in cells:
        deployments.setdefault(digest((cell.topology, cell.deployment)), len(deployments))
    return tuple(sorted(cells, key=lambda cell: (deployments[digest((cell.topology, cell.deployment))], cell.repeat)))
