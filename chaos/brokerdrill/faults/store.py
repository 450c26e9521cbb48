"""Faults of a store: somebody else lays hands on the lock file by which brokers agree on who has it, or its disk is
full."""

from __future__ import annotations

from shlex import quote
from typing import Literal

from pydantic import Field

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults.base import MOMENTARY, FaultType, HostChange, Parameters
from brokerdrill.inventory.descriptors import Descriptor
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


class DiskFullParameters(Parameters):
    """How much of the disk is left."""

    leave_mib: int = Field(0, ge=0, description="MiB that stay free; what is freed later is free again")


# The feature of a descriptor by which an inventory says so.
OWN_DISK = "own_disk"
# A full root file system would keep the host itself, its log and this fault's end from working.
_OWN_DISK = """\
disk=$(stat -c %d {store}) || exit 1
for place in / /var /tmp /run /etc; do
  [ "$disk" != "$(stat -c %d $place)" ] || {{
    echo "{instance}: its store has no file system of its own but that of $place, which no drill fills" >&2
    exit 1
  }}
done"""
# Something may take what was free between the look and the filling; what is left then is less than a step. The file has
# no name and lasts as long as the process that has it open: a host that is started anew has its disk back.
_FILL = """\
free=$(($(df -P -B1 {store} | awk 'NR == 2 {{ print $4 }}') - {leave}))
until [ "$free" -le 0 ] || fallocate -l "$free" {filler} 2>/dev/null; do free=$((free - 65536)); done
[ -s {filler} ] || {{
  echo "{instance}: its disk had no more than {leave_mib} MiB free, so that it was not filled" >&2
  exit 1
}}
systemd-run --quiet --collect --unit={unit} sh -c 'exec 9<"$0"; rm -f "$0"; exec sleep infinity' {filler}"""


def _store(item: Descriptor) -> str:
    if item.data_dir is None:
        raise InfrastructureError(f"instance {item.instance}: its descriptor says no `data_dir`")
    return item.data_dir


def _disk_full(target: Target, params: DiskFullParameters, fault_id: str) -> list[HostChange]:
    changes = []
    for item in target.instances:
        # A volume of an engine is a file system of its own to its host, and yet on the disk of whoever runs the engine.
        if OWN_DISK not in item.features:
            raise InfrastructureError(
                f"instance {item.instance}: no common_store_mount says that its store's file system is its own"
            )
        store, filler = quote(_store(item)), quote(f"{_store(item)}/.brokerdrill-{fault_id}")
        unit = f"brokerdrill-disk-{fault_id}"
        leave = params.leave_mib << 20
        changes.append(
            HostChange(
                host=item.host,
                prepare=_OWN_DISK.format(store=store, instance=item.instance),
                effect=_FILL.format(
                    store=store,
                    filler=filler,
                    unit=unit,
                    instance=item.instance,
                    leave=leave,
                    leave_mib=params.leave_mib,
                ),
                verify=f"systemctl is-active --quiet {unit} && [ ! -e {filler} ]",
                heal=f"systemctl stop {unit} 2>/dev/null; rm -f {filler}",
                verify_heal=f"! systemctl is-active --quiet {unit} && [ ! -e {filler} ]",
                target=item.host,
                instance=item.instance,
                store=item.store,
            )
        )
    return changes


def _lock_file(target: Target, params: LockFileParameters, fault_id: str) -> list[HostChange]:
    changes = []
    for item in target.instances:
        lock = quote(f"{_store(item)}/{params.name}")
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
                lasting=MOMENTARY,
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
        passes=lambda _: True,
        drawn=({"how": "change"}, {"how": "delete"}),
        only_on=frozenset({"file_lock"}),
    ),
    FaultType(
        "disk_full",
        "instance",
        "the file system of the instance's store is filled; refused where it is the host's own",
        DiskFullParameters,
        _disk_full,
        ("fallocate",),
        drawn=({"leave_mib": 16}, {}),
        only_on=frozenset({OWN_DISK}),
    ),
)
