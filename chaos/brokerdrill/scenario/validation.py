"""What is wrong with a drill or an inventory, without touching a host."""

from __future__ import annotations

from pathlib import Path

from brokerdrill.base.errors import UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.inventory import validation
from brokerdrill.inventory.planned import load_hosts, planned
from brokerdrill.inventory.topology import Topology, find_topology, topologies
from brokerdrill.scenario.drill import SUFFIXES, drill_paths, load_drill, resolve


def mistakes_of(name: str, place: Topology | None, progress: Progress) -> list[str]:
    """Return what is wrong with what is called `name`, a sentence each: a drill (a file, or a name of chaos/scenarios)
    or an inventory (a directory, or a topology's name); of a drill also why it does not apply to `place`.

    Raises InfrastructureError where Ansible itself fails.
    """
    try:
        if not _is_drill(name):
            return validation.mistakes(find_topology(name), progress)
        drill = load_drill(name)
        if place:
            resolve(drill, [*planned(place, progress), *load_hosts(place)], place.name)
    except UsageError as error:
        return [str(error)]
    return []


def _is_drill(name: str) -> bool:
    known = {inventory for inventory, _ in topologies()}
    return Path(name).suffix in SUFFIXES or (name not in known and name in drill_paths())
