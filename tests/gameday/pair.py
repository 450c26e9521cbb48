"""A made-up pair of brokers on a shared store, and the topology they stand in."""

from __future__ import annotations

from pathlib import Path

from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import Host, Topology

PORT = 61616


def broker(number: int, role: str = "", dials: tuple[str, ...] = ()) -> Descriptor:
    host = f"artemis{number}"
    return Descriptor(
        schema=1,
        product="artemis",
        instance=host,
        host=host,
        store="orders",
        role=role or None,
        listeners=[{"name": "core", "protocol": "core", "address": host, "port": PORT}],
        dials=[{"link": "cluster", "to": to, "address": to, "port": PORT} for to in dials],
        features=["failback", "shared_store", "duplicate_ids"],
        settings={"failover_ms": 1000.0, "failback_ms": 1000.0},
    )


PAIR = [broker(1, "primary", ("artemis2",)), broker(2, "backup", ("artemis1",))]


def topology(name: str = "pair", allowed: bool = True) -> Topology:
    hosts = tuple(
        Host(one, one, 22, "root", None, groups, {})
        for one, groups in (("artemis1", ("artemis",)), ("artemis2", ("artemis",)), ("load1", ("load",)))
    )
    return Topology(name, Path(name), hosts, allowed, "0", {})
