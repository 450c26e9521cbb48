"""What is wrong with an inventory, all of it at once and without touching a host."""

from __future__ import annotations

from collections.abc import Sequence

from brokerdrill.base.progress import Progress
from brokerdrill.inventory.playbooks import Failed, refusals, run_playbook
from brokerdrill.inventory.topology import Topology

PLAYBOOK = "validate"


def mistakes(topology: Topology, progress: Progress) -> list[str]:
    """Return what preflight would refuse of `topology`, a sentence each, none where all is well: see `sentences`.

    Raises InfrastructureError where Ansible itself fails.
    """
    return sentences(run_playbook(topology, PLAYBOOK, progress, ("--check",)))


def sentences(failed: Sequence[Failed]) -> list[str]:
    """Return what preflight refuses, and of hosts of which it refuses nothing what it could not work out: nothing that
    failed is passed over."""
    refused = {one.host for one in failed if one.refused}
    others = [f"{one.host}: task {one.task!r} failed: {one.sentence}" for one in failed if one.host not in refused]
    return refusals(failed) + others
