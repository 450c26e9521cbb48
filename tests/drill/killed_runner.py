"""A runner that injects one fault and heals it, and is killed with SIGKILL at a step of that: a program for tests.

    python -m tests.drill.killed_runner TOPOLOGY FAULT TARGET PARAMETERS STEP TTL RUN_DIR

PARAMETERS is JSON. Live roles are those of the moment.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from brokerdrill.base.clock import now_ns
from brokerdrill.base.progress import Progress
from brokerdrill.faults.executor import AppliedChange, Executor
from brokerdrill.faults.lease import SILENT_S, Lease, LeaseRequest, take
from brokerdrill.faults.link import ARM
from brokerdrill.faults.registry import fault_type
from brokerdrill.hosts.connection import HostConnection, KernelRefused, connected
from brokerdrill.hosts.descriptors import read_all
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.targets import Scene, is_link, resolve
from brokerdrill.inventory.topology import find_topology
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.journal import Journal
from brokerdrill.products.registry import DESCRIPTORS, managed
from brokerdrill.runner.system import System

# When the runner dies. `registered`: the hosts know how to heal, nothing is broken yet; `effective`: it is broken and
# not yet in the journal; `healed`: it is whole again and not yet in the journal.
STEPS = ("intent", "registered", "effective", "injected", "verified", "heal_intent", "healed")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class MortalJournal(Journal):
    """Dies after it has written the entry of a step, or before where the step is what the entry would have told."""

    mortal_at = ""

    def write(self, phase: str, fault_id: str, **fields: Any) -> None:
        if (self.mortal_at, phase) in (("effective", "injected"), ("healed", "healed")):
            die()
        super().write(phase, fault_id, **fields)
        if phase == self.mortal_at:
            die()


class MortalExecutor(Executor):
    """Dies when every change is registered and none is made."""

    mortal_at = ""

    async def _apply(self, *item: Any) -> AppliedChange:
        if self.mortal_at == "registered":
            die()
        return await super()._apply(*item)


async def live_roles(descriptors: Sequence[Descriptor], connections: Mapping[str, HostConnection]) -> dict[str, str]:
    if not any(item.management for item in descriptors):
        return {}
    system = System(Progress(Console(stderr=True)))
    await system.open(managed(descriptors), connections)
    try:
        return {name: await item.management.role() for name, item in system.instances.items()}
    finally:
        await system.close()


async def free_again(request: LeaseRequest, connections: Mapping[str, HostConnection]) -> Lease:
    """Take the lease; the one of a runner that was killed before ends by itself."""
    end = asyncio.get_running_loop().time() + 2 * SILENT_S
    while True:
        try:
            return await take(request, connections)
        except KernelRefused:
            if asyncio.get_running_loop().time() > end:
                raise
            await asyncio.sleep(0.5)


async def main(topology: str, fault: str, target: str, parameters: str, step: str, ttl: str, run_dir: str) -> None:
    async with connected(find_topology(topology).hosts) as connections:
        descriptors = await read_all(connections.values(), DESCRIPTORS)
        scene = Scene(descriptors, await live_roles(descriptors, connections), random.Random(1))
        journal = MortalJournal(Path(run_dir))
        lease = await free_again(LeaseRequest(Path(run_dir).name, topology), connections)
        executor = MortalExecutor(connections, lease, journal, EventWriter(Path(run_dir), "killed", now_ns()))
        lease.keep(executor)
        kind, resolved, tag = fault_type(fault), resolve(scene, target), f"killed{os.getpid()}"
        if kind.acts_on == "armed link":
            await executor.inject("arm", ARM, resolved, ARM.complete({}), float(ttl), tag)
        assert is_link(target) == kind.acts_on.endswith("link")
        journal.mortal_at = executor.mortal_at = step
        injection = await executor.inject(
            "hurt", kind, resolved, kind.complete(json.loads(parameters)), float(ttl), tag
        )
        await executor.heal(injection)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
