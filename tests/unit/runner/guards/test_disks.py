"""The guard on disks: which one will not do, and how that ends a run."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerdrill.base.errors import InfrastructureError, Unmet
from brokerdrill.hosts.connection import connect
from brokerdrill.inventory.topology import Host
from brokerdrill.runner.guards import disks
from brokerdrill.runner.guards.disks import MIB, RESERVE_BYTES, DiskSpace, space, too_full, until_disk_full
from brokerdrill.runner.guards.guarded import guarded
from brokerdrill.runner.live_run import LiveRun

ENOUGH = RESERVE_BYTES + 100 * MIB


@pytest.mark.parametrize(
    ("free", "hosts", "said"),
    [
        (RESERVE_BYTES, {}, None),
        (ENOUGH, {"load1": DiskSpace(ENOUGH, 60 * MIB), "load2": DiskSpace(RESERVE_BYTES, 40 * MIB)}, None),
        (
            ENOUGH,
            {"load1": DiskSpace(ENOUGH, 60 * MIB), "load2": DiskSpace(ENOUGH, 41 * MIB)},
            "run has 356 MiB .* the 357 MiB",
        ),
        (RESERVE_BYTES - 1, {}, "the disk of run has 255 MiB left, less than the 256 MiB that the run needs"),
        (ENOUGH, {"load1": DiskSpace(3 * MIB, 0)}, "load host load1 has 3 MiB left for spools, less than 256 MiB"),
    ],
)
def test_a_disk_that_will_not_do_is_named(free: int, hosts: dict[str, DiskSpace], said: str | None) -> None:
    found = too_full(Path("run"), free, hosts)
    assert found is None if said is None else re.search(said, found or "")


def test_a_hosts_own_words_are_understood(tmp_path: Path) -> None:
    folder = tmp_path / "of a run"
    folder.mkdir()
    (folder / "worker-0.jsonl").write_bytes(b"x" * 5 * MIB)

    async def main() -> DiskSpace:
        host = await connect(Host("load1", "127.0.0.1", 22, "root", None, (), {"ansible_connection": "local"}))
        try:
            return await space(host, str(folder))
        finally:
            await host.close()

    found = asyncio.run(main())
    assert found.free == pytest.approx(shutil.disk_usage(folder).free, rel=0.05)
    assert 5 * MIB <= found.waiting < 6 * MIB


def test_a_run_ends_before_a_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that does not answer once is asked again; the run ends as early ends do."""
    monkeypatch.setattr(disks, "LOOK_PERIOD_S", 0.01)
    answers = iter(
        [InfrastructureError("load1 does not answer"), DiskSpace(ENOUGH, 0), DiskSpace(ENOUGH, 0), DiskSpace(MIB, 0)]
    )

    async def told(*_: Any) -> DiskSpace:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(disks, "space", told)
    worker = SimpleNamespace(connection=SimpleNamespace(name="load1"), spool="/spool/worker-0.jsonl")
    watched = cast(LiveRun, SimpleNamespace(run_dir=tmp_path, load=SimpleNamespace(workers=[worker, worker])))

    async def drill() -> None:
        await asyncio.Future()

    async def main() -> None:
        await guarded(drill(), [until_disk_full(watched)])

    with pytest.raises(Unmet, match="abort: load host load1 has 1 MiB left for spools"):
        asyncio.run(main())
    assert next(answers, None) is None


def test_a_host_that_takes_its_time_hides_nothing_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "ANSWER_S", 0.05)

    async def told(connection: Any, _: str) -> DiskSpace:
        if connection.name == "slow":
            await asyncio.sleep(60)
        return DiskSpace(MIB, 0)

    monkeypatch.setattr(disks, "space", told)
    workers = [
        SimpleNamespace(connection=SimpleNamespace(name=name), spool="/spool/0.jsonl") for name in ("slow", "full")
    ]
    watched = cast(LiveRun, SimpleNamespace(run_dir=tmp_path, load=SimpleNamespace(workers=workers)))
    assert "load host full has 1 MiB left" in asyncio.run(asyncio.wait_for(until_disk_full(watched), 20))
