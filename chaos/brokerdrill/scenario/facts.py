"""What a deployed topology has, for the `needs` of drills and the settings that bounds follow from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from brokerdrill.base.errors import UsageError, unknown_name
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.targets import serves_clients

NOT = "not "
# What may stand in `needs`: products, what their descriptors list as `features`, and what follows from the instances.
FACTS: Mapping[str, str] = {
    "artemis": "a broker of Artemis",
    "activemq_classic": "a broker of ActiveMQ Classic",
    "openmq": "a broker of Open MQ",
    "rabbitmq": "a broker of RabbitMQ",
    "rabbitmq_4": "a broker of RabbitMQ 4 or later; not known of hosts that nobody has asked yet",
    "amqp_router": "a session router between clients and brokers",
    "balancer": "a balancer that hands connections on to brokers in turn",
    "virtual_address": "an address that is always at one of the routers that serve",
    "resolver": "a name server of the hosts",
    "named_brokers": "session routers that dial brokers by their names",
    "rendezvous": "session routers that choose a broker by a hash of the client's key",
    "lasting_sessions": "sessions that outlive the router's process which serves them",
    "quorum_queues": "queues with copies on a majority of the brokers",
    "classic_queues": "queues that one broker of a cluster has",
    "mirrored_queues": "classic queues with mirrors on other brokers of the cluster",
    "pause_minority": "brokers that stop where they see a minority of their cluster",
    "autoheal": "brokers that serve on when they are cut off, and give up one side's when they are together again",
    "ignore": "brokers that serve on when they are cut off, and stay apart",
    "zookeeper": "a ZooKeeper ensemble",
    "spare_voters": "hosts that can join the ZooKeeper ensemble, or replace its servers",
    "prometheus": "a Prometheus that watches the brokers",
    "standby": "a second broker that can take over a store",
    "primary": "a pair with a fixed primary and backup",
    "one_pair": "one store that brokers serve, and no more",
    "several_pairs": "several stores, each with its own active broker",
    "failback": "a primary that takes its role back when it returns",
    "replicated": "a backup with its own copy of the journal",
    "shared_store": "a journal that primary and backup share",
    "store_servers": "servers of a file system, each with a copy of the brokers' shared store",
    "strict_locks": "a file system whose client does not open again what it held locks on when it lost the servers",
    "waits_out_stop": "a backup that stays passive when the active broker of its shared store is stopped in order",
    "unchecked": "a primary that returns without a look for who has served in its place",
    "colocated": "a backup inside another broker's process",
    "vote": "brokers that vote on who is active",
    "zookeeper_lock": "a lock in ZooKeeper that decides which broker is active",
    "scale_down": "a broker that hands its messages to another when it stops",
    "cluster": "brokers that serve each other's clients, each with a store of its own",
    "master_broker": "a broker that keeps the record of its cluster's changes",
    "store_takeover": "a broker that takes over the store of one that failed, beside its own",
    "amqp_listener": "a port of the brokers at which clients of AMQP 1.0 are served",
    "openwire_listener": "a port of the brokers at which clients of OpenWire are served",
    "stomp_listener": "a port of the brokers at which clients of STOMP are served",
    "mqtt_listener": "a port of the brokers at which clients of MQTT are served",
    "duplicate_ids": "a broker that refuses the second copy of a message by its id",
    "connection_router": "a broker that leads clients to others by their routing key",
    "cluster_pool": "a broker that leads clients to the other members of its cluster by their routing key",
    "discovery_pool": "a broker that leads clients to those that announce themselves by their routing key",
    "local_partition": "brokers that each serve the clients of its own routing keys and refuse others",
    "database": "a database that the brokers use",
    "lease": "a lease in the database that decides which broker is active",
    "database_lock": "a lock in the database that decides which broker is active",
    "file_lock": "a lock on a file that decides which broker is active",
    "lock_checked": "an active broker that looks after its lock",
    "database_store": "a store in the database",
    "file_store": "a store in files",
    "own_disk": "a store on a file system of its own",
}

# From which major version on a product's brokers have a word of their own.
VERSIONED: Mapping[str, tuple[str, int]] = {"rabbitmq_4": ("rabbitmq", 4)}
# What is said of pairs holds until its first return.
UNCHECKED = "unchecked"
# Who has one of these leads clients by their routing key, or refuses them.
LEADING = frozenset({"connection_router", "cluster_pool", "discovery_pool", "local_partition"})


def check_need(need: str) -> None:
    """Raise UsageError, with the nearest word, where `need` is none of FACTS, alone or after `not`."""
    if need.removeprefix(NOT) not in FACTS:
        raise unknown_name("need", need.removeprefix(NOT), FACTS)


def stores(descriptors: Iterable[Descriptor]) -> dict[str, list[Descriptor]]:
    """Return the brokers of each store that clients' brokers serve, by the store's name, in the order of the names."""
    found: dict[str, list[Descriptor]] = {}
    for item in descriptors:
        if item.store and serves_clients(item):
            found.setdefault(item.store, []).append(item)
    return dict(sorted(found.items()))


def facts(descriptors: Sequence[Descriptor]) -> frozenset[str]:
    """Return the words of FACTS that hold for these instances."""
    found = {item.product for item in descriptors} | {name for item in descriptors for name in item.features}
    found |= {word for word, (product, least) in VERSIONED.items() for item in descriptors
              if item.product == product and _major(item.version) >= least}  # fmt: skip
    if UNCHECKED in found:
        return frozenset({*(item.product for item in descriptors), UNCHECKED} & set(FACTS))
    if led := found & LEADING:
        # Clients get to a store by their key: what is said of stores that they dial themselves does not hold.
        return frozenset({*(item.product for item in descriptors), *led} & set(FACTS))
    served = (item for item in descriptors if serves_clients(item))
    found |= {f"{one.protocol}_listener" for item in served for one in item.listeners if one.clients and not one.router}
    pairs = stores(descriptors)
    found.add("several_pairs" if len(pairs) > 1 else "one_pair")
    if any(len(members) > 1 for members in pairs.values()):
        found.add("standby")
    if any(item.role == "backup" for members in pairs.values() for item in members):
        found.add("primary")
    return frozenset(found & set(FACTS))


def _major(version: str) -> int:
    """The first number of a version; 0 where there is none."""
    first = version.partition(".")[0]
    return int(first) if first.isdecimal() else 0


def unmet(needs: Iterable[str], has: frozenset[str]) -> list[str]:
    """Return those of `needs` that `has` does not answer."""
    return [need for need in needs if (need.removeprefix(NOT) in has) == need.startswith(NOT)]


def why_not(needs: Iterable[str]) -> str:
    """Return in words what unmet needs ask for."""
    words = [f"{'no ' if need.startswith(NOT) else ''}{need.removeprefix(NOT)}" for need in needs]
    meant = [FACTS[need.removeprefix(NOT)] for need in needs]
    return "; ".join(f"{word} ({meaning})" for word, meaning in zip(words, meant, strict=True))


def settings(descriptors: Iterable[Descriptor]) -> dict[str, float]:
    """Return each number that the instances export as a setting; where they differ, the largest."""
    found: dict[str, float] = {}
    for item in descriptors:
        for name, value in item.settings.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found[name] = max(float(value), found.get(name, float(value)))
    return found


def setting(name: str, known: Mapping[str, float], what: str) -> float:
    """Return the value of a setting. Raises UsageError, beginning with `what`, where no instance exports it."""
    if name not in known:
        raise UsageError(f"{what}: {unknown_name('setting of the deployed instances', name, known)}")
    return known[name]
