"""A change of the run that keeps every promise, and what is then said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.analysis.batch import Row
from tests.analysis.kept_run import kept

Change = Callable[[list[Row], list[Row]], None]


@dataclass(frozen=True)
class Case:
    """A change of the run that keeps every promise: of run.json's fields (`run`), of its operations and events. `told`:
    the verdict of the promises that it is about ("": any); all others pass, unless the run is `vacuous`. `as_expected`:
    whether those that are expected to be violated, or known to be, are so (None: none is)."""

    change: Change
    told: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    vacuous: bool = False
    all_unknown: bool = False
    renumber: bool = True
    as_expected: bool | None = None


def nothing(ops: list[Row], events: list[Row]) -> None:
    """Change no row."""


def keep(ops: list[Row], wanted: Callable[[Row], bool]) -> None:
    ops[:] = [row for row in ops if wanted(row)]


def without_promises(*names: str) -> dict[str, Any]:
    return {"promises": tuple(one for one in kept()[0].promises if one.name not in names)}
