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
# What a group's folder has where its kernel counts for what its processes wait.
COUNTED = "cpu.pressure"

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
    # Before the dash, behind three numbers: which group is mounted, and where; others may follow.
    for before, _, after in (line.partition(" - ") for line in mounts.splitlines()):
        if path is None or not after.startswith("cgroup2 "):
            continue
        root, point = before.split()[3:5]
        # A container without groups of its own sees those of its host, and has only its own mounted.
        if f"{path}/".startswith(f"{root.rstrip('/')}/"):
            return point + path.removeprefix(root.rstrip("/")).rstrip("/")
    return None


def is_within(inner: str, outer: str) -> bool:
    """Return whether the group of one folder is that of the other, or below it."""
    return f"{inner}/".startswith(f"{outer}/")


class ServiceGroups:
    """The folders of a host's services: that of the process which asks, and its children, and that of each unit."""

    def __init__(self, read: Read, processes: Processes) -> None:
        self._read = read
        self._processes = processes
        self._own: str | None = None
        self._units: dict[str, str] = {}

    @property
    def own(self) -> str | None:
        """The folder of the process that asks, which comes and goes with its login; None where there is none of its
        own."""
        return self._own

    async def find(self) -> frozenset[str]:
        """Return the folders; none where that of one of them is not known, or cannot be read, or is that of everything
        there. What is in another one of them is counted there. A unit that does not run keeps the one that it had.
        Raises InfrastructureError."""
        pids = await self._processes()
        names = {unit: f"/proc/{pid}/cgroup" for unit, pid in pids.items() if pid}
        files = await self._read([MOUNTS, OWN, *names.values()])
        mounts = files.get(MOUNTS, "")
        own = folder(mounts, files.get(OWN, ""))
        # What counts everything there tells nothing apart.
        self._own = None if own == folder(mounts, "0::/") else own
        for unit, name in names.items():
            if found := folder(mounts, files.get(name, "")):
                self._units[unit] = found
        known = [self._own, *(self._units.get(unit) for unit in pids)]
        if not all(known):
            return frozenset()
        running = [f"{self._units[unit]}/{COUNTED}" for unit in names]
        if not {*running} <= {*await self._read(running)}:
            return frozenset()
        folders = {one for one in known if one}
        return frozenset(one for one in folders if not any(other != one and is_within(one, other) for other in folders))
