"""An Open MQ cluster on the bench's hosts, and its administrator."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from brokerdrill.base import paths
from brokerdrill.base.progress import Progress
from brokerdrill.bench import bench
from brokerdrill.hosts.connection import connected
from brokerdrill.inventory import playbooks
from brokerdrill.inventory.topology import Topology, find_topology

BROKERS = ["openmq1", "openmq2", "openmq3"]
DRILL_QUEUES = {f"drill.q{number}" for number in range(4)}


@contextmanager
def deployed(name: str) -> Iterator[Topology]:
    """The topology on fresh hosts, which are gone afterwards."""
    found = find_topology(name)
    bench.up(found, fresh=True, progress=print)
    try:
        run(found, "site")
        yield found
    finally:
        bench.down(found)


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


def command(topology: Topology, host: str, words: str) -> str:
    """Return what imqcmd says on a host."""
    address = on_host(topology, host, "hostname -I").split()[0]
    place = f"/etc/openmq/{host}"
    words = f"@{place}/command.options -f -b {address}:7676 -u admin -passfile {place}/passfile -secure {words}"
    return on_host(topology, host, f"runuser -u openmq -- java {shlex.join(words.split())}")


def queues(topology: Topology, host: str) -> set[str]:
    lines = command(topology, host, "list dst -t q").splitlines()
    return {line.split()[0] for line in lines if " Queue " in line}


def changed(output: str) -> bool:
    return any("changed=" in line and "changed=0 " not in line for line in output.splitlines())


def newest_backup(topology: Topology) -> Path:
    """Return the last backup of the cluster's record of changes on the controller."""
    return max((paths.cache() / "backups" / f"bench-{topology.name}").glob("*.changes"))
