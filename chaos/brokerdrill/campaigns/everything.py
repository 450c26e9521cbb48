"""`brokerdrill run --all`: every drill that applies to a topology, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokerdrill.base.errors import UsageError
from brokerdrill.campaigns.plan import CampaignPlan, Cell
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import Topology
from brokerdrill.scenario.drill import Drill

KIND = "all"


def everything_plan(
    drills: Sequence[Drill],
    topology: Topology,
    descriptors: Sequence[Descriptor],
    repeat: int | Mapping[str, int] | None,
    seed: int,
) -> CampaignPlan:
    """Return the plan that runs each of `drills` that applies to the instances of `topology`, `repeat` times (by the
    drill's name, or all alike; None: its own number); seeds count from `seed`. Raises UsageError where none applies."""
    applying = [drill for drill in drills if not drill.unmet(descriptors)]
    if not applying:
        raise UsageError(f"no drill applies to {topology.name}; brokerdrill scenarios {topology.name} says why")
    cells = tuple(
        Cell({"drill": drill.name}, number + 1, drill.name, topology.word, {}, seed + number)
        for drill in applying
        for number in range((repeat[drill.name] if isinstance(repeat, Mapping) else repeat) or drill.scenario.repeat)
    )
    versions = {drill.name: drill.sha256 for drill in applying} | {topology.name: topology.sha256}
    return CampaignPlan(KIND, topology.name, f"All drills of {topology.name}", ("drill",), cells, versions)
