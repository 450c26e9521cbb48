"""A guard on the disks that a run fills: it ends the drill before one is full, so that what it recorded is judged."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from brokerdrill.base.errors import BrokerdrillError
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.runner.live_run import LiveRun

MIB = 1 << 20
LOOK_PERIOD_S = 2.0
# A host that takes longer is left out this time.
ANSWER_S = 5.0
# What the drain, the logs and the verdict of a run that ends still write.
RESERVE_BYTES = 256 * MIB


class DiskSpace(NamedTuple):
    """What a load host has free for spools, and how much of them waits there, in bytes."""

    free: int
    waiting: int


def too_full(run_dir: Path, free: int, hosts: Mapping[str, DiskSpace]) -> str | None:
    """Return in a sentence which disk will not do; None: all do. The controller's `free` bytes have to take what waits
    on the load `hosts` too."""
    for name, space in sorted(hosts.items()):
        if space.free < RESERVE_BYTES:
            return f"load host {name} has {space.free // MIB} MiB left for spools, less than {RESERVE_BYTES // MIB} MiB"
    needed = RESERVE_BYTES + sum(space.waiting for space in hosts.values())
    if free < needed:
        return f"the disk of {run_dir} has {free // MIB} MiB left, less than the {needed // MIB} MiB that the run needs"
    return None


async def space(connection: HostConnection, folder: str) -> DiskSpace:
    """Return what the host has free for `folder`, and what is in it. Raises InfrastructureError."""
    where = shlex.quote(folder)
    answer = await connection.sh(f"df -Pk {where} | awk 'NR == 2 {{print $4}}'; du -sk {where}", check=True)
    free, waiting, *_ = answer.out.split()
    return DiskSpace(int(free) * 1024, int(waiting) * 1024)


async def _space(connection: HostConnection, spool: str) -> DiskSpace | None:
    """Return `space` of a worker's folder; None: the host does not answer in time."""
    with contextlib.suppress(BrokerdrillError, ValueError, TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            return await space(connection, str(Path(spool).parent))
    return None


async def until_disk_full(run: LiveRun) -> str:
    """Wait until a disk that the run fills will not do, and say which. A host that does not answer is asked again."""
    while True:
        folders = {worker.connection.name: (worker.connection, worker.spool) for worker in run.load.workers}
        found = await asyncio.gather(*(_space(connection, spool) for connection, spool in folders.values()))
        hosts = {name: one for name, one in zip(folders, found, strict=True) if one}
        if said := too_full(run.run_dir, shutil.disk_usage(run.run_dir).free, hosts):
            return said
        await asyncio.sleep(LOOK_PERIOD_S)
