"""Filters of the role zookeeper: pure functions from plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of

MOST_ID = 255
OUTSIDE = "zookeeper_outside"
"""The variable with the hosts whose servers are no members of the ensemble: they join later, or have left."""


class EnsembleMember(TypedDict):
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


def zookeeper_ids(hosts: Sequence[str], hostvars: HostVars | None = None) -> dict[str, Any]:
    """Return the ids of the servers on `hosts`: the zookeeper_id that `hostvars` have, and of the others those below.

    Where each of their names ends in a number of its own from 1 to 255 it is that, so that no server's id changes when
    others join, go or are replaced: zk10 is 10 beside zk1 to zk3. Otherwise it is the place in sorted order, from 1.
    One with an id of its inventory counts for nothing in the others'.
    """
    said = {host: hostvars[host].get("zookeeper_id") for host in hosts} if hostvars is not None else {}
    said = {host: number for host, number in said.items() if number is not None}
    ordered = sorted(host for host in hosts if host not in said)
    ends = [re.search(r"\d+$", host) for host in ordered]
    numbers = [int(end[0]) for end in ends if end]
    if len(set(numbers)) == len(ordered) and all(1 <= number <= MOST_ID for number in numbers):
        return said | dict(zip(ordered, numbers, strict=True))
    return said | {host: place for place, host in enumerate(ordered, start=1)}


def zookeeper_renumbered(host: str, kept: str, number: Any) -> str:
    """Return why the server on `host`, whose data have the id `kept` ("": none yet), may not become `number`; "" where
    it may: two servers would take each other's votes for their own."""
    if kept.strip() in ("", str(number)):
        return ""
    return (
        f"the server on {host} has the id {kept.strip()} and would become {number}: a server that runs keeps its id; "
        f"give {host} zookeeper_id: {kept.strip()} in the inventory, and new servers others"
    )


def _inside(hosts: Sequence[str], hostvars: HostVars) -> list[str]:
    return [host for host in sorted(hosts) if host not in (hostvars[host].get(OUTSIDE) or [])]


def zookeeper_members(
    hosts: Sequence[str], hostvars: HostVars, defaults: Mapping[str, Any]
) -> dict[str, EnsembleMember]:
    """Return the servers of the ensemble, by host in sorted order; those on hosts of OUTSIDE are not of it.

    What a host's inventory does not set is what the role would set there: an id as `zookeeper_ids` says, and `defaults`
    for client_port, quorum_port, election_port and tick_time_ms.
    """
    ids = zookeeper_ids(hosts, hostvars)
    found: dict[str, EnsembleMember] = {}
    for host in _inside(hosts, hostvars):
        of = hostvars[host]

        def number(name: str, of: Mapping[str, Any] = of) -> int:
            return int(of.get(f"zookeeper_{name}", defaults[name]))

        found[host] = {
            "id": int(ids[host]),
            "address": address_of(host, of, "zookeeper_address"),
            "client_port": number("client_port"),
            "quorum_port": number("quorum_port"),
            "election_port": number("election_port"),
            "tick_ms": number("tick_time_ms"),
        }
    return found


def zookeeper_dials(members: Mapping[str, EnsembleMember], hostvars: HostVars, host: str) -> list[Dial]:
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
    """Return where clients reach the ensemble's servers, sorted by host; `port` where a host does not say its own."""
    return [
        {
            "host": hostvars[host].get("zookeeper_instance", host),
            "address": address_of(host, hostvars[host], "zookeeper_address"),
            "port": int(hostvars[host].get("zookeeper_client_port", port)),
        }
        for host in _inside(hosts, hostvars)
    ]


def zookeeper_connect_string(servers: Sequence[Server]) -> str:
    """Return the servers as a client of ZooKeeper is given them: `ADDRESS:PORT,ADDRESS:PORT`."""
    return ",".join(f"{server['address']}:{server['port']}" for server in servers)


def zookeeper_problems(members: Mapping[str, EnsembleMember], allow_small: bool = False) -> list[str]:
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
        if not 1 <= int(member["id"]) <= MOST_ID:
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
            "zookeeper_ids": zookeeper_ids,
            "zookeeper_members": zookeeper_members,
            "zookeeper_problems": zookeeper_problems,
            "zookeeper_renumbered": zookeeper_renumbered,
            "zookeeper_servers": zookeeper_servers,
        }
