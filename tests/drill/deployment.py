"""A topology on fresh hosts of the bench, its playbooks, and what its hosts say."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from brokerdrill.base.progress import Progress
from brokerdrill.bench import bench
from brokerdrill.hosts.connection import connected
from brokerdrill.inventory import playbooks
from brokerdrill.inventory.topology import Topology, find_topology


@contextmanager
def deployed(name: str, **variables: object) -> Iterator[Topology]:
    """The topology on fresh hosts, with these variables of the playbook; they are gone afterwards."""
    found = find_topology(name)
    bench.up(found, fresh=True, progress=print)
    try:
        run(found, "site", **variables)
        yield found
    finally:
        bench.down(found.name)


def run(topology: Topology, playbook: str, **variables: object) -> str:
    """Run a playbook; return its output."""
    extra = ["-e", json.dumps(variables)] if variables else []
    playbooks.run_playbook(topology, playbook, Progress(Console()), extra)
    return playbooks.playbook_log(topology, playbook).read_text()


def on_host(topology: Topology, host: str, script: str) -> str:
    """Return what a script says on a host."""

    async def main() -> str:
        async with connected([item for item in topology.hosts if item.name == host]) as connections:
            return (await connections[host].sh(script, check=True)).out

    return asyncio.run(main())


def until(holds: Callable[[], bool], deadline_s: float, between_s: float = 1.0) -> None:
    """Ask each `between_s` until it holds; it has to within `deadline_s`."""
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(between_s)
