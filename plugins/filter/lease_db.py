"""Filters of the role lease_db: pure functions from plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.filter.texts import sql_name
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.preflight import Number, session_range_ms


class DatabaseMember(TypedDict):
    """A member of the database as others see it."""

    instance: str
    address: str
    port: int
    rest_port: int


class LeaseDbConfig(TypedDict):
    """What the role's vars/main.yml hands over. `allow_small` is for a drill that wants a small ensemble;
    `metrics_ports` is the inventory's common_metrics_ports; `tick_ms` is ZooKeeper's."""

    members: Mapping[str, DatabaseMember]
    zookeeper_servers: Sequence[Mapping[str, Any]]
    allow_small: bool
    ttl_s: Number
    loop_wait_s: Number
    retry_timeout_s: Number
    tick_ms: Number
    metrics_ports: Mapping[str, Number]


def lease_db_problems(config: LeaseDbConfig) -> list[str]:
    """Return what forbids this database, a sentence each."""
    problems = []
    if len(config["members"]) < 2:
        problems.append("a lease database of one host has no standby: give the group lease_db a second one")
    if len(config["zookeeper_servers"]) < 3 and not config["allow_small"]:
        problems.append(f"a lease database needs 3 or more ZooKeeper servers, not {len(config['zookeeper_servers'])}")
    ttl, loop, retry = int(config["ttl_s"]), int(config["loop_wait_s"]), int(config["retry_timeout_s"])
    if loop + 2 * retry > ttl:
        problems.append(
            f"lease_db_ttl_s {ttl} is below lease_db_loop_wait_s {loop} and twice lease_db_retry_timeout_s {retry}: a "
            "primary would lose its place while it still tries to keep it"
        )
    low, high = session_range_ms(int(config["tick_ms"]))
    if not low <= ttl * 1000 <= high:
        problems.append(
            f"lease_db_ttl_s {ttl} is outside {low / 1000:g} to {high / 1000:g}, 2 to 20 ticks of "
            f"{config['tick_ms']} ms: ZooKeeper changes it"
        )
    if "lease_db" in config["metrics_ports"]:
        problems.append("common_metrics_ports.lease_db has no effect: Patroni serves the metrics at lease_db_rest_port")
    owners: dict[str, list[str]] = {}
    for host, member in sorted(config["members"].items()):
        owners.setdefault(str(member["instance"]), []).append(host)
    problems += [
        f"{' and '.join(hosts)} have one lease_db_instance {name}" for name, hosts in owners.items() if len(hosts) > 1
    ]
    return problems


def lease_db_members(
    hosts: Sequence[str], hostvars: HostVars, defaults: Mapping[str, Any]
) -> dict[str, DatabaseMember]:
    """Return the members of the database, by host in sorted order; `defaults` for port and rest_port."""
    return {
        host: {
            "instance": hostvars[host].get("lease_db_instance", host),
            "address": address_of(host, hostvars[host], "lease_db_address"),
            "port": int(hostvars[host].get("lease_db_port", defaults["port"])),
            "rest_port": int(hostvars[host].get("lease_db_rest_port", defaults["rest_port"])),
        }
        for host in sorted(hosts)
    }


def _network(address: str) -> str:
    """Return an address as a network of one host."""
    return f"{address}/{128 if ':' in address else 32}"


def lease_db_networks(hosts: Sequence[str], hostvars: HostVars) -> list[str]:
    """Return the hosts by their own addresses, as pg_hba.conf names clients: a network of one, or a host's name."""
    addresses = [address_of(host, hostvars[host], "lease_db_address") for host in sorted(set(hosts))]
    return [_network(item) if re.fullmatch(r"[0-9a-fA-F.:]+", item) else item for item in addresses]


def lease_db_hba(members: Mapping[str, DatabaseMember], networks: Sequence[str], database: str, user: str) -> list[str]:
    """Return the lines of pg_hba.conf: the members to each other, `user` from `networks` to `database`; nobody else."""
    found = ["local all postgres peer"]
    for member in members.values():
        network = _network(member["address"])
        found.append(f"hostssl replication replication {network} scram-sha-256")
        found.append(f"hostssl all postgres {network} scram-sha-256")
    return found + [f"hostssl {sql_name(database)} {sql_name(user)} {network} scram-sha-256" for network in networks]


def lease_db_dials(
    members: Mapping[str, DatabaseMember], host: str, servers: Sequence[Mapping[str, Any]]
) -> list[Dial]:
    """Return what the member on `host` dials: the ZooKeeper `servers`, then PostgreSQL and Patroni of every other."""
    found: list[Dial] = [
        {"link": "zookeeper", "to": item["host"], "address": item["address"], "port": int(item["port"])}
        for item in servers
    ]
    return found + [
        {"link": "database", "to": member["instance"], "address": member["address"], "port": port}
        for other, member in members.items()
        if other != host
        for port in (member["port"], member["rest_port"])
    ]


def lease_db_evidence(queries: Mapping[str, str], psql: str, account: str) -> dict[str, str]:
    """Return name to the command line that asks the query of that name: `psql` with its arguments, as `account`."""
    return {name: f"runuser -u {account} -- {psql} --command={quote(query)}" for name, query in queries.items()}


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "lease_db_dials": lease_db_dials,
            "lease_db_evidence": lease_db_evidence,
            "lease_db_hba": lease_db_hba,
            "lease_db_members": lease_db_members,
            "lease_db_networks": lease_db_networks,
            "lease_db_problems": lease_db_problems,
        }
