"""What is wrong with an inventory, all of it at once and without touching a host."""

from __future__ import annotations

from brokerdrill.base.progress import Progress
from brokerdrill.inventory.playbooks import refusals, run_playbook
from brokerdrill.inventory.topology import Topology

PLAYBOOK = "validate"


def mistakes(topology: Topology, progress: Progress) -> list[str]:
    """Return what preflight would refuse of `topology`, a sentence each; none where all is well.

    Raises InfrastructureError where Ansible itself fails.
    """
    return refusals(run_playbook(topology, PLAYBOOK, progress, ("--check",)))
