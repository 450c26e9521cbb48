"""`brokerdrill matrix`: mode × fault × client, and where a place is broken, the settings with which it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from brokerdrill import paths
from brokerdrill.errors import UsageError, unknown_name
from brokerdrill.plans.execute import FAILED, REFUSED
from brokerdrill.plans.plan import Cell, Plan, ordered
from brokerdrill.plans.results import BROKEN, KEPT, PENDING, UNKNOWN, Place
from brokerdrill.plans.settings import check_variable, in_scenario, patched
from brokerdrill.scenario import load_scenario
from brokerdrill.topology import find_topology

KIND = "matrix"
MATRICES = paths.ROOT / "chaos" / "matrices"
AXES = ("mode", "fault", "client", "settings")
AS_DEPLOYED = "as it is"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Value(_Strict):
    """A value of an axis: the topology or scenario that it stands for, and what it sets."""

    topology: str | None = Field(None, description="for a mode: the inventory; without it the scenario's own")
    scenario: str | None = Field(None, description="for a fault: the scenario that injects it")
    set: dict[str, Any] = Field({}, description="places in the scenario and inventory variables, with their values")


class Matrix(_Strict):
    """A matrix's YAML file. Each axis maps a name to what it means; every combination is run, but for `without`."""

    title: str
    description: str = ""
    repeat: int = Field(1, ge=1)
    modes: dict[str, Value] = Field(min_length=1)
    faults: dict[str, Value] = Field(min_length=1)
    clients: dict[str, Value] = Field({AS_DEPLOYED: Value()}, min_length=1)
    settings: dict[str, Value] = Field(
        {AS_DEPLOYED: Value()}, min_length=1, description="what may make the difference between kept and broken"
    )
    without: list[dict[str, str]] = Field([], description="combinations that make no sense: axis → name")


def load_matrix(name: str) -> tuple[str, Matrix]:
    """Return (name, matrix) of a file, or of chaos/matrices/NAME.yml. Raises UsageError: file, field, what is wrong."""
    path = Path(name)
    if path.suffix not in (".yml", ".yaml"):
        path = MATRICES / f"{name}.yml"
        if not path.is_file():
            raise unknown_name("matrix", name, (item.stem for item in MATRICES.glob("*.yml")))
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"matrix {path} cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}, line {line}: not YAML: {error.problem}") from None
    try:
        matrix = Matrix.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the matrix"
        raise UsageError(f"{path}: {field}: {first['msg']}") from None
    for place, combination in enumerate(matrix.without):
        for axis, value in combination.items():
            known = dict(zip(AXES, _axes(matrix), strict=True))
            if axis not in known or value not in known[axis]:
                raise UsageError(f"{path}: without.{place}: there is no {axis} {value!r}")
    return path.stem, matrix


def _axes(matrix: Matrix) -> tuple[dict[str, Value], ...]:
    return matrix.modes, matrix.faults, matrix.clients, matrix.settings


def matrix_plan(name: str, matrix: Matrix, repeat: int | None, seed: int) -> Plan:
    """Return the plan of a matrix; seeds count from `seed`, the same ones in every place.

    Raises UsageError: a fault without scenario, an unknown scenario, topology, place or variable, a refused value.
    """
    cells: list[Cell] = []
    versions: dict[str, str] = {}
    for names in product(*_axes(matrix)):
        labels = dict(zip(AXES, names, strict=True))
        if any(all(labels[axis] == value for axis, value in one.items()) for one in matrix.without):
            continue
        values = [axis[word] for axis, word in zip(_axes(matrix), names, strict=True)]
        where = f"matrix {name}: {', '.join(names)}"
        scenario = next((value.scenario for value in values if value.scenario), None)
        if scenario is None:
            raise UsageError(f"{where}: neither the fault nor another axis names a scenario")
        loaded = load_scenario(scenario)
        topology = find_topology(
            next((value.topology for value in values if value.topology), None) or loaded.scenario.topology
        )
        changes = {key: item for value in values for key, item in value.set.items()}
        patched(loaded, {key: item for key, item in changes.items() if in_scenario(key)}, where)
        for key in changes:
            if not in_scenario(key):
                check_variable(key, topology, where)
        versions |= {loaded.name: loaded.sha256, topology.name: topology.sha256}
        place = str(topology.directory) if topology.directory.parent != paths.INVENTORIES else topology.name
        cells += [
            Cell(labels, number + 1, scenario, place, changes, seed + number)
            for number in range(repeat or matrix.repeat)
        ]
    if not cells:
        raise UsageError(f"matrix {name}: `without` leaves nothing to run")
    return Plan(KIND, name, matrix.title, AXES, ordered(cells), versions)


@dataclass(frozen=True)
class Square:
    """One mode × fault × client: its places by settings, and what they say together."""

    places: tuple[Place, ...]

    @property
    def kept_with(self) -> list[str]:
        return [place.labels["settings"] for place in self.places if place.word == KEPT]

    @property
    def broken_with(self) -> list[str]:
        return [place.labels["settings"] for place in self.places if place.word == BROKEN]

    @property
    def word(self) -> str:
        """kept or broken with all its settings, only (kept with some and broken with others), or why that is not known.

        Settings that cannot be deployed keep and break nothing: they count only where there are no others.
        """
        words = {place.word for place in self.places} - {REFUSED} or {REFUSED}
        if {KEPT, BROKEN} <= words:
            return "only"
        return next(word for word in (UNKNOWN, FAILED, PENDING, REFUSED, BROKEN, KEPT) if word in words)


def squares(found: Sequence[Place]) -> dict[tuple[str, str, str], Square]:
    """Return (mode, fault, client) → square, in order."""
    grouped: dict[tuple[str, str, str], list[Place]] = {}
    for place in found:
        labels: Mapping[str, str] = place.labels
        grouped.setdefault((labels["mode"], labels["fault"], labels["client"]), []).append(place)
    return {key: Square(tuple(members)) for key, members in grouped.items()}
