"""What the role artemis derives from the inventory: a cluster's members, what they offer and what they dial.

Pure functions from plain data. `hostvars` is Ansible's: host to its variables. A host is an inventory name, an instance
the name of the broker on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible.errors import AnsibleFilterError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.brokerdrill.ha.plugins.filter.artemis import artemis_modern
from ansible_collections.brokerdrill.ha.plugins.filter.own_elements import artemis_main_routing
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial, Listener
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of

# What the drills' STOMP clients write before a queue's name (`brokerdrill.workload.config`, which no role has).
STOMP_PREFIX = "/queue/"


class ArtemisMember(TypedDict):
    """A broker as the others of its cluster see it; `policy` is None where its inventory says none."""

    instance: str
    pair: str
    group: str
    role: str
    policy: str | None
    address: str
    port: int
    tls: bool
    jgroups_port: int
    store_dir: str
    journal: str
    coordination_id: str
    cluster_user: str
    cluster_password: str
    request_backup: bool


class Endpoint(TypedDict):
    """What a connector leads to or an acceptor serves: `address` and `port` (`tcp`), or `server_id` in the same process
    (`vm`); `parameters` are those of its URI."""

    type: str
    address: str | None
    port: int | None
    server_id: int | None
    parameters: dict[str, Any]


class Acceptor(Endpoint):
    """What an acceptor serves, under its name."""

    name: str


class ScaleDown(TypedDict):
    """The element scale-down; what is None is left out."""

    enabled: bool
    group_name: str | None
    discovery_group: str | None
    connectors: list[str]
    commit_interval: int | None


def transport(entry: Mapping[str, Any]) -> str:
    """Return the type of a connector or acceptor of the inventory: `tcp` or `vm`."""
    return entry.get("type") or "tcp"


def _require(entry: Mapping[str, Any], *names: str) -> None:
    missing = [name for name in names if entry.get(name) is None]
    if missing:
        raise AnsibleFilterError(f"{entry['name']}, of type {transport(entry)}, needs {' and '.join(missing)}")


def _endpoint(entry: Mapping[str, Any], address: str | None, parameters: Mapping[str, Any]) -> Endpoint:
    _require(entry, *(["server_id"] if transport(entry) == "vm" else ["port"]))
    if transport(entry) == "vm":
        own = dict(entry.get("parameters") or {})
        return {"type": "vm", "address": None, "port": None, "server_id": int(entry["server_id"]), "parameters": own}
    return {
        "type": "tcp",
        "address": address,
        "port": int(entry["port"]),
        "server_id": None,
        "parameters": {**parameters, **(entry.get("parameters") or {})},
    }


def _cluster_acceptor(acceptors: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the first acceptor that has a port; one of port 0 where none has, which preflight refuses."""
    return next((item for item in acceptors if item.get("port") is not None), {"port": 0})


def _has_tls(entry: Mapping[str, Any]) -> bool:
    """Return whether an acceptor of the inventory speaks TLS, as it does unless its parameters say otherwise."""
    return boolean((entry.get("parameters") or {}).get("sslEnabled", True), strict=False)


def artemis_members(
    hosts: Sequence[str], hostvars: HostVars, cluster: str, defaults: Mapping[str, Any]
) -> dict[str, ArtemisMember]:
    """Return the brokers of `cluster`, by host in sorted order.

    What a host's inventory does not set is what the role would set there; `defaults` holds the values of acceptors,
    jgroups_port and journal_file_size that all brokers share.
    """
    found: dict[str, ArtemisMember] = {}
    for host in sorted(hosts):
        of = hostvars[host]
        instance = of.get("artemis_instance", host)
        acceptor = _cluster_acceptor(of.get("artemis_acceptors", defaults["acceptors"]))
        pair = of.get("artemis_pair", host)
        if of.get("artemis_cluster", pair) != cluster:
            continue
        found[host] = {
            "instance": instance,
            "pair": pair,
            "group": of.get("artemis_group_name") or pair,
            "role": artemis_modern(of.get("artemis_ha_role", "primary")),
            "policy": artemis_modern(of["artemis_ha_policy"]) if "artemis_ha_policy" in of else None,
            "address": address_of(host, of, "artemis_address"),
            "port": int(acceptor["port"]),
            "tls": _has_tls(acceptor),
            "jgroups_port": int(of.get("artemis_jgroups_port", defaults["jgroups_port"])),
            "store_dir": of.get("artemis_store_dir", f"/var/lib/artemis/{instance}/data"),
            "journal": str(of.get("artemis_journal_file_size", defaults["journal_file_size"])),
            "coordination_id": of.get("artemis_coordination_id", pair),
            "cluster_user": of.get("artemis_cluster_user", "made"),
            "cluster_password": of.get("artemis_cluster_password", "made"),
            "request_backup": boolean(of.get("artemis_request_backup", True)),
        }
    return found


