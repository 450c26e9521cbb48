"""Where a kernel counts for services: by the texts that it gives, and on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from brokerdrill.hosts.control_groups import MOUNTS, OWN, ServiceGroups, folder

VM = "29 1 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
BELOW = "29 1 0:26 /docker/0e /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"
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
        # A container that sees its host's groups, of which only its own is mounted
        (BELOW, "0::/docker/0e/system.slice/a.service\n", "/sys/fs/cgroup/system.slice/a.service"),
        (BELOW, "0::/docker/0e\n", "/sys/fs/cgroup"),
        (BELOW, "0::/docker/0ef/a.service\n", None),
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
    files["/sys/fs/cgroup/system.slice/a.service/cpu.pressure"] = "some total=1\n"
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


def test_a_service_whose_group_cannot_be_read_is_not_told_apart() -> None:
    files = {MOUNTS: VM, OWN: "0::/user.slice/session-3.scope\n", "/proc/7/cgroup": "0::/system.slice/a.service\n"}
    assert asyncio.run(groups({"a.service": 7}, files).find()) == frozenset()


def test_what_is_in_another_group_is_counted_there_alone() -> None:
    files = {MOUNTS: VM, OWN: "0::/a.slice\n", "/proc/7/cgroup": "0::/a.slice/a.service\n"}
    files |= {"/proc/8/cgroup": "0::/a.slice2/b.service\n"}
    files |= {f"/sys/fs/cgroup/a.slice{one}/cpu.pressure": "some total=1\n" for one in ("/a.service", "2/b.service")}
    found = groups({"a.service": 7, "b.service": 8}, files)
    assert asyncio.run(found.find()) == {"/sys/fs/cgroup/a.slice", "/sys/fs/cgroup/a.slice2/b.service"}


def test_the_group_of_everything_tells_nothing_apart() -> None:
    files = {MOUNTS: VM, OWN: "0::/\n", "/proc/7/cgroup": "0::/system.slice/a.service\n"}
    files["/sys/fs/cgroup/system.slice/a.service/cpu.pressure"] = "some total=1\n"
    found = groups({"a.service": 7}, files)
    assert asyncio.run(found.find()) == frozenset()
    assert found.own is None
