"""An Open MQ cluster on the bench's hosts, and its administrator."""

from __future__ import annotations

import shlex
from pathlib import Path

from brokerdrill.base import paths
from brokerdrill.inventory.topology import Topology
from tests.drill.deployment import on_host

BROKERS = ["openmq1", "openmq2", "openmq3"]
DRILL_QUEUES = {f"drill.q{number}" for number in range(4)}


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
