"""What is wrong with a drill or an inventory, without touching a host."""

from __future__ import annotations

from pathlib import Path

import yaml

from brokerdrill.base.errors import UsageError, unknown_name
from brokerdrill.base.progress import Progress
from brokerdrill.inventory import validation
from brokerdrill.inventory.planned import load_hosts, planned
from brokerdrill.inventory.topology import Topology, find_topology, topologies
from brokerdrill.scenario.drill import SUFFIXES, drill_paths, load_drill, resolve

_OF_A_GROUP = {"hosts", "children", "vars"}


def mistakes_of(name: str, place: Topology | None, progress: Progress) -> list[str]:
    """Return what is wrong with what is called `name`, a sentence each: a drill (a file, or a name of chaos/scenarios)
    or an inventory (a directory, or a topology's name); of a drill also why it does not apply to `place`.

    Raises InfrastructureError where Ansible itself fails.
    """
    try:
        if not _is_drill(name):
            return validation.mistakes(_inventory(name), progress)
        drill = load_drill(name)
        if place:
            resolve(drill, [*planned(place, progress), *load_hosts(place)], place.name)
    except UsageError as error:
        return [str(error)]
    return []


def _inventory(name: str) -> Topology:
    if "/" not in name and not (name and Path(name).exists()):
        known = {inventory for inventory, _ in topologies()}
        if name not in known:
            raise unknown_name("drill or topology", name, {*known, *drill_paths()})
    return find_topology(name)


def _is_drill(name: str) -> bool:
    if Path(name).suffix in SUFFIXES and not Path(name).is_dir():
        return not _is_inventory_file(Path(name))
    return name not in {inventory for inventory, _ in topologies()} and name in drill_paths()


def _is_inventory_file(path: Path) -> bool:
    """Whether a YAML file has groups of hosts, and nothing else."""
    if not path.is_file():
        return False
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False  # what is wrong with it is said as of a drill
    groups = list(content.values()) if isinstance(content, dict) else []
    # A group may be empty.
    return any(groups) and all(one is None or (isinstance(one, dict) and one.keys() <= _OF_A_GROUP) for one in groups)
