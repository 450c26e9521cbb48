"""What a playbook does to a system while it works, as a step of a drill: whom it reaches, and how many are out of
service at the same time. Which playbooks are no step at all, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from brokerdrill.base import paths
from brokerdrill.base.errors import UsageError
from brokerdrill.inventory.playbooks import playbook_path


class OutOfService(Enum):
    """How many of those that a playbook reaches may be out of service at the same time."""

    NOBODY = "nobody"
    ONE = "one"
    ONE_A_STORE = "one of each store"
    ALL = "all"


@dataclass(frozen=True)
class PlaybookStep:
    """A playbook as a step. It reaches products whose role has one of the task files `tasks` (none: each one). Where
    it is `verified` it ends only when all are healthy again."""

    out: OutOfService
    tasks: tuple[str, ...] = ()
    verified: bool = True

    def reaches(self, product: str) -> bool:
        """Whether instances of `product` are among those that it changes."""
        if self.out is OutOfService.NOBODY:
            return False
        tasks = paths.COLLECTION / "roles" / product / "tasks"
        return not self.tasks or any((tasks / f"{name}.yml").is_file() for name in self.tasks)

    @property
    def everywhere(self) -> bool:
        """Whether it reaches every host of the inventory, also those that have no instance yet."""
        return self.out is not OutOfService.NOBODY and not self.tasks


# Plays with `serial: 1` restart one host after the other; those without work on all their hosts at the same time.
OPERATIONS: Mapping[str, PlaybookStep] = MappingProxyType(
    {
        "backup": PlaybookStep(OutOfService.NOBODY, verified=False),
        "change_master": PlaybookStep(OutOfService.ALL, ("change_master",)),
        "discover": PlaybookStep(OutOfService.NOBODY, verified=False),
        "drift": PlaybookStep(OutOfService.NOBODY, verified=False),
        "ensemble": PlaybookStep(OutOfService.ONE, ("ensemble_restart",)),
        "failback": PlaybookStep(OutOfService.ALL, ("failback",)),
        "move_vhost": PlaybookStep(OutOfService.ALL, ("move_vhost_hold",), verified=False),
        "newest_data": PlaybookStep(OutOfService.ALL, ("newest_start",), verified=False),
        "restart_pending": PlaybookStep(OutOfService.ONE, ("restart", "handover_restart", "ensemble_restart")),
        "rolling_restart": PlaybookStep(OutOfService.ONE, ("restart", "handover_restart")),
        "rotate_secrets": PlaybookStep(OutOfService.ONE, ("restart", "handover_restart", "ensemble_restart")),
        "replace_host": PlaybookStep(OutOfService.ALL),
        "scale_out": PlaybookStep(OutOfService.ALL),
        "site": PlaybookStep(OutOfService.ALL),
        # One host after the other, but who would take its role back at once stays stopped.
        "takeover": PlaybookStep(OutOfService.ONE_A_STORE, ("takeover",), verified=False),
        "upgrade": PlaybookStep(OutOfService.ONE, ("upgrade",)),
        "verify": PlaybookStep(OutOfService.NOBODY),
    }
)
NO_STEPS: Mapping[str, str] = MappingProxyType(
    {
        "describe": "it writes down what an inventory says, and no host hears of it",
        "join": "scale_out and replace_host do it",
        "gameday": "it installs the game days themselves",
        "remove_broker": "it takes brokers away for good, and no heal brings them back",
        "restore": "it overwrites what the brokers keep, and no heal brings that back",
        "teardown": "it removes every instance, and no heal brings them back",
        "validate": "it says what preflight would refuse, and no host hears of it",
    }
)


def operation(playbook: str) -> PlaybookStep:
    """Return what `playbook` does as a step. Raises UsageError where there is no such one, or it may be no step."""
    playbook_path(playbook)
    if playbook in NO_STEPS:
        raise UsageError(f"playbook {playbook} is no step of a drill: {NO_STEPS[playbook]}")
    # What nobody has said anything of may do anything.
    return OPERATIONS.get(playbook, PlaybookStep(OutOfService.ALL, verified=False))
