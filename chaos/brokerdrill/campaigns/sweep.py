"""`brokerdrill sweep`: one drill over values of deployment variables and load parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from brokerdrill.base.errors import UsageError
from brokerdrill.campaigns.plan import CampaignPlan, Cell, ordered
from brokerdrill.campaigns.settings import check_variable, in_scenario, parse_value, text
from brokerdrill.inventory.topology import find_topology
from brokerdrill.scenario.drill import check_changes, load_drill

KIND = "sweep"


def parse_vary(words: Sequence[str]) -> dict[str, list[Any]]:
    """Return name → values of `NAME=A,B,C` words; a value is YAML, and one that holds commas stands in [] or {}.

    Raises UsageError: no name, no value, a name or value given twice.
    """
    found: dict[str, list[Any]] = {}
    for word in words:
        name, equals, rest = word.partition("=")
        where = f"--vary {word}"
        if not equals or not name or not rest:
            raise UsageError(f"{where}: write NAME=VALUE,VALUE,…")
        if name in found:
            raise UsageError(f"{where}: {name} is varied twice")
        values = parse_value(f"[{rest}]", where)
        if None in values:
            raise UsageError(f"{where}: a value is empty")
        if len({text(value) for value in values}) < len(values):
            raise UsageError(f"{where}: a value is there twice")
        found[name] = values
    return found


def sweep_plan(
    drill: str, where: str, vary: Mapping[str, Sequence[Any]], repeat: int | None, seed: int
) -> CampaignPlan:
    """Return the plan that runs `drill` on the topology `where` `repeat` times (None: its own number) with every
    combination of values; seeds count from `seed`, the same ones in every setting.

    Raises UsageError: an unknown drill, topology, place in the scenario or variable; a value the scenario refuses.
    """
    if not vary:
        raise UsageError("nothing is varied: give --vary NAME=VALUE,VALUE")
    loaded = load_drill(drill)
    topology = find_topology(where)
    for name in vary:
        if not in_scenario(name):
            check_variable(name, topology, f"--vary {name}")
    cells = []
    for values in product(*vary.values()):
        changes = dict(zip(vary, values, strict=True))
        check_changes(loaded, {name: value for name, value in changes.items() if in_scenario(name)}, "--vary")
        labels = {name: text(value) for name, value in changes.items()}
        for number in range(repeat or loaded.scenario.repeat):
            cells.append(Cell(labels, number + 1, drill, where, changes, seed + number))
    return CampaignPlan(
        kind=KIND,
        name=loaded.name,
        title=f"{loaded.scenario.title}, on {topology.name}: {', '.join(vary)}",
        axes=tuple(vary),
        cells=ordered(cells),
        versions={loaded.name: loaded.sha256, topology.name: topology.sha256},
    )
