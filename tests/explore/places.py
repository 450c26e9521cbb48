"""A made-up topology to draw on: a replicated pair, three servers of an ensemble, a load host."""

from __future__ import annotations

from brokerdrill.explore.space import Space, space
from brokerdrill.inventory.descriptors import Descriptor
from tests.unit.descriptors import broker, instance

TOPOLOGY = "artemis_quorum"


def pair() -> list[Descriptor]:
    """Return the descriptors of the topology."""
    servers = [f"zk{number}" for number in (1, 2, 3)]
    dials = [{"address": "192.0.2.9", "port": 2281, "link": "zookeeper", "to": name} for name in servers]
    features = ["replicated", "zookeeper_lock", "failback"]
    brokers = [
        broker(
            "artemis",
            f"artemis{number}",
            role=role,
            unit="artemis.service",
            features=features,
            data_dir="/var/lib/artemis",
            settings={"session_ms": 4000, "ttl_ms": 4000, "id_cache_size": 5000},
            dials=[*dials, {"address": "192.0.2.1", "port": 61616, "link": "peer", "to": f"artemis{3 - number}"}],
        )
        for number, role in ((1, "primary"), (2, "backup"))
    ]
    ensemble = [instance("zookeeper", name, store="zookeeper", unit="zookeeper.service") for name in servers]
    return [*brokers, *ensemble, instance("load", "load1")]


def drawn_on() -> Space:
    """Return what can be drawn there, with a toxiproxy on brokers and load."""
    return space(TOPOLOGY, pair(), {"artemis1", "artemis2", "load1"})
