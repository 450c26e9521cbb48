"""What is wrong with a drill or an inventory, without touching a host."""

from __future__ import annotations

from pathlib import Path

import yaml

from brokerdrill.base.errors import UsageError, refusal, unknown_name
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
    except OSError as error:
        if (sentence := refusal(error)) is None:
            raise
        return [sentence]
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
    try:
        return path.is_file() and _has_groups(yaml.compose(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        return False  # what is wrong with it is said as of a drill


def _has_groups(tree: yaml.Node | None) -> bool:
    """Whether what a file says, whose values are Ansible's to read (`!vault`), are groups alone, and not all empty."""
    groups = [value for _, value in tree.value] if isinstance(tree, yaml.MappingNode) else []
    full = [group for group in groups if group.tag != "tag:yaml.org,2002:null"]
    return any(group.value for group in full) and all(
        isinstance(group, yaml.MappingNode) and all(key.value in _OF_A_GROUP for key, _ in group.value)
        for group in full
    )