def artemis_connectors(
    members: Mapping[str, ArtemisMember], announced: Sequence[str], parameters: Mapping[str, Any], more: Sequence[Any]
) -> dict[str, Endpoint]:
    """Return the connectors, by name: one to each of the hosts `announced`, and `more`.

    An entry of `more` has a name and address and port, or type vm and server_id, and perhaps parameters. All that lead
    to an address have `parameters` in their URI; those to a host speak TLS where its acceptor does. Raises
    AnsibleFilterError where an entry lacks what its type needs.
    """
    for other in more:
        _require(other, *([] if transport(other) == "vm" else ["address"]))
    found = {
        member["instance"]: _endpoint(
            {"name": host, "port": member["port"]},
            member["address"],
            {**parameters, "sslEnabled": str(member["tls"]).lower()},
        )
        for host, member in members.items()
        if host in announced
    }
    return found | {other["name"]: _endpoint(other, other.get("address"), parameters) for other in more}


def artemis_acceptors(
    given: Sequence[Mapping[str, Any]], address: str, parameters: Mapping[str, Any]
) -> list[Acceptor]:
    """Return the acceptors of a broker at `address`.

    `given`: {"name", "port", "protocols"}, or {"name", "type": "vm", "server_id"}, and perhaps "router" and
    "parameters" each. All that have a port have `parameters` in their URI. Raises AnsibleFilterError where an entry
    lacks what its type needs.
    """
    found: list[Acceptor] = []
    for entry in given:
        _require(entry, *([] if transport(entry) == "vm" else ["protocols"]))
        endpoint = _endpoint(entry, address, parameters)
        if endpoint["type"] == "tcp":
            endpoint["parameters"]["protocols"] = ",".join(entry["protocols"])
        if entry.get("router"):
            endpoint["parameters"]["router"] = entry["router"]
        found.append({"name": entry["name"], **endpoint})
    return found


def artemis_scale_down(given: Mapping[str, Any], discovery_group: str | None, others: Sequence[str]) -> ScaleDown:
    """Return the whole scale-down that `given` (enabled, group_name, connectors, discovery_group, commit_interval; what
    is missing or None is chosen here) asks for.

    Without a choice of its own it goes to `discovery_group`, and where that is None by the connectors `others`.
    """
    enabled = given.get("enabled")
    group = given.get("discovery_group") or (None if given.get("connectors") else discovery_group)
    return {
        "enabled": True if enabled is None else enabled,
        "group_name": given.get("group_name"),
        "discovery_group": group,
        "connectors": [] if group else list(given.get("connectors") or others),
        "commit_interval": given.get("commit_interval"),
    }


def _listener(name: str, address: str, port: int, protocol: str, tls: bool = True) -> Listener:
    return {"name": name, "address": address, "port": port, "protocol": protocol, "tls": tls}


