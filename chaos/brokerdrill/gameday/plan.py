"""Which drills a game day holds, in which order, and which it may not. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brokerdrill.base.errors import UsageError, unknown_name
from brokerdrill.gameday.model import Choice
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import Topology
from brokerdrill.runner.approval import ApprovalRequest, asked, asks
from brokerdrill.scenario.drill import Drill, resolve
from brokerdrill.scenario.radius import Radius, Reached, limits, reached, too_far

Pair = tuple[str, str]


@dataclass(frozen=True)
class PlannedTopology:
    """A topology, and the instances that are deployed there or would be."""

    topology: Topology
    descriptors: Sequence[Descriptor]


@dataclass(frozen=True)
class Planned:
    """A drill on a topology: when it was last held (None: never), what it could do, and why it may not (nothing: it
    may); `wanted`: what has to be
    approved for it, where the inventory asks for that."""

    drill: Drill
    topology: Topology
    last: datetime.datetime | None
    reached: Reached
    refused: tuple[str, ...] = ()
    wanted: ApprovalRequest | None = None


def last_held(rows: Iterable[Mapping[str, Any]]) -> dict[Pair, datetime.datetime]:
    """Return when each (drill, topology) of the table of results was last run to its end."""
    found: dict[Pair, datetime.datetime] = {}
    for row in rows:
        if row["outcome"] in ("completed", None):
            key = (row["scenario"], row["topology"])
            found[key] = max(row["started_at"], found.get(key, row["started_at"]))
    return found


def check_choice(choice: Choice, drills: Sequence[Drill]) -> None:
    """Raise UsageError, with the nearest name, for a drill or tag that there is not."""
    for name in (*choice.names, *choice.without):
        if name not in {drill.name for drill in drills}:
            raise unknown_name("drill", name, (drill.name for drill in drills))
    tags = {tag for drill in drills for tag in drill.scenario.tags}
    for tag in choice.tags:
        if tag not in tags:
            raise unknown_name("tag", tag, tags)


def wanted(drill: Drill, choice: Choice) -> bool:
    """Whether the choice takes this drill."""
    if drill.name in choice.without or (choice.names and drill.name not in choice.names):
        return False
    return not choice.tags or bool(set(choice.tags) & set(drill.scenario.tags))


def planned(
    choice: Choice,
    radius: Radius,
    drills: Sequence[Drill],
    places: Sequence[PlannedTopology],
    last: Mapping[Pair, datetime.datetime],
) -> tuple[list[Planned], list[Planned]]:
    """Return (the drills to hold in their order, those that apply and are refused).

    What was never held comes first, then what was not held for longest; ties go by the order of topologies and drills.
    Raises UsageError where the choice names what there is not, or fits nothing that applies.
    """
    check_choice(choice, drills)
    found = [
        _one(drill, place, radius, last)
        for drill in drills
        if wanted(drill, choice)
        for place in places
        if not drill.unmet(place.descriptors)
    ]
    if not found:
        raise UsageError(f"no chosen drill applies to {', '.join(place.topology.name for place in places)}")
    never = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    held = sorted((one for one in found if not one.refused), key=lambda one: one.last or never)
    return held[: choice.most], [one for one in found if one.refused]


def _one(drill: Drill, place: PlannedTopology, radius: Radius, last: Mapping[Pair, datetime.datetime]) -> Planned:
    topology = place.topology
    allowed = limits(topology, radius)
    loaded = resolve(drill, place.descriptors, topology.name)
    reach = reached(loaded.scenario, place.descriptors, allowed.groups_of)
    wanted = asked(loaded, topology, reach) if asks(topology) else None
    refused = too_far(reach, allowed)
    if not topology.drill_allowed:
        refused.append("the inventory does not say `drill_allowed: true` for all its hosts")
    return Planned(drill, topology, last.get((drill.name, topology.name)), reach, tuple(refused), wanted)
