"""Filters of the role activemq_classic: its members, and what a broker's descriptor says. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial, Listener
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars

PROTOCOLS: Mapping[str, tuple[str, bool]] = {
    **dict.fromkeys(("tcp", "nio", "auto", "auto+nio"), ("openwire", False)),
    **dict.fromkeys(("ssl", "nio+ssl", "auto+ssl", "auto+nio+ssl"), ("openwire", True)),
    **{f"{name}{more}": (name, False) for name in ("amqp", "stomp", "mqtt") for more in ("", "+nio")},
    **{f"{name}{more}": (name, True) for name in ("amqp", "stomp", "mqtt") for more in ("+ssl", "+nio+ssl")},
}
"""Scheme of a transport connector to the protocol that its clients speak, and whether by TLS. Of others (ws) no client
of drills is."""
STORES = "/var/lib/activemq-classic"


class ClassicMember(TypedDict):
    """A broker as the others see it. `holder` is the name that it holds a lease under."""

    instance: str
    pair: str
    broker_name: str
    holder: str
    store_dir: str
    adapter: str
    locker: str
    sleep_ms: int | None


def activemq_classic_members(
    hosts: Sequence[str], hostvars: HostVars, defaults: Mapping[str, Any]
) -> dict[str, ClassicMember]:
    """Return the brokers on `hosts`, by host in sorted order.

    What a host's inventory does not set is what the role would set there: `defaults` for persistence_adapter, locker
    and lock_acquire_sleep_interval_ms.
    """
    found: dict[str, ClassicMember] = {}
    for host in sorted(hosts):
        of = hostvars[host]
        instance = of.get("activemq_classic_instance", host)
        name = of.get("activemq_classic_broker_name", instance)
        sleep = "lock_acquire_sleep_interval_ms"
        found[host] = {
            "instance": instance,
            "pair": of.get("activemq_classic_pair", host),
            "broker_name": name,
            "holder": of.get("activemq_classic_lease_holder_id") or name,
            "store_dir": of.get("activemq_classic_store_dir", f"{STORES}/{instance}/kahadb"),
            "adapter": of.get("activemq_classic_persistence_adapter", defaults["persistence_adapter"]),
            "locker": of.get("activemq_classic_locker", defaults["locker"]),
            "sleep_ms": of.get(f"activemq_classic_{sleep}", defaults[sleep]),
        }
    return found


def activemq_classic_groups(users: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return group to the names of its users, in the users' order. `users`: {"name", "groups"} each."""
    found: dict[str, list[str]] = {}
    for user in users:
        for group in user["groups"]:
            found.setdefault(group, []).append(user["name"])
    return found


def activemq_classic_listeners(
    connectors: Sequence[Mapping[str, Any]], address: str, management_port: int
) -> list[Listener]:
    """Return what a broker serves: its transport connectors ({"name", "scheme", "port"} each), then its management."""
    found: list[Listener] = [
        {
            "name": connector["name"],
            "address": address,
            "port": int(connector["port"]),
            "protocol": PROTOCOLS[connector["scheme"]][0],
            "tls": PROTOCOLS[connector["scheme"]][1],
        }
        for connector in connectors
        if connector["scheme"] in PROTOCOLS
    ]
    management: Listener = {
        "name": "management",
        "address": address,
        "port": int(management_port),
        "protocol": "https",
        "tls": True,
    }
    return [*found, management]


def activemq_classic_dials(databases: Sequence[Mapping[str, Any]]) -> list[Dial]:
    """Return what a broker dials: each member of its database ({"instance", "address", "port"} each)."""
    return [
        {"link": "database", "to": one["instance"], "address": one["address"], "port": one["port"]} for one in databases
    ]


def activemq_classic_addresses(queues: Sequence[str], topics: Sequence[str], dead_letter: str) -> list[dict[str, Any]]:
    """Return all destinations, the dead-letter queue too: {"name", "routing", "dead_letter"} each, for a descriptor."""
    found: list[dict[str, Any]] = [
        {"name": name, "routing": "anycast", "dead_letter": dead_letter if name != dead_letter else None}
        for name in [*queues, dead_letter]
    ]
    return found + [{"name": name, "routing": "multicast", "dead_letter": dead_letter} for name in topics]


def activemq_classic_entries(queues: Sequence[str], dead_letter: str, group: str) -> list[dict[str, Any]]:
    """Return the authorization entries by which `group`, beside administrators, uses `queues`, and looks into and
    writes to `dead_letter`, which need not be one of them."""
    may, admins = ["admins", group], ["admins"]
    shared = (
        []
        if dead_letter in queues or not queues
        else [{"queue": dead_letter, "read": may, "write": may, "admin": admins}]
    )
    return [{"queue": name, "read": may, "write": may, "admin": may} for name in queues] + shared


def clocks_of(hosts: Sequence[str], hostvars: HostVars, variable: str) -> dict[str, Mapping[str, float]]:
    """Return host to what the module `clock`, registered as `variable`, measured there; hosts without are left out."""
    measured = {host: hostvars[host].get(variable, {}) for host in hosts}
    return {host: clock for host, clock in measured.items() if "offset_ms" in clock}


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "activemq_classic_addresses": activemq_classic_addresses,
            "activemq_classic_dials": activemq_classic_dials,
            "activemq_classic_entries": activemq_classic_entries,
            "activemq_classic_groups": activemq_classic_groups,
            "activemq_classic_listeners": activemq_classic_listeners,
            "activemq_classic_members": activemq_classic_members,
            "clocks_of": clocks_of,
        }
