"""Processes of the load's clients that a fault kills, and what takes their place: real processes over pipes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brokerdrill.base.errors import InfrastructureError, Unmet
from brokerdrill.ledger import spool
from brokerdrill.runner.load import control
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.load.plan import PlannedWorker
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, ClientSpec, WorkerConfig

ROOT = Path(__file__).parents[4]


class LocalChannel:
    """A process of this machine, as a host's channel."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def lines(self) -> AsyncIterator[str]:
        assert self.process.stdout
        async for line in self.process.stdout:
            yield line.decode()

    async def write(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")
        await self.process.stdin.drain()

    async def ending(self) -> Any:
        return SimpleNamespace(said="", how=f"it ended with {await self.process.wait()}")

    async def end_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    async def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class Here:
    """This machine as a load host."""

    name = "load1"

    def __init__(self) -> None:
        self.started: list[asyncio.subprocess.Process] = []

    async def sh(self, script: str, **_: Any) -> Any:
        done = await asyncio.create_subprocess_shell(script, stdout=asyncio.subprocess.PIPE)
        out, _err = await done.communicate()
        return SimpleNamespace(rc=done.returncode, out=out.decode(), err="")

    async def open(self, command: list[str]) -> LocalChannel:
        # Each sees the project's code, and the fake client of its tests.
        path = f"PYTHONPATH={ROOT / 'chaos'}{os.pathsep}{ROOT}"
        words = [path if word.startswith("PYTHONPATH=") else word for word in command]
        pipe = asyncio.subprocess.PIPE
        self.started.append(await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe))
        return LocalChannel(self.started[-1])


def config(number: int) -> WorkerConfig:
    return WorkerConfig(
        run_id="r",
        worker=f"worker-{number}",
        clock=f"worker-{number}",
        client="tests.workload.fake_client:FakeClient",
        endpoints=(BrokerEndpoint("10.0.0.1", 1, "a1", "h1"),),
        credentials=ClientAccount("u", "p"),
        addresses=("q",),
        producers=(ClientSpec(f"producer-{number}", ("q",)),),
        consumers=(ClientSpec(f"consumer-{number}", ("q",)),),
        rate=100.0,
        transaction=2,
    )


async def until(condition: Any, changed: asyncio.Event, limit_s: float = 60) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            changed.clear()
            await changed.wait()


async def begun(host: Here, folder: Path, changed: asyncio.Event, monkeypatch: pytest.MonkeyPatch) -> LoadControl:
    """Start two workers that send."""

    async def shipped(_: Any) -> str:
        return "code"

    monkeypatch.setattr(control, "ship", shipped)
    load = LoadControl("r", changed.set)
    there: Any = SimpleNamespace(
        spool_dir=str(folder), pythonpath="", java_home="", python=sys.executable, jars={}, instance="load1"
    )
    connection: Any = host
    await load.start([(connection, there)], [PlannedWorker(0, config(0)), PlannedWorker(0, config(1))], "run")
    await load.begin()
    await until(lambda: load.totals().received >= 10, changed)
    return load


def test_a_killed_worker_is_replaced_and_its_ledger_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def drill() -> None:
        host, changed = Here(), asyncio.Event()
        load = await begun(host, tmp_path, changed, monkeypatch)
        try:
            async with load.killed("load1") as clients:
                os.kill(host.started[0].pid, signal.SIGKILL)
            assert clients == ["producer-0", "consumer-0"]
            assert [worker.name for worker in load.living] == ["worker-1"]
            load.totals()
            await load.replace_killed()
            await load.replace_killed()
            assert [worker.name for worker in load.workers] == ["worker-0", "worker-1", "worker-0.1"]
            other = load.workers[2]
            await until(lambda: int(other.status.get("received", 0)) >= 10, changed)
            # One that came later may be killed, too.
            async with load.killed("load1") as clients:
                os.kill(host.started[2].pid, signal.SIGKILL)
            assert clients == ["producer-0.1", "consumer-0.1"]
            await load.stop_producers()
            await load.all_reach("producers_stopped", 30)
            await load.replace_killed()
            assert load.workers[3].name == "worker-0.2"
            await load.workers[3].until("producers_stopped", 30)
            await load.stop(())
            await load.all_reach("closed", 30)
        finally:
            await load.close()
        for worker in load.workers:
            rows = list(spool.rows(Path(worker.spool).read_text().split("\n")[:-1]))
            assert {row["clock"] for row in rows} <= {worker.clock_name}
            for client in {row["client"] for row in rows}:
                numbers = sorted({row["op_id"] for row in rows if row["client"] == client})
                assert numbers == list(range(len(numbers))), client

    asyncio.run(drill())


def test_an_end_that_no_fault_explains_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def drill() -> None:
        host, changed = Here(), asyncio.Event()
        load = await begun(host, tmp_path, changed, monkeypatch)
        try:
            monkeypatch.setattr(control, "DEATH_DEADLINE_S", 0.2)
            with pytest.raises(Unmet, match="no worker of load1 has ended"):
                async with load.killed("load1"):
                    pass
            os.kill(host.started[0].pid, signal.SIGKILL)
            await until(lambda: load.workers[0].fatal, changed)
            with pytest.raises(InfrastructureError, match="worker worker-0 on load1 failed"):
                load.totals()
        finally:
            await load.close()

    asyncio.run(drill())
