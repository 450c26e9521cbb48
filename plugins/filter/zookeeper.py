"""Filters of the role zookeeper: pure functions from plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of


class Member(TypedDict):
    """A server of the ensemble as the others see it."""

    id: int
    address: str
    client_port: int
    quorum_port: int
    election_port: int
    tick_ms: int


class Server(TypedDict):
    """A server of the ensemble as its clients see it."""

    host: str
    address: str
    port: int


def zookeeper_members(hosts: Sequence[str], hostvars: HostVars, defaults: Mapping[str, Any]) -> dict[str, Member]:
    """Return the servers of the ensemble, by host in sorted order.

    What a host's inventory does not set is what the role would set there: an id by its place from 1, and `defaults` for
    client_port, quorum_port, election_port and tick_time_ms.
    """
    found: dict[str, Member] = {}
    for place, host in enumerate(sorted(hosts), start=1):
        of = hostvars[host]

        def number(name: str, of: Mapping[str, Any] = of) -> int:
            return int(of.get(f"zookeeper_{name}", defaults[name]))

        found[host] = {
            "id": int(of.get("zookeeper_id", place)),
            "address": address_of(host, of, "zookeeper_address"),
            "client_port": number("client_port"),
            "quorum_port": number("quorum_port"),
            "election_port": number("election_port"),
            "tick_ms": number("tick_time_ms"),
        }
    return found


def zookeeper_dials(members: Mapping[str, Member], hostvars: HostVars, host: str) -> list[Dial]:
    """Return what the server on `host` dials: the quorum and the election port of every other member."""
    return [
        {
            "link": "zookeeper",
            "to": hostvars[other].get("zookeeper_instance", other),
            "address": member["address"],
            "port": port,
        }
        for other, member in members.items()
        if other != host
        for port in (member["quorum_port"], member["election_port"])
    ]


def zookeeper_servers(hosts: Sequence[str], hostvars: HostVars, port: int) -> list[Server]:
    """Return where clients reach the servers on `hosts`, sorted by host; `port` where a host does not say its own."""
    return [
        {
            "host": hostvars[host].get("zookeeper_instance", host),
            "address": address_of(host, hostvars[host], "zookeeper_address"),
            "port": int(hostvars[host].get("zookeeper_client_port", port)),
        }
        for host in sorted(hosts)
    ]


def zookeeper_connect_string(servers: Sequence[Server]) -> str:
    """Return the servers as a client of ZooKeeper is told them: `ADDRESS:PORT,ADDRESS:PORT`."""
    return ",".join(f"{server['address']}:{server['port']}" for server in servers)


def zookeeper_problems(members: Mapping[str, Mapping[str, Any]], allow_small: bool = False) -> list[str]:
    """Return what forbids this ensemble.

    `members`: host to {"id", "tick_ms"}. `allow_small` permits fewer than 3, for a drill that wants this.
    """
    problems = []
    count = len(members)
    if count < 3 and not allow_small:
        problems.append(f"an ensemble of {count} survives no failure: zookeeper needs at least 3 members")
    if count % 2 == 0:
        problems.append(
            f"an ensemble of {count} survives no more failures than one of {max(count - 1, 1)}: make it odd"
        )
    owners: dict[int, list[str]] = {}
    for host, member in sorted(members.items()):
        owners.setdefault(int(member["id"]), []).append(host)
        if not 1 <= int(member["id"]) <= 255:
            problems.append(f"{host} has the zookeeper_id {member['id']}: it must be from 1 to 255")
    problems += [
        f"{' and '.join(hosts)} share the zookeeper_id {number}" for number, hosts in owners.items() if len(hosts) > 1
    ]
    ticks = {int(member["tick_ms"]) for member in members.values()}
    if len(ticks) > 1:
        problems.append(f"the members of the ensemble have different zookeeper_tick_time_ms: {sorted(ticks)}")
    return problems


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "zookeeper_connect_string": zookeeper_connect_string,
            "zookeeper_dials": zookeeper_dials,
            "zookeeper_members": zookeeper_members,
            "zookeeper_problems": zookeeper_problems,
            "zookeeper_servers": zookeeper_servers,
        }
