"""The network of a topology: a bridge of its own, on a subnet that nothing else on this machine uses."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import subprocess

import docker
from docker.errors import APIError, NotFound
from docker.types import IPAMConfig, IPAMPool

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.bench.labels import LABEL
from brokerdrill.bench.plan import BenchPlan


def _routes() -> list[tuple[str, str]]:
    """Return (destination, device) of this machine's IPv4 routes, without the default one."""
    ip = shutil.which("ip", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if ip is None:
        return []
    done = subprocess.run([ip, "-j", "-4", "route", "show"], capture_output=True, text=True)
    try:
        return [
            (str(r["dst"]), str(r.get("dev", ""))) for r in json.loads(done.stdout or "[]") if r["dst"] != "default"
        ]
    except (ValueError, KeyError):
        return []


def conflict(subnet: ipaddress.IPv4Network, bridge: str, routes: list[tuple[str, str]]) -> str | None:
    """Return what of this machine already uses part of `subnet` ("NETWORK on DEVICE"), or None."""
    for destination, device in routes:
        with contextlib.suppress(ValueError):
            if device != bridge and ipaddress.IPv4Network(destination).overlaps(subnet):
                return f"{destination} on {device}"
    return None


def ensure_network(client: docker.DockerClient, wanted: BenchPlan) -> None:
    """Make the topology's network, unless it is there as it should be. Raises InfrastructureError."""
    for network in client.networks.list(names=[wanted.network]):
        if network.name == wanted.network:
            pools = (network.attrs.get("IPAM") or {}).get("Config") or [{}]
            if pools[0].get("Subnet") == str(wanted.subnet):
                return
            remove_network(client, network.name)
    busy = conflict(wanted.subnet, wanted.bridge, _routes())
    hint = "choose another bench_subnet and addresses in the inventory"
    if busy:
        raise InfrastructureError(f"the bench's subnet {wanted.subnet} is taken on this machine by {busy}; {hint}")
    try:
        client.networks.create(
            wanted.network,
            driver="bridge",
            ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=str(wanted.subnet), gateway=wanted.gateway)]),
            options={"com.docker.network.bridge.name": wanted.bridge},
            labels={LABEL: wanted.topology},
        )
    except APIError as error:
        reason = " ".join(str(error.explanation or error).split())
        if "overlap" in reason:
            raise InfrastructureError(
                f"the bench's subnet {wanted.subnet} is taken by another Docker network; {hint}"
            ) from None
        raise InfrastructureError(f"the bench's network cannot be made: {reason}") from None


def remove_network(client: docker.DockerClient, name: str) -> None:
    """Remove a network, if it is there. Raises InfrastructureError where it cannot be."""
    try:
        network = client.networks.get(name)
        for container_id in network.attrs.get("Containers") or {}:
            network.disconnect(container_id, force=True)
        network.remove()
    except NotFound:
        return
    except APIError as error:
        raise InfrastructureError(f"the network {name} cannot be removed: {error.explanation}") from None
