"""What a topology's containers must be: names, network, addresses, volumes, images. Nothing here asks the engine."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from brokerdrill.base.errors import UsageError
from brokerdrill.bench import image
from brokerdrill.inventory.topology import Host, Topology


@dataclass(frozen=True)
class BenchPlan:
    """What the containers of a topology must be: names, network, bridge and the host names' addresses."""

    topology: str
    network: str
    bridge: str
    subnet: ipaddress.IPv4Network
    gateway: str
    addresses: Mapping[str, str]

    def container(self, host: str) -> str:
        return f"{self.topology}-{host}"


def plan(topology: Topology) -> BenchPlan:
    """Return the BenchPlan of `topology`. Raises UsageError when its inventory cannot be a bench.

    It needs `bench_subnet` (IPv4, CIDR) and, in it, a distinct `ansible_host` address for each host, none of them the
    network's first one, which the bridge takes.
    """
    text = topology.vars.get("bench_subnet")
    if not text:
        raise UsageError(f"inventory {topology.name} has no bench_subnet, so its hosts cannot be made on this machine")
    try:
        subnet = ipaddress.IPv4Network(str(text))
    except ValueError as error:
        raise UsageError(f"inventory {topology.name}: bench_subnet is no IPv4 network: {error}") from None
    gateway = str(subnet.network_address + 1)
    taken: dict[str, str] = {gateway: "the bridge"}
    for host in topology.hosts:
        try:
            inside = ipaddress.IPv4Address(host.address) in subnet
        except ValueError:
            inside = False
        if not inside:
            raise UsageError(f"host {host.name} has the address {host.address!r}, not one in bench_subnet {subnet}")
        if host.address in taken:
            raise UsageError(f"host {host.name} has the address {host.address} of {taken[host.address]}")
        taken[host.address] = host.name
    return BenchPlan(
        topology=topology.name,
        network=f"brokerdrill-{topology.name}",
        bridge="bd-" + hashlib.sha256(topology.name.encode()).hexdigest()[:8],
        subnet=subnet,
        gateway=gateway,
        addresses={host.name: host.address for host in topology.hosts},
    )


class Volume(NamedTuple):
    """Where a host has a volume, and for one that can be filled its size, as mount(8) writes one of a tmpfs."""

    path: str
    size: str | None


def volumes(topology: str, host: Host) -> dict[str, Volume]:
    """Return the engine's volume → where `host` has it, from its `bench_volumes` (name → absolute path, or → path and
    size).

    Hosts of a topology that name the same volume share it, as they would a mount of one server. Raises UsageError.
    """
    given = host.vars.get("bench_volumes") or {}
    listed = given if isinstance(given, Mapping) else {"": None}
    found = {name: one if isinstance(one, Mapping) else {"path": one} for name, one in listed.items()}
    if not all(str(one.get("path")).startswith("/") and one.keys() <= {"path", "size"} for one in found.values()):
        raise UsageError(f"host {host.name}: bench_volumes must map names to absolute paths, or to path and size")
    return {f"brokerdrill-{topology}-{name}": Volume(str(one["path"]), one.get("size")) for name, one in found.items()}


def devices(host: Host) -> list[str]:
    """Return the machine's devices that `host` has as well, from its `bench_devices` (absolute paths). Raises
    UsageError."""
    given = host.vars.get("bench_devices") or []
    if not isinstance(given, list) or not all(str(path).startswith("/dev/") for path in given):
        raise UsageError(f"host {host.name}: bench_devices must list paths below /dev")
    return sorted(str(path) for path in given)


def recipes(topology: Topology, all_of: str | None = None) -> dict[str, image.Recipe]:
    """Return each host's recipe: that of the name `all_of`, else of its `bench_image`. Raises UsageError."""
    return {
        host.name: image.find_recipe(all_of or str(host.vars.get("bench_image") or image.DEFAULT))
        for host in topology.hosts
    }
