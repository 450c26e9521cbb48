"""The volumes of a topology's hosts: shared ones, and disks that can be filled."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import docker
from docker.errors import NotFound

from brokerdrill.base import paths
from brokerdrill.bench.containers import RESTART_POLICY, remove_container
from brokerdrill.bench.labels import LABEL, LABEL_CHECKOUT, LABEL_SPEC
from brokerdrill.bench.plan import volumes
from brokerdrill.inventory.topology import Topology

# The container of a topology that is no host, but keeps hosts' disks.
DISKS = "disks"


def ensure_volumes(client: docker.DockerClient, topology: Topology, image_id: str, fresh: bool) -> None:
    """Make the hosts' volumes, empty ones with `fresh`; those with a size in memory, which needs no partition."""
    if fresh:
        remove_volumes(client, topology.name)
    wanted = {name: volume.size for host in topology.hosts for name, volume in volumes(topology.name, host).items()}
    for name, size in sorted(wanted.items()):
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size},mode=0755"} if size else None
        client.volumes.create(name, driver_opts=options, labels={LABEL: topology.name})
    _keep_disks(client, topology.name, image_id, [name for name, size in wanted.items() if size])


def _keep_disks(client: docker.DockerClient, topology: str, image_id: str, names: Sequence[str]) -> None:
    """Have a container use the volumes in memory: what is in one that none uses is gone, and a host that is started
    anew would find its disk empty."""
    spec = ",".join(sorted(names))
    with contextlib.suppress(NotFound):
        there = client.containers.get(f"brokerdrill-{topology}-{DISKS}")
        if there.status == "running" and there.labels.get(LABEL_SPEC) == spec:
            return
        remove_container(there)
    if names:
        options: dict[str, Any] = {"restart_policy": RESTART_POLICY}
        client.containers.run(
            image_id,
            name=f"brokerdrill-{topology}-{DISKS}",
            entrypoint=["sleep", "infinity"],
            init=True,
            detach=True,
            network_mode="none",
            volumes=[f"{name}:/disks/{name}" for name in names],
            labels={LABEL: topology, LABEL_SPEC: spec, LABEL_CHECKOUT: str(paths.ROOT)},
            **options,
        )


def remove_volumes(client: docker.DockerClient, topology: str) -> None:
    """Remove the volumes of a topology."""
    for volume in client.volumes.list(filters={"label": f"{LABEL}={topology}"}):
        with contextlib.suppress(NotFound):
            volume.remove(force=True)
