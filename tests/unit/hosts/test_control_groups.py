"""Where a kernel counts for services: by the texts that it gives, and on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from brokerdrill.hosts.control_groups import MOUNTS, OWN, ServiceGroups, folder

VM = "29 1 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "40 39 0:36 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
    "41 39 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
)


@pytest.mark.parametrize(
    ("mounts", "membership", "where"),
    [
        (VM, "0::/system.slice/artemis.service\n", "/sys/fs/cgroup/system.slice/artemis.service"),
        (VM, "0::/\n", "/sys/fs/cgroup"),
        (HYBRID, "1:name=systemd:/a.service\n0::/docker/0e\n", "/sys/fs/cgroup/unified/docker/0e"),
        (HYBRID.splitlines()[0], "1:name=systemd:/a.service\n", None),
        (HYBRID.splitlines()[0], "0::/a.service\n", None),
        (VM, "", None),
        ("", "0::/a.service\n", None),
    ],
)
def test_the_folder_is_that_of_version_2(mounts: str, membership: str, where: str | None) -> None:
    assert folder(mounts, membership) == where


def groups(pids: dict[str, int], files: dict[str, str]) -> ServiceGroups:
    async def read(paths: Sequence[str]) -> Mapping[str, str]:
        return {path: files[path] for path in paths if path in files}

    async def processes() -> Mapping[str, int]:
        return dict(pids)

    return ServiceGroups(read, processes)


def test_a_unit_keeps_its_folder_while_it_does_not_run_and_without_one_nothing_is_known() -> None:
    pids = {"a.service": 0}
    files = {MOUNTS: VM, OWN: "0::/user.slice/session-3.scope\n", "/proc/7/cgroup": "0::/system.slice/a.service\n"}
    found = groups(pids, files)
    assert asyncio.run(found.find()) == frozenset(), "the whole host has to count"
    pids["a.service"] = 7
    both = frozenset({"/sys/fs/cgroup/user.slice/session-3.scope", "/sys/fs/cgroup/system.slice/a.service"})
    assert asyncio.run(found.find()) == both
    pids["a.service"] = 0
    assert asyncio.run(found.find()) == both
    files[OWN] = "0::/user.slice/session-4.scope\n"
    assert asyncio.run(found.find()) == {
        "/sys/fs/cgroup/user.slice/session-4.scope",
        "/sys/fs/cgroup/system.slice/a.service",
    }
