"""What workers write comes home whole, once, and from where a copy broke off."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerdrill.base import atomic
from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts.connection import HostConnection, connect
from brokerdrill.inventory.topology import Host
from brokerdrill.ledger import contract
from brokerdrill.ledger.events import FILE, EventWriter
from brokerdrill.runner.evidence import spools
from brokerdrill.runner.evidence.run_dir import has_load, make_run_dir
from brokerdrill.runner.evidence.spools import fetch_finished, fetch_spool
from brokerdrill.runner.live_run import LiveRun
from brokerdrill.workload.ledger_writer import Spool, piece_path

LINE = b'{"run_id":"r","client":"producer-0"}\n'


class Breaking:
    """A host on this machine, of which copies are counted; of the next `broken` ones only half of what is left comes,
    and of the next `changed` ones other bytes."""

    def __init__(self, host: HostConnection) -> None:
        self._host = host
        self.name = host.name
        self.broken = self.changed = 0
        self.copied: list[tuple[str, int]] = []

    def waiting(self) -> list[asyncio.Future[Any]]:
        """The answers that are asked for and have not come."""
        return list(self._host._session._waiting.values())

    async def sh(self, script: str, **values: Any) -> Any:
        return await self._host.sh(script, **values)

    async def fetch(self, remote: str, local: Path, *, offset: int = 0) -> None:
        self.copied.append((Path(remote).name, offset))
        await self._host.fetch(remote, local, offset=offset)
        if self.changed:
            self.changed -= 1
            local.write_bytes(b"?" + local.read_bytes()[1:])
        if self.broken:
            self.broken -= 1
            local.write_bytes(local.read_bytes()[: (offset + local.stat().st_size) // 2])
            raise InfrastructureError("the connection to load1 is lost")


@contextlib.asynccontextmanager
async def here() -> AsyncIterator[Breaking]:
    host = await connect(Host("load1", "127.0.0.1", 22, "root", None, (), {"ansible_connection": "local"}))
    try:
        yield Breaking(host)
    finally:
        await host.close()


def connection(host: Breaking) -> HostConnection:
    return cast(HostConnection, host)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool of 3 finished pieces of 5 lines and 2 lines more, in a folder with a space."""
    path = tmp_path / "the host" / "run-1" / "worker-1.jsonl"
    path.parent.mkdir(parents=True)
    (path.parent / "worker-10-000001.jsonl").write_bytes(b"of another worker\n")
    made = Spool(str(path), piece_bytes=5 * len(LINE))
    for _ in range(17):
        made.write(LINE)
    made.close()
    return path


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    make_run_dir(tmp_path / "run")
    return tmp_path / "run"


def content(run_dir: Path) -> dict[str, int]:
    """The lines of each file that is here."""
    return {path.name: path.read_bytes().count(LINE) for path in sorted((run_dir / contract.OPS_DIR).iterdir())}


WHOLE = {f"worker-1-{number:06d}.jsonl": 5 for number in (1, 2, 3)} | {"worker-1.jsonl": 2}


