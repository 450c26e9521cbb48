"""Control groups: folders in which a kernel counts what the processes of one service alone had to wait for.

Of version 2 only (Linux' Documentation/admin-guide/cgroup-v2.rst); systemd has one for each unit and each login.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from brokerdrill.hosts.connection import HostConnection

MOUNTS, OWN = "/proc/self/mountinfo", "/proc/self/cgroup"

# Of paths, the texts of those that can be read.
Read = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]
# The id of each unit's main process; 0: it does not run.
Processes = Callable[[], Awaitable[Mapping[str, int]]]


async def read_here(paths: Sequence[str]) -> Mapping[str, str]:
    """Return the text of each of this machine's files that can be read."""
    found = {}
    for name in paths:
        # Where the kernel was started without pressure stall information, its files are there and cannot be read.
        with contextlib.suppress(OSError):
            found[name] = Path(name).read_text(encoding="utf-8")
    return found


async def nothing() -> Mapping[str, int]:
    """A machine without units."""
    return {}


def main_processes(connection: HostConnection, units: Sequence[str]) -> Processes:
    """Return how to ask a host for the main processes of its `units`; asking raises InfrastructureError."""

    async def ask() -> Mapping[str, int]:
        script = f"systemctl show -p MainPID --value -- {' '.join(map(shlex.quote, units))}"
        return dict(zip(units, map(int, (await connection.sh(script, check=True)).out.split()), strict=True))

    return ask if units else nothing


def folder(mounts: str, membership: str) -> str | None:
    """Return the folder of the control group that `membership` (a process' /proc/PID/cgroup) names, below where
    `mounts` (/proc/self/mountinfo) say that they are; None where there are none of version 2."""
    path = next((line[3:] for line in membership.splitlines() if line.startswith("0::/")), None)
    # The fields before the dash end with the mount point and its options; there may be others between.
    for before, _, after in (line.partition(" - ") for line in mounts.splitlines()):
        if path is not None and after.startswith("cgroup2 "):
            return before.split()[4] + path.rstrip("/")
    return None


class ServiceGroups:
    """The folders of a host's services: that of the process which asks, and its children, and that of each unit."""

    def __init__(self, read: Read, processes: Processes) -> None:
        self._read = read
        self._processes = processes
        self._own: str | None = None
        self._units: dict[str, str] = {}

    @property
    def own(self) -> str | None:
        """The folder of the process that asks, which comes and goes with its login."""
        return self._own

    async def find(self) -> frozenset[str]:
        """Return the folders; none where that of one of them is not known. A unit that does not run keeps the one that
        it had. Raises InfrastructureError."""
        pids = await self._processes()
        names = {unit: f"/proc/{pid}/cgroup" for unit, pid in pids.items() if pid}
        files = await self._read([MOUNTS, OWN, *names.values()])
        mounts = files.get(MOUNTS, "")
        self._own = folder(mounts, files.get(OWN, ""))
        for unit, name in names.items():
            if found := folder(mounts, files.get(name, "")):
                self._units[unit] = found
        known = [self._own, *(self._units.get(unit) for unit in pids)]
        return frozenset(one for one in known if one) if all(known) else frozenset()
