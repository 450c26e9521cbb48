"""What a deployment refuses before anything is touched: pure functions from plain data to sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SESSION_TICKS = (2, 20)
"""ZooKeeper Administrator's Guide, minSessionTimeout and maxSessionTimeout: a session lasts 2 to 20 ticks."""


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


def _pair_problems(pair: str, members: Mapping[str, Mapping[str, Any]]) -> list[str]:
    by_role: dict[str, list[str]] = {"primary": [], "backup": []}
    problems = []
    for host, member in sorted(members.items()):
        if member["role"] not in by_role:
            problems.append(f"{host} has the artemis_ha_role {member['role']!r}: it must be primary or backup")
        else:
            by_role[member["role"]].append(host)
    if len(by_role["primary"]) != 1:
        named = " and ".join(by_role["primary"]) or "none"
        problems.append(f"pair {pair} needs exactly one primary and has {len(by_role['primary'])} ({named})")
    if not by_role["backup"]:
        problems.append(f"pair {pair} has no backup: give a second host of it artemis_ha_role: backup")
    return problems


def _quorum_problems(config: Mapping[str, Any]) -> list[str]:
    problems = []
    pairs: dict[str, dict[str, Mapping[str, Any]]] = {}
    for host, member in config["members"].items():
        pairs.setdefault(member["pair"], {})[host] = member
    for pair, members in sorted(pairs.items()):
        problems += _pair_problems(pair, members)
    servers = list(config["zookeeper_servers"])
    if len(servers) < 3 and not config.get("allow_small"):
        problems.append(
            f"replication_quorum with {len(servers)} ZooKeeper servers cannot stand a partition: it needs 3 or more"
        )
    session, tick = int(config["session_ms"]), int(config["tick_ms"])
    low, high = (ticks * tick for ticks in SESSION_TICKS)
    if not low <= session <= high:
        problems.append(
            f"session_ms {session} is outside {low} to {high}, 2 to 20 ticks of {tick} ms: ZooKeeper changes it"
        )
    return problems


def _primary_only_problems(config: Mapping[str, Any]) -> list[str]:
    backups = sorted(host for host, member in config["members"].items() if member["role"] == "backup")
    return [f"{host} is a backup, but artemis_ha_policy primary_only has none" for host in backups]


POLICIES = {"replication_quorum": _quorum_problems, "primary_only": _primary_only_problems}


def artemis_problems(config: Mapping[str, Any]) -> list[str]:
    """Return what forbids this cluster of brokers.

    `config`: policy; members, host to {"pair", "role", "cluster_user", "cluster_password"}; and for replication_quorum
    zookeeper_servers, session_ms, tick_ms.
    """
    problems = []
    policy = config["policy"]
    if policy not in POLICIES:
        problems.append(f"artemis_ha_policy {policy!r} is unknown; there are: {', '.join(sorted(POLICIES))}")
    else:
        problems += POLICIES[policy](config)
    credentials: dict[Any, list[str]] = {}
    for host, member in sorted(config["members"].items()):
        credentials.setdefault((member["cluster_user"], member["cluster_password"]), []).append(host)
    if len(credentials) > 1:
        one_each = " and ".join(hosts[0] for hosts in credentials.values())
        problems.append(f"{one_each} have different cluster credentials: the members of a cluster need the same")
    return problems


def pair_problems(states: Mapping[str, str], pairs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return which of `pairs` (pair to hosts) is not one active broker and its passive copies.

    `states`: host to its health, as the module `health` says it.
    """
    problems = []
    for pair, hosts in sorted(pairs.items()):
        seen = {host: states.get(host, "unknown") for host in hosts}
        words = ", ".join(f"{host} {state}" for host, state in sorted(seen.items()))
        if list(seen.values()).count("active") != 1 or set(seen.values()) - {"active", "passive"}:
            problems.append(f"pair {pair} is not one active broker and its passive copies: {words}")
    return problems


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "zookeeper_problems": zookeeper_problems,
            "artemis_problems": artemis_problems,
            "pair_problems": pair_problems,
        }
