"""Filters of the role openmq: the brokers of a cluster, and what a broker's descriptor says. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial, Listener
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars


class OpenmqMember(TypedDict):
    """A broker as the others of its cluster see it. `master` is the host that it takes for its master's."""

    instance: str
    address: str
    port: int
    cluster_port: int
    cluster: str
    broker_id: str
    master: str


def openmq_members(
    hosts: Sequence[str], hostvars: HostVars, cluster_id: str, defaults: Mapping[str, Any]
) -> dict[str, OpenmqMember]:
    """Return the brokers on `hosts` that are in the cluster `cluster_id`, by host in sorted order.

    What a host's inventory does not set is what the role would set there: `defaults` for cluster_id, port,
    cluster_port, cluster and master.
    """
    found: dict[str, OpenmqMember] = {}
    for host in sorted(hosts):
        of = hostvars[host]
        if of.get("openmq_cluster_id", defaults["cluster_id"]) != cluster_id:
            continue
        instance = of.get("openmq_instance", host)
        found[host] = {
            "instance": instance,
            "address": of.get("openmq_address", of.get("ansible_host", host)),
            "port": int(of.get("openmq_port", defaults["port"])),
            "cluster_port": int(of.get("openmq_cluster_port", defaults["cluster_port"])),
            "cluster": of.get("openmq_cluster", defaults["cluster"]),
            "broker_id": of.get("openmq_broker_id", instance),
            "master": of.get("openmq_cluster_master", defaults["master"]),
        }
    return found


def openmq_url(member: Mapping[str, Any]) -> str:
    """Return the address of a cluster's member ({"address", "port"}) as the broker list writes it; "" for none."""
    return f"mq://{member['address']}:{member['port']}" if member else ""


def openmq_host_port(member: Mapping[str, Any]) -> str:
    """Return the address of a cluster's member ({"address", "port"}) as the broker's management writes it."""
    return f"{member['address']}:{member['port']}"


class View(TypedDict):
    """What a broker says of its cluster and of its messages: the master's address ("" for none), the addresses of all
    brokers that it knows with their states, and how many messages it holds, dead ones aside (None: not known)."""

    master: str
    members: dict[str, str]
    messages: int | None


def openmq_cluster_view(answer: str) -> View:
    """Return what the `answer` of Jolokia to the role's `__openmq_cluster_questions` says; nothing where it is none."""
    try:
        replies = json.loads(answer)
    except ValueError:
        replies = None
    if not isinstance(replies, list) or len(replies) != 3:
        return {"master": "", "members": {}, "messages": None}
    master, brokers, held = (reply.get("value") if reply.get("status") == 200 else None for reply in replies)
    return {
        "master": (master or {}).get("Address") or "",
        "members": {broker["Address"]: broker["StateLabel"] for broker in brokers or []},
        "messages": held["NumMsgs"] - held["NumMsgsInDMQ"] if held else None,
    }


def openmq_member_problems(view: View, instance: str, members: Mapping[str, OpenmqMember]) -> list[str]:
    """Return where the broker `instance` does not see just the brokers `members` (by host) at work, a sentence each."""
    if not view["members"]:
        return [f"{instance} does not say whom it sees of its cluster"]
    wanted = {openmq_host_port(member): member["instance"] for member in members.values()}
    problems = [
        f"{instance} sees {name} ({address}) as {view['members'].get(address, 'no broker of its cluster')}"
        for address, name in wanted.items()
        if view["members"].get(address) != "OPERATING"
    ]
    strange = [address for address, state in view["members"].items() if address not in wanted and state == "OPERATING"]
    return problems + [
        f"{instance} sees a broker at {address}, which is none of the inventory's: give this cluster an "
        "openmq_cluster_id of its own, or the inventory that broker"
        for address in strange
    ]


def openmq_master_problems(view: View, instance: str, members: Mapping[str, OpenmqMember], master: str) -> list[str]:
    """Return, in a sentence, that the broker `instance` has another master than that of the host `master`."""
    names = {openmq_host_port(member): host for host, member in members.items()}
    found = names.get(view["master"], view["master"] or "none")
    if found == master:
        return []
    return [f"{instance} has {found} for its master, and openmq_cluster_master is {master}: change either"]


def openmq_jdbc_url(databases: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the JDBC URL of the database `name` on all of `databases` ({"address", "port"} each); "" for none."""
    hosts = ",".join(f"{one['address']}:{one['port']}" for one in databases)
    return f"jdbc:postgresql://{hosts}/{name}" if hosts else ""


def openmq_listeners(address: str, ports: Mapping[str, int], tls: bool, cluster: Mapping[str, Any]) -> list[Listener]:
    """Return what a broker at `address` serves.

    `ports`: of jms, admin, portmapper and management. `cluster`: {"address", "port", "tls"} of the cluster connection,
    empty without one.
    """
    prefix = "ssl" if tls else ""
    found: list[Listener] = [
        {"name": name, "address": address, "port": int(ports[port]), "protocol": protocol, "tls": secure}
        for name, port, protocol, secure in (
            (f"{prefix}jms", "jms", "openmq", tls),
            (f"{prefix}admin", "admin", "openmq_admin", tls),
            ("portmapper", "portmapper", "openmq_portmapper", False),
            ("management", "management", "https", True),
        )
    ]
    if cluster:
        found.append(
            {
                "name": "cluster",
                "address": cluster["address"],
                "port": int(cluster["port"]),
                "protocol": "openmq_cluster",
                "tls": bool(cluster["tls"]),
            }
        )
    return found


def openmq_dials(
    members: Mapping[str, Mapping[str, Any]], host: str, databases: Sequence[Mapping[str, Any]]
) -> list[Dial]:
    """Return what the broker on `host` dials: the other `members` of its cluster, in an enhanced one their heartbeats'
    port too (by UDP, on the port mapper's number), and each member of the database ({"instance", "address", "port"}
    each)."""
    others = [one for name, one in members.items() if name != host]
    peers: list[Dial] = [
        {"link": link, "to": one["instance"], "address": one["address"], "port": one[port]}
        for link, port in (("cluster", "cluster_port"), ("heartbeat", "port"))
        for one in others
        if link == "cluster" or one["cluster"] == "enhanced"
    ]
    return peers + [
        {"link": "database", "to": one["instance"], "address": one["address"], "port": one["port"]} for one in databases
    ]


def openmq_addresses(queues: Sequence[str], topics: Sequence[str], dead_letter: str) -> list[dict[str, Any]]:
    """Return all destinations, the queue `dead_letter` too: {"name", "routing", "dead_letter"} each."""
    found: list[dict[str, Any]] = [
        {"name": name, "routing": routing, "dead_letter": dead_letter}
        for routing, names in (("anycast", queues), ("multicast", topics))
        for name in names
    ]
    return [*found, {"name": dead_letter, "routing": "anycast", "dead_letter": None}]


class FilterModule:
    """The filters, by the names that the role uses."""

    def filters(self) -> dict[str, Any]:
        return {
            "openmq_members": openmq_members,
            "openmq_url": openmq_url,
            "openmq_host_port": openmq_host_port,
            "openmq_cluster_view": openmq_cluster_view,
            "openmq_member_problems": openmq_member_problems,
            "openmq_master_problems": openmq_master_problems,
            "openmq_jdbc_url": openmq_jdbc_url,
            "openmq_listeners": openmq_listeners,
            "openmq_dials": openmq_dials,
            "openmq_addresses": openmq_addresses,
        }
