"""What the safety kernel costs a drill: the lease on all hosts, and the records of its faults.

    .venv/bin/python benchmarks/safety/run.py [TOPOLOGY] [--rounds N]

Without TOPOLOGY two hosts of the bench are made for it. In one run the same changes, which do nothing, are made by the
kernel and by scripts alone, in turns; what the kernel takes longer, for FAULTS faults, and the lease are a drill's
cost. Exit status 1: it is above COST_S.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

from brokerdrill.base import paths
from brokerdrill.base.clock import now_ns
from brokerdrill.bench import bench
from brokerdrill.faults.base import FaultType, HostChange, Parameters
from brokerdrill.faults.executor import Executor
from brokerdrill.faults.lease import LeaseRequest, leased
from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.inventory.targets import Target
from brokerdrill.inventory.topology import Topology, find_topology
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.journal import Journal

sys.path.insert(0, str(paths.ROOT))
from tests.bench import bare_hosts

COST_S = 0.5
# Faults of a drill: it arms a link, bends it, and kills a broker.
FAULTS = 3


async def timed(work: Awaitable[object]) -> float:
    begun = time.monotonic()
    await work
    return time.monotonic() - begun


async def measured(topology: Topology, rounds: int, folder: Path) -> bool:
    """Print the costs; return whether they are low enough."""
    async with connected(topology.hosts) as connections:
        leases, kernels, scripts = [], [], []
        for number in range(rounds):
            begun = time.monotonic()
            async with leased(LeaseRequest(f"cost-{number}", "benchmark"), connections) as lease:
                taken = time.monotonic() - begun
                lease.keep(Keeper())
                journal, events = Journal(folder), EventWriter(folder, "cost", now_ns())
                executor = Executor(connections, lease, journal, events)
                connection = next(iter(connections.values()))
                await fault(executor, connection, number)  # the guard starts with the first
                kernels.append(await timed(fault(executor, connection, now_ns())))
                scripts.append(await timed(by_scripts(connection)))
                begun = time.monotonic()
            leases.append(taken + time.monotonic() - begun)
    lease_s, kernel_s, script_s = map(statistics.median, (leases, kernels, scripts))
    cost_s = lease_s + FAULTS * (kernel_s - script_s)
    print(f"lease on {len(topology.hosts)} hosts, taken and given back: {lease_s * 1e3:.0f} ms")
    print(f"a fault: {kernel_s * 1e3:.0f} ms by the kernel, {script_s * 1e3:.0f} ms by scripts alone: "
          f"{kernel_s / script_s:.1f} times")  # fmt: skip
    print(f"a drill of {FAULTS} faults: {cost_s * 1e3:.0f} ms more (at most {COST_S * 1e3:.0f})")
    return cost_s <= COST_S


class Keeper:
    """Has no faults to hear of."""

    def unhealed(self, host: str) -> list[str]:
        return []

    def heard(self, host: str, records: list[dict[str, object]]) -> None:
        pass


def change(host: str) -> HostChange:
    return HostChange(host=host, effect=":", verify=":", heal=":", verify_heal=":", target=host)


async def fault(executor: Executor, connection: HostConnection, number: int) -> None:
    """Inject and heal a fault that does nothing."""
    kind = FaultType("nothing", "instance", "nothing", Parameters, lambda *_: [change(connection.name)])
    await executor.heal(await executor.inject("nothing", kind, Target("it"), Parameters(), 60, f"cost{number}"))


async def by_scripts(connection: HostConnection) -> None:
    """Run what a fault runs, without records: prepare, effect, verify, heal, verify_heal."""
    for _ in range(5):
        await connection.sh(":", check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topology", nargs="?")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        topology = find_topology(given.topology) if given.topology else bare_hosts.up(folder)
        try:
            return 0 if asyncio.run(measured(topology, given.rounds, folder)) else 1
        finally:
            if not given.topology:
                bench.down(topology.name)


if __name__ == "__main__":
    sys.exit(main())
