"""How the health of each product's instances is read.

One module a product, named like its role; the table below is the registry. The module `brokerdrill.ha.health` runs them
on the hosts; the Python package uses the same mappings from an answer to a state through the link
chaos/brokerdrill/products/health. Standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

from . import (
    activemq_classic,
    amqp_router,
    artemis,
    balancer,
    lease_db,
    load,
    openmq,
    prometheus,
    rabbitmq,
    resolver,
    shared_store,
    toxiproxy,
    zookeeper,
)

READERS = {
    "activemq_classic": activemq_classic.read,
    "amqp_router": amqp_router.read,
    "artemis": artemis.read,
    "balancer": balancer.read,
    "lease_db": lease_db.read,
    "load": load.read,
    "openmq": openmq.read,
    "prometheus": prometheus.read,
    "rabbitmq": rabbitmq.read,
    "resolver": resolver.read,
    "shared_store": shared_store.read,
    "toxiproxy": toxiproxy.read,
    "zookeeper": zookeeper.read,
}
