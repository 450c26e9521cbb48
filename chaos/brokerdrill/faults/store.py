"""Faults of a store: somebody else lays hands on the lock file by which brokers agree on who has it."""

from __future__ import annotations

from shlex import quote
from typing import Literal

from pydantic import Field

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults.base import FaultType, HostChange, Parameters
from brokerdrill.inventory.targets import Target

_EFFECTS = {
    "delete": "rm -f -- {lock}",
    # Another time of change, the same file: who holds the lock keeps it.
    "change": "touch -d '1 hour ago' -- {lock}",
}
# By inode and time: a deleted lock file is made anew at once by whoever wants it.
_STATE = "stat -c '%i %Y' -- {lock} 2>/dev/null"


class LockFileParameters(Parameters):
    """Which file, and what is done to it."""

    how: Literal["delete", "change"] = Field(
        "delete", description="delete: the file is removed; change: its time of change becomes another"
    )
    name: str = Field("lock", min_length=1, description="the file's name in the instance's store")


def _lock_file(target: Target, params: LockFileParameters, fault_id: str) -> list[HostChange]:
    changes = []
    for item in target.instances:
        if item.data_dir is None:
            raise InfrastructureError(f"instance {item.instance}: its descriptor says no `data_dir`")
        lock = quote(f"{item.data_dir}/{params.name}")
        note = f"/run/brokerdrill/{fault_id}.lock"
        state = _STATE.replace("{lock}", lock)
        changes.append(
            HostChange(
                host=item.host,
                prepare=f"{state} > {note}; [ -s {note} ]",
                effect=_EFFECTS[params.how].replace("{lock}", lock),
                verify=f'[ -s {note} ] && [ "$({state})" != "$(cat {note})" ]',
                # Nothing to undo: a lock file that is gone is made anew.
                heal=f"rm -f {note}",
                verify_heal=f"[ ! -e {note} ]",
                target=item.host,
                instance=item.instance,
                store=item.store,
            )
        )
    return changes


FAULTS = (
    FaultType(
        "lock_file",
        "instance",
        "the lock file in the instance's store is deleted or changed, by neither of the brokers",
        LockFileParameters,
        _lock_file,
    ),
)
