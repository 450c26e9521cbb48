"""Hosts of the bench for one test: root by SSH, addresses of their own, and nothing that was there before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from brokerdrill.base import paths
from brokerdrill.bench import bench
from brokerdrill.inventory.topology import Topology, load


def up(folder: Path, name: str, subnet: str, hosts: Mapping[str, str], **variables: Any) -> Topology:
    """Make the `hosts` (name → address) of a topology, whose inventory is written below `folder`, with these
    `variables` besides. Who has called it takes them down."""
    directory = folder / name
    directory.mkdir()
    told = {
        "bench_subnet": subnet,
        "bench_memory": "256m",
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(paths.cache() / "bench" / "id_ed25519"),
        "ansible_ssh_common_args": "-o StrictHostKeyChecking=no",
        **variables,
    }
    inventory = {"all": {"vars": told, "hosts": {host: {"ansible_host": address} for host, address in hosts.items()}}}
    (directory / "hosts.yml").write_text(yaml.safe_dump(inventory))
    topology = load(directory)
    bench.down(topology.name)
    bench.up(topology)
    return topology
