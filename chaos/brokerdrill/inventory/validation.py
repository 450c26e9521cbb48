"""What is wrong with an inventory, all of it at once and without touching a host."""

from __future__ import annotations

import difflib
from collections.abc import Sequence, Set
from pathlib import Path

from brokerdrill.base import paths
from brokerdrill.base.errors import unknown_name
from brokerdrill.base.progress import Progress
from brokerdrill.inventory.playbooks import Failed, refusals, run_playbook
from brokerdrill.inventory.topology import Topology

PLAYBOOK = "validate"
# Of files of variables, as Ansible knows them.
SUFFIXES = (".yml", ".yaml", ".json")


def mistakes(topology: Topology, progress: Progress) -> list[str]:
    """Return what preflight would refuse of `topology`, a sentence each, none where all is well: see `sentences`; and
    what of it nobody reads.

    Raises InfrastructureError where Ansible itself fails.
    """
    return unread(topology) + sentences(run_playbook(topology, PLAYBOOK, progress, ("--check",)))


def unread(topology: Topology) -> list[str]:
    """Return a sentence for each file of variables of a folder that is of no host or group of it, and one where no host
    is in the group of a product: nothing would be deployed."""
    groups = {group for host in topology.hosts for group in host.groups}
    found = []
    if topology.directory.is_dir():
        hosts = {host.name for host in topology.hosts}
        found += _of_nobody(topology.directory / "host_vars", "host", hosts)
        found += _of_nobody(topology.directory / "group_vars", "group that a host is in", groups | {"all", "ungrouped"})
    products = {path.parent.parent.name for path in (paths.COLLECTION / "roles").glob("*/meta/product.yml")}
    if not groups & products:
        near = next(
            (close[0] for one in sorted(groups) if (close := difflib.get_close_matches(one, products, n=1))), ""
        )
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(sorted(products))}"
        found.append(f"no host is in a group that is called as a product, so that nothing would be deployed; {hint}")
    return found


def _of_nobody(folder: Path, kind: str, names: Set[str]) -> list[str]:
    """Return a sentence for each file or folder of variables in `folder` whose name is none of `names`."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        name = path.name if path.is_dir() or path.suffix not in SUFFIXES else path.stem
        if name not in names and not name.startswith(".") and not name.endswith("~"):
            found.append(f"{folder.name}/{path.name}: {unknown_name(kind, name, names)}")
    return found


def sentences(failed: Sequence[Failed]) -> list[str]:
    """Return what preflight refuses, and of hosts of which it refuses nothing what it could not work out: nothing that
    failed is passed over."""
    refused = {one.host for one in failed if one.refused}
    others = [f"{one.host}: task {one.task!r} failed: {one.sentence}" for one in failed if one.host not in refused]
    return refusals(failed) + others