def artemis_listeners(
    acceptors: Sequence[Mapping[str, Any]], address: str, console_port: int, routers: Sequence[Mapping[str, Any]]
) -> list[Listener]:
    """Return what a broker with `acceptors` serves at `address`, for each protocol of an acceptor a listener.

    An acceptor with `autoStart=false` serves nothing until somebody starts it. The drills' STOMP clients do not dial
    one that does not take off what they write before a queue's name. `routers`: the connection routers, as a
    descriptor says them.
    """
    by_name = {item["name"]: item for item in routers}
    found: list[Listener] = []
    for item in acceptors:
        waits = str(item.get("parameters", {}).get("autoStart", True)).lower() == "false"
        if transport(item) == "tcp" and not waits:
            for protocol in item["protocols"]:
                words = str(protocol).lower()
                found.append(_listener(item["name"], address, int(item["port"]), words, _has_tls(item)))
                if words == "stomp" and item.get("parameters", {}).get("anycastPrefix") != STOMP_PREFIX:
                    found[-1]["clients"] = False
                if item.get("router"):
                    found[-1]["router"] = item["router"]
                if router := by_name.get(item.get("router")):
                    found[-1] |= {"key": router["key_type"], "key_filter": router["key_filter"]}
    return [*found, _listener("console", address, int(console_port), "https")]


def artemis_moved_listeners(listeners: Sequence[Listener], offset: int) -> list[Listener]:
    """Return the listeners of a backup in the process of the broker that has `listeners`.

    Its acceptors are `offset` ports higher; the console is the broker's own.
    """
    return [item if item["name"] == "console" else {**item, "port": item["port"] + int(offset)} for item in listeners]


def artemis_known(topology: Any, members: Mapping[str, ArtemisMember]) -> list[str]:
    """Return the hosts of those `members` that an active broker knows, as a primary or as a backup.

    `topology` is what its `listNetworkTopology` returns; of what is no such answer nobody is known.
    """
    try:
        nodes = json.loads(topology) if isinstance(topology, str) else topology
        places = {str(node[kind]) for node in nodes for kind in ("primary", "backup") if kind in node}
    except (TypeError, ValueError):
        return []
    return [
        host
        for host, member in members.items()
        if places & {f"{member['address']}:{member['port']}", f"[{member['address']}]:{member['port']}"}
    ]


def artemis_dials(
    members: Mapping[str, ArtemisMember], host: str, zookeeper_servers: Sequence[Mapping[str, Any]]
) -> list[Dial]:
    """Return what the broker on `host` dials.

    That is every other member (as `primary` or `backup` in its own pair, as `broker` in another) and
    `zookeeper_servers` ({"host", "address", "port"} each).
    """
    pair = members[host]["pair"]
    brokers: list[Dial] = [
        {
            "link": member["role"] if member["pair"] == pair else "broker",
            "to": member["instance"],
            "address": member["address"],
            "port": member["port"],
        }
        for other, member in members.items()
        if other != host
    ]
    return brokers + [
        {"link": "zookeeper", "to": server["host"], "address": server["address"], "port": int(server["port"])}
        for server in zookeeper_servers
    ]


def artemis_described_addresses(
    addresses: Sequence[Mapping[str, Any]], settings: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the addresses as a descriptor says them: {"name", "routing", "dead_letter"}.

    The dead-letter address is the address's own `dead_letter`, else the one that `settings` ({"match", "settings"}
    each) give the match `#`; None for itself and for ExpiryQueue.
    """
    catch_all: Mapping[str, Any] = next((item["settings"] for item in settings if item["match"] == "#"), {})
    found = []
    for address in addresses:
        name = address["name"]
        letter = address.get("dead_letter") or catch_all.get("dead-letter-address")
        found.append(
            {
                "name": name,
                "routing": artemis_main_routing(address),
                "dead_letter": None if name in (letter, "ExpiryQueue") else letter,
            }
        )
    return found


def artemis_next_in_ring(members: Mapping[str, ArtemisMember], instance: str) -> ArtemisMember:
    """Return the member after `instance` in the cluster, after the last one the first: the one whose backup it runs."""
    ring = list(members.values())
    place = [member["instance"] for member in ring].index(instance)
    return ring[(place + 1) % len(ring)]


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "artemis_acceptors": artemis_acceptors,
            "artemis_connectors": artemis_connectors,
            "artemis_described_addresses": artemis_described_addresses,
            "artemis_dials": artemis_dials,
            "artemis_known": artemis_known,
            "artemis_listeners": artemis_listeners,
            "artemis_members": artemis_members,
            "artemis_moved_listeners": artemis_moved_listeners,
            "artemis_next_in_ring": artemis_next_in_ring,
            "artemis_scale_down": artemis_scale_down,
        }