def test_all_of_a_spool_is_taken_from_its_host(spool: Path, run_dir: Path) -> None:
    async def main() -> None:
        async with here() as host:
            events = EventWriter(run_dir, "run", now_ns())
            assert (await fetch_spool(connection(host), str(spool), run_dir, events)).name == spool.name
            events.close()
            # The spool itself comes last: what is here then is all.
            assert host.copied == [(name, 0) for name in WHOLE]

    asyncio.run(main())
    assert content(run_dir) == WHOLE
    rows = [json.loads(line) for line in (run_dir / "events" / FILE).read_text().splitlines()]
    sums = {
        path.name: {"bytes": str(path.stat().st_size), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in (run_dir / contract.OPS_DIR).iterdir()
    }
    assert {row["name"]: row["detail"] for row in rows if row["kind"] == "piece"} == sums
    assert [path.name for path in spool.parent.iterdir()] == ["worker-10-000001.jsonl"]


def test_a_copy_that_breaks_off_is_gone_on_with(spool: Path, run_dir: Path) -> None:
    first = next(iter(WHOLE))

    async def main() -> None:
        async with here() as host:
            host.broken = 2
            for _ in range(2):
                with pytest.raises(InfrastructureError, match="load1 is lost"):
                    await fetch_spool(connection(host), str(spool), run_dir)
                assert not has_load(run_dir) and piece_path(str(spool), 1).exists()
            await fetch_spool(connection(host), str(spool), run_dir)
            half = 5 * len(LINE) // 2
            assert [at for name, at in host.copied if name == first] == [0, half, (half + 5 * len(LINE)) // 2]

    asyncio.run(main())
    assert content(run_dir) == WHOLE


def test_what_is_here_is_not_copied_again(spool: Path, run_dir: Path) -> None:
    """Its host was cut off before it could be told to remove it."""
    piece = piece_path(str(spool), 1)
    (run_dir / contract.OPS_DIR / piece.name).write_bytes(piece.read_bytes())

    async def main() -> None:
        async with here() as host:
            await fetch_spool(connection(host), str(spool), run_dir)
            assert piece.name not in dict(host.copied)

    asyncio.run(main())
    assert content(run_dir) == WHOLE and not piece.exists()


def test_a_copy_that_is_whole_and_was_not_published_is_not_made_again(spool: Path, run_dir: Path) -> None:
    piece = piece_path(str(spool), 1)
    (run_dir / contract.OPS_DIR / f".{piece.name}.part").write_bytes(piece.read_bytes())

    async def main() -> None:
        async with here() as host:
            await fetch_spool(connection(host), str(spool), run_dir)
            assert piece.name not in dict(host.copied)

    asyncio.run(main())
    assert content(run_dir) == WHOLE


def test_a_worker_that_wrote_nothing_leaves_an_empty_file(tmp_path: Path, run_dir: Path) -> None:
    path = tmp_path / "host" / "run-1" / "worker-1.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()

    async def main() -> None:
        async with here() as host:
            await fetch_spool(connection(host), str(path), run_dir)

    asyncio.run(main())
    assert content(run_dir) == {path.name: 0} and not path.exists()


@pytest.mark.parametrize("left", [b"?", b"?" * 5 * len(LINE), b"?" * 9 * len(LINE)], ids=["less", "as much", "more"])
def test_what_was_left_of_another_copy_is_found_out(spool: Path, run_dir: Path, left: bytes) -> None:
    (run_dir / contract.OPS_DIR / f".{piece_path(str(spool), 1).name}.part").write_bytes(left)

    async def main() -> None:
        async with here() as host:
            await fetch_spool(connection(host), str(spool), run_dir)

    asyncio.run(main())
    assert content(run_dir) == WHOLE


def test_what_does_not_come_as_it_is_stays_where_it_is(spool: Path, run_dir: Path) -> None:
    async def main() -> None:
        async with here() as host:
            host.changed = spools.COPIES
            with pytest.raises(InfrastructureError, match=r"000001.jsonl of load1 came otherwise than it is there"):
                await fetch_spool(connection(host), str(spool), run_dir)

    asyncio.run(main())
    assert content(run_dir) == {} and piece_path(str(spool), 1).read_bytes() == LINE * 5


def test_a_disk_of_ours_that_takes_nothing(spool: Path, run_dir: Path) -> None:
    (run_dir / contract.OPS_DIR).rmdir()
    (run_dir / contract.OPS_DIR).write_text("no folder")

    async def main() -> None:
        async with here() as host:
            with pytest.raises(InfrastructureError, match=r"ops.*cannot be written"):
                await fetch_spool(connection(host), str(spool), run_dir)

    asyncio.run(main())
    assert spool.exists() and piece_path(str(spool), 1).exists()


def watched(run_dir: Path, host: Breaking, spool: Path) -> LiveRun:
    load = SimpleNamespace(workers=[SimpleNamespace(connection=host, spool=str(spool))])
    return cast(LiveRun, SimpleNamespace(run_dir=run_dir, load=load, events=EventWriter(run_dir, "run", now_ns())))


async def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_pieces_come_while_a_worker_writes(tmp_path: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "FETCH_PERIOD_S", 0.02)
    path = tmp_path / "worker-1.jsonl"
    made = Spool(str(path), piece_bytes=5 * len(LINE))

    async def main() -> None:
        async with here() as host:
            host.broken = 1
            task = asyncio.ensure_future(fetch_finished(watched(run_dir, host, path)))
            for number in range(1, 5):
                for _ in range(6):
                    made.write(LINE)
                here_by_then = [f"worker-1-{n:06d}.jsonl" for n in range(1, number + 1)]
                await until(lambda names=here_by_then: [*content(run_dir)] == names)  # type: ignore[misc]
                await until(lambda: not list(tmp_path.glob("worker-1-*")))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            made.close()
            await fetch_spool(connection(host), str(path), run_dir)
            once = [name for name, offset in host.copied if offset == 0]
            assert len(once) == len(set(once)) == 5

    asyncio.run(main())
    assert sum(content(run_dir).values()) == 24


def test_an_end_that_comes_with_a_hosts_answer_is_one(tmp_path: Path, run_dir: Path) -> None:
    """Else the run would wait for ever for the fetching to end."""

    async def main() -> None:
        async with here() as host:
            task = asyncio.ensure_future(fetch_finished(watched(run_dir, host, tmp_path / "worker-1.jsonl")))
            await until(lambda: bool(host.waiting()))
            (answer,) = host.waiting()
            answer.add_done_callback(lambda _: task.cancel())
            await asyncio.wait([task], timeout=20)
            assert task.cancelled()

    asyncio.run(main())


def test_an_end_in_the_middle_of_a_publication_waits_for_it(
    spool: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the fetch at the run's end would find the same file in two hands."""
    real = atomic.publish
    begun: list[Path] = []

    def slow(written: Path, path: Path) -> Path:
        begun.append(path)
        digest = hashlib.sha256(LINE)
        end = time.monotonic() + 0.2
        while time.monotonic() < end:  # busy in a thread of its own, as a flush is
            digest.update(LINE)
        return real(written, path)

    monkeypatch.setattr(atomic, "publish", slow)

    async def main() -> None:
        async with here() as host:
            task = asyncio.ensure_future(fetch_finished(watched(run_dir, host, spool)))
            await until(lambda: bool(begun))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert begun[0].exists()
            await fetch_spool(connection(host), str(spool), run_dir)

    asyncio.run(main())
    assert content(run_dir) == WHOLE and len(begun) == len(WHOLE)
