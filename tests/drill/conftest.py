"""The deployed bench that drills run on: brought up and deployed once a session, left as it was found at the end."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.bench import bench
from brokerdrill.faults.lease import SILENT_S, left_over
from brokerdrill.hosts.connection import HostConnection, NoKernel, connected
from brokerdrill.inventory.topology import Topology, find_topology
from tests.conftest import DEPLOYED

ROOT = Path(__file__).resolve().parents[2]
BROKERDRILL = [sys.executable, "-m", "brokerdrill"]


@pytest.fixture(scope="session")
def topology(request: pytest.FixtureRequest) -> Topology:
    """artemis_quorum, up and deployed."""
    found = find_topology("artemis_quorum")
    if not request.config.stash.get(DEPLOYED, False):
        bench.up(found, fresh=False, progress=print)
        subprocess.run([*BROKERDRILL, "deploy", found.name], check=True, cwd=ROOT)
    return found


@pytest.fixture
def unleased(topology: Topology) -> None:
    """Wait until no run holds the hosts: the lease of one that was killed ends SILENT_S after its last word."""

    async def holder(connection: HostConnection) -> str:
        with contextlib.suppress(NoKernel):
            if lease := (await connection.kernel("status"))["lease"]:
                return str(lease["says"])
        return ""

    async def holders() -> list[str]:
        async with connected(topology.hosts) as connections:
            return [*filter(None, await asyncio.gather(*map(holder, connections.values())))]

    deadline = time.monotonic() + 2 * SILENT_S
    while said := asyncio.run(holders()):
        assert time.monotonic() < deadline, said
        time.sleep(0.5)


@pytest.fixture
def on_hosts(topology: Topology) -> Iterator[Callable[..., Any]]:
    """Run a coroutine function with the connections of all hosts; afterwards no fault may be left on any."""

    def call(work: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            async with connected(topology.hosts) as connections:
                return await work(connections)

        return asyncio.run(main())

    yield call
    assert call(lambda connections: left_over(connections.values())) == {}
