"""What the role openmq refuses before anything is touched: pure functions from plain data."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.filter.openmq_topology import OpenmqMember
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.preflight import Archive, Number


class OpenmqConfig(TypedDict):
    """What the role's vars/main.yml hands over: this broker, its cluster's members by host, and the inventory's hosts.

    `archive` is None where the version is not known, `jdbc_url` "" where no database is used. `leaving`: hosts that
    leave their cluster. `heartbeat`: variable to value. `prefix_length`, in bits, is that of the cluster's subnet.
    `allow` names rules that a drill wants broken.
    """

    version: str
    archive: Archive | None
    cluster: str
    members: Mapping[str, OpenmqMember]
    hosts: Sequence[str]
    leaving: Sequence[str]
    prefix_length: Number
    heartbeat: Mapping[str, Number]
    jdbc_url: str
    allow: Sequence[str]


def _cluster(config: OpenmqConfig) -> list[tuple[str, str]]:
    members = config["members"]
    problems = _leaving(config)
    models = sorted({str(member["cluster"]) for member in members.values()})
    if len(models) > 1:
        names = ", ".join(sorted(members))
        problems.append(
            ("models", f"{names} have one openmq_cluster_id and different openmq_cluster: {' and '.join(models)}")
        )
    if config["cluster"] == "none":
        return problems
    for host, member in sorted(members.items()):
        if _is_loopback(member["address"]):
            problems.append(
                (
                    "loopback",
                    f"openmq_address of {host} is {member['address']}: a cluster refuses loopback addresses",
                )
            )
    if config["cluster"] == "conventional_master":
        masters = sorted({str(member["master"]) for member in members.values()})
        if len(masters) > 1:
            problems.append(("master", f"openmq_cluster_master is not the same on all brokers: {', '.join(masters)}"))
        problems += [
            (
                "master",
                f"openmq_cluster_master is {name}, which leaves: make another broker the master first"
                if name in config["leaving"]
                else f"openmq_cluster_master is {name}, which is none of the brokers {', '.join(members)}",
            )
            for name in masters
            if name not in members and members
        ]
    return problems


def _leaving(config: OpenmqConfig) -> list[tuple[str, str]]:
    strange = sorted(set(config["leaving"]) - set(config["hosts"]))
    problems = [
        ("leaving", f"openmq_leaving names {name}, which is none of the hosts {', '.join(sorted(config['hosts']))}")
        for name in strange
    ]
    if not config["members"]:
        problems.append(("leaving", "openmq_leaving names all brokers of the cluster: one at least has to stay"))
    return problems


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _enhanced(config: OpenmqConfig) -> list[tuple[str, str]]:
    if config["cluster"] != "enhanced":
        return []
    problems = []
    owners: dict[str, list[str]] = {}
    for host, member in sorted(config["members"].items()):
        owners.setdefault(str(member["broker_id"]), []).append(host)
    problems += [
        ("broker_id", f"{' and '.join(hosts)} have one openmq_broker_id, {name}: give each its own")
        for name, hosts in owners.items()
        if len(hosts) > 1
    ]
    subnets: dict[str, str] = {}
    for host, member in sorted(config["members"].items()):
        try:
            network = ipaddress.ip_network(f"{member['address']}/{config['prefix_length']}", strict=False)
        except ValueError:
            continue  # a name: its addresses are not known here
        subnets.setdefault(str(network), host)
    if len(subnets) > 1:
        problems.append(
            (
                "subnet",
                f"{' and '.join(subnets.values())} are on different subnets ({', '.join(subnets)}): an enhanced "
                "cluster is for one; openmq_subnet_prefix_length says how long its prefix is",
            )
        )
    problems += [
        ("heartbeat", f"{name} is {value}: whole numbers from 1 are allowed")
        for name, value in config["heartbeat"].items()
        if not str(value).isdigit() or int(value) < 1
    ]
    return problems


def openmq_problems(config: OpenmqConfig) -> list[str]:
    """Return what is wrong with a broker's configuration, a sentence each, without the rules that its `allow` names."""
    problems = []
    if not config["archive"]:
        problems.append(
            (
                "version",
                f"openmq_version {config['version']} is not known: give openmq_archive with its coordinate and sha256",
            )
        )
    if config["cluster"] in ("conventional_peers", "enhanced") and not config["jdbc_url"]:
        problems.append(
            (
                "database",
                f"openmq_cluster {config['cluster']} needs a database: hosts in group lease_db, or openmq_jdbc_url",
            )
        )
    problems += _cluster(config) + _enhanced(config)
    return [text for rule, text in problems if rule not in config["allow"]]


class FilterModule:
    """The filter, by the name that the role uses."""

    def filters(self) -> dict[str, Any]:
        return {"openmq_problems": openmq_problems}
