"""Made-up systems: a pair with its ensemble, a cluster behind routers."""

from __future__ import annotations

from typing import Any

from brokerdrill.inventory.descriptors import Descriptor
from tests.unit.descriptors import PORTS, instance

MANAGEMENT = {"type": "t", "url": "http://192.0.2.1"}
DUPLICATES = ["duplicate_ids", "replicated"]


def broker(name: str, product: str = "artemis", store: str = "pair1", **values: Any) -> Descriptor:
    """Return a broker whose role can be read."""
    protocol, port = PORTS.get(product, ("amqp091", 5672))
    listener = {"name": protocol, "address": name, "port": port, "protocol": protocol}
    given = {"unit": f"{product}.service", "management": MANAGEMENT, "listeners": [listener]}
    return instance(product, name, **({"store": store, **given} | values))


def dials(link: str, *names: str) -> list[dict[str, Any]]:
    return [{"link": link, "to": name, "address": name, "port": 1000} for name in names]


_SERVERS = ("zk1", "zk2", "zk3")
ZOOKEEPER = [
    instance("zookeeper", name, store="zookeeper", dials=dials("zookeeper", *(one for one in _SERVERS if one != name)))
    for name in _SERVERS
]
PAIR = [
    broker(name, role=role, dials=dials(role, other) + dials("zookeeper", *_SERVERS), features=DUPLICATES)
    for name, role, other in (("artemis1", "primary", "artemis2"), ("artemis2", "backup", "artemis1"))
]
LOAD = instance("load", "load1")
_RABBITS = ("rabbit1", "rabbit2", "rabbit3")
RABBITS = [
    broker(
        name,
        "rabbitmq",
        name,
        dials=dials("cluster", *(one for one in _RABBITS if one != name)),
        features=["cluster", "quorum_queues"],
    )
    for name in _RABBITS
]
ROUTERS = [
    instance("amqp_router", name, management=MANAGEMENT, control="ctl", dials=dials("backend", *_RABBITS))
    for name in ("router1", "router2")
]
