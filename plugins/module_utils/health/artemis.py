"""Apache Artemis: its broker bean, by Jolokia."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from . import jolokia
from .answer import Health, listening_ports

ROLE_ATTRIBUTES = ("Active", "Backup", "ReplicaSync")


def requests(broker_name: str) -> list[dict[str, Any]]:
    """Return the Jolokia requests whose replies show the role of that broker."""
    bean = f'org.apache.activemq.artemis:broker="{broker_name}"'
    return [{"type": "read", "mbean": bean, "attribute": [*ROLE_ATTRIBUTES, "HAPolicy"]}]


def state_of(active: bool, backup: bool, in_sync: bool, policy: str = "") -> str:
    """Return the state that a broker's attributes Active, Backup and ReplicaSync amount to.

    A shared store has nothing to synchronise: whoever waits for its lock is ready.
    """
    if active:
        return "active"
    if backup:
        return "passive" if in_sync or policy == "shared_store" else "syncing"
    return "starting"


def may_wait_its_turn(descriptor: Mapping[str, Any]) -> bool:
    """Return whether the instance of that descriptor is one of several backups of a shared store.

    Only one of them announces itself and waits for the store; the others wait for its place, and have no broker bean
    until they get it.
    """
    several = int(descriptor.get("backups") or 0) > 1
    return several and descriptor.get("ha_policy") == "shared_store" and descriptor.get("role") == "backup"


def waits_for_the_store(descriptor: Mapping[str, Any]) -> bool:
    """Return whether the instance of that descriptor is a primary that gets its shared store back only when the broker
    ends that took it over.

    Such a primary that answers and is not active has found the store's lock taken and waits for it, ready to take
    over: only then SharedStorePrimaryActivation.run sets the server STARTED before it is active (2.44.0 and 2.56.0,
    with wait-for-activation false), and before it is STARTED ActiveMQServerControlImpl.checkStarted refuses to say
    whether it is active. Where the backup gives way, this lasts for moments and is a start.
    """
    settings = descriptor.get("settings") or {}
    primary = descriptor.get("ha_policy") == "shared_store" and descriptor.get("role") == "primary"
    return primary and settings.get("allow_failback") is False


def health_of(
    replies: list[dict[str, Any]], policy: str = "", may_wait: bool = False, waits_for_store: bool = False
) -> Health:
    """Return the health that the replies to `requests` amount to.

    `policy`: the descriptor's `ha_policy`. `may_wait`, `waits_for_store`: what `may_wait_its_turn` and
    `waits_for_the_store` say of the descriptor.
    """
    (reply,) = replies
    found = jolokia.value(reply)
    if not isinstance(found, dict) and may_wait and reply.get("status") == 404:
        return Health("passive", False, "waits for the place of the backup that is announced")
    # While it starts or ends, some attributes may have no value.
    if not isinstance(found, dict) or not all(isinstance(found.get(name), bool) for name in ROLE_ATTRIBUTES):
        return Health("starting", False, str(reply.get("error", "no broker bean yet")))
    state = state_of(found["Active"], found["Backup"], found["ReplicaSync"], policy)
    if state == "starting" and waits_for_store:
        return Health("passive", False, "waits for its store, which the broker keeps that took it over")
    return Health(state, bool(found["ReplicaSync"]), str(found.get("HAPolicy")))


def serving(found: Health, listeners: Sequence[Mapping[str, Any]], listening: Set[int]) -> Health:
    """Return `found`, or, where the broker is active and nothing listens on a listener's port, that it still starts.

    Seen once with 2.56.0: an active broker to whose acceptor nobody could connect. One that cannot bind its port when
    it starts ends.
    """
    missing = sorted({f"{item['name']} ({item['port']})" for item in listeners if item["port"] not in listening})
    if found.state != "active" or not missing:
        return found
    return Health("starting", found.in_sync, f"active, but nothing listens for {', '.join(missing)}")


def read(descriptor: dict[str, Any]) -> Health:
    """Ask a broker. Raises OSError or ValueError without a usable answer."""
    replies = jolokia.ask(descriptor, requests(descriptor["management"]["broker_name"]))
    policy = descriptor.get("ha_policy", "")
    found = health_of(replies, policy, may_wait_its_turn(descriptor), waits_for_the_store(descriptor))
    return serving(found, descriptor.get("listeners", []), listening_ports())
