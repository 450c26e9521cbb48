"""`brokerdrill matrix`: mode × fault × client, and where a place is broken, the settings with which it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field

from brokerdrill.base import paths
from brokerdrill.base.documents import Strict, as_model, parse_yaml
from brokerdrill.base.errors import UsageError, unknown_name
from brokerdrill.campaigns.execute import FAILED, REFUSED
from brokerdrill.campaigns.plan import CampaignPlan, Cell, ordered
from brokerdrill.campaigns.results import BROKEN, KEPT, PENDING, UNKNOWN, OutcomeGroup
from brokerdrill.campaigns.settings import check_variable, in_scenario
from brokerdrill.inventory.topology import find_topology
from brokerdrill.scenario.drill import check_changes, load_drill

KIND = "matrix"
MATRICES = paths.ROOT / "chaos" / "matrices"
AXES = ("mode", "fault", "client", "settings")
AS_DEPLOYED = "as it is"


class Value(Strict):
    """A value of an axis: the topology or drill that it stands for, and what it sets."""

    topology: str | None = Field(None, description="for a mode: the inventory")
    drill: str | None = Field(None, description="for a fault: the drill that injects it")
    set: dict[str, Any] = Field({}, description="places in the scenario and inventory variables, with their values")


class Matrix(Strict):
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
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"matrix {path} cannot be read: {error}") from None
    data, tree = parse_yaml(text, path, "a matrix")
    matrix = as_model(Matrix, data, path, tree, "the matrix")
    for place, combination in enumerate(matrix.without):
        for axis, value in combination.items():
            known = dict(zip(AXES, _axes(matrix), strict=True))
            if axis not in known or value not in known[axis]:
                raise UsageError(f"{path}: without.{place}: there is no {axis} {value!r}")
    return path.stem, matrix


def _axes(matrix: Matrix) -> tuple[dict[str, Value], ...]:
    return matrix.modes, matrix.faults, matrix.clients, matrix.settings


def matrix_plan(name: str, matrix: Matrix, repeat: int | None, seed: int) -> CampaignPlan:
    """Return the plan of a matrix; seeds count from `seed`, the same ones in every place.

    Raises UsageError: a fault without a drill, a mode without a topology, an unknown drill,
    topology, place or variable, a refused value.
    """
    cells: list[Cell] = []
    versions: dict[str, str] = {}
    for names in product(*_axes(matrix)):
        labels = dict(zip(AXES, names, strict=True))
        if any(all(labels[axis] == value for axis, value in one.items()) for one in matrix.without):
            continue
        values = [axis[word] for axis, word in zip(_axes(matrix), names, strict=True)]
        where = f"matrix {name}: {', '.join(names)}"
        drill = next((value.drill for value in values if value.drill), None)
        if drill is None:
            raise UsageError(f"{where}: neither the fault nor another axis names a drill")
        loaded = load_drill(drill)
        name_or_dir = next((value.topology for value in values if value.topology), None)
        if name_or_dir is None:
            raise UsageError(f"{where}: neither the mode nor another axis names a topology")
        topology = find_topology(name_or_dir)
        changes = {key: item for value in values for key, item in value.set.items()}
        check_changes(loaded, {key: item for key, item in changes.items() if in_scenario(key)}, where)
        for key in changes:
            if not in_scenario(key):
                check_variable(key, topology, where)
        versions |= {loaded.name: loaded.sha256, topology.name: topology.sha256}
        cells += [
            Cell(labels, number + 1, drill, topology.word, changes, seed + number)
            for number in range(repeat or matrix.repeat)
        ]
    if not cells:
        raise UsageError(f"matrix {name}: `without` leaves nothing to run")
    return CampaignPlan(KIND, name, matrix.title, AXES, ordered(cells), versions)


@dataclass(frozen=True)
class Square:
    """One mode × fault × client: its places by settings, and what they say together."""

    places: tuple[OutcomeGroup, ...]

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


def squares(found: Sequence[OutcomeGroup]) -> dict[tuple[str, str, str], Square]:
    """Return (mode, fault, client) → square, in order."""
    grouped: dict[tuple[str, str, str], list[OutcomeGroup]] = {}
    for place in found:
        labels: Mapping[str, str] = place.labels
        grouped.setdefault((labels["mode"], labels["fault"], labels["client"]), []).append(place)
    return {key: Square(tuple(members)) for key, members in grouped.items()}
