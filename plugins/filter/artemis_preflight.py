"""What the role artemis refuses before anything is touched: pure functions from plain data to sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.filter.artemis_cluster import ClusterConnection, Group
from ansible_collections.brokerdrill.ha.plugins.filter.artemis_topology import (
    Acceptor,
    ArtemisMember,
    Endpoint,
    ScaleDown,
)
from ansible_collections.brokerdrill.ha.plugins.filter.zookeeper import Server
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.preflight import (
    Archive,
    Number,
    differing,
    session_range_ms,
)

COORDINATION_LENGTH = 16
"""ReplicationPrimaryPolicyConfiguration.setCoordinationId cuts a coordination id here."""


class ArtemisConfig(TypedDict):
    """What the role's vars/main/preflight.yml hands over: this broker, its cluster, and what its policy's check reads.

    `members`: all brokers of the cluster by host, `own` this one's instance. `optional`: variable to value, None where
    the inventory says nothing. Acceptors, connectors, groups and connections are filled in. `session_ms` is None where
    the lock manager is not ZooKeeper's. What begins with `allow_` permits what the check would refuse, but
    `allow_failback`, which is the broker's own setting.
    """

    policy: str
    version: str
    archive: Archive | None
    own: str
    members: Mapping[str, ArtemisMember]
    optional: Mapping[str, Any]

    acceptors: Sequence[Acceptor]
    connectors: Mapping[str, Endpoint]
    discovery_groups: Sequence[Group]
    broadcast_groups: Sequence[Group]
    cluster_connections: Sequence[ClusterConnection]
    replication_cluster_names: Sequence[str]

    zookeeper_servers: Sequence[Server]
    session_ms: Number | None
    tick_ms: Number

    max_backups: Number | None
    colocated_store: str
    excludes: Sequence[str]
    scale_down: ScaleDown | None
    check_for_active: bool

    allow_failback: bool
    allow_small: bool
    allow_several_backups: bool
    allow_unchecked_failback: bool


def _pair_problems(pair: str, members: Mapping[str, ArtemisMember]) -> list[str]:
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


def _alike(config: ArtemisConfig) -> dict[str, ArtemisMember]:
    """Return the members that have no other policy than this broker: those that do are judged on their own hosts."""
    same = (None, config["policy"])
    return {host: member for host, member in config["members"].items() if member["policy"] in same}


def _pairs(config: ArtemisConfig) -> dict[str, dict[str, ArtemisMember]]:
    pairs: dict[str, dict[str, ArtemisMember]] = {}
    for host, member in _alike(config).items():
        pairs.setdefault(member["pair"], {})[host] = member
    return dict(sorted(pairs.items()))


def _all_pairs_problems(config: ArtemisConfig) -> list[str]:
    return [problem for pair, members in _pairs(config).items() for problem in _pair_problems(pair, members)]


def _one_value(config: ArtemisConfig, field: str, variable: str) -> list[str]:
    """Return a sentence for each pair whose members differ in `field`, which `variable` sets."""
    return [
        f"{' and '.join(hosts)} have different {variable}: the members of a pair need the same"
        for hosts in differing(config["members"], field)
    ]


def _lock_manager_problems(config: ArtemisConfig) -> list[str]:
    """Return what protection against network isolation by ZooKeeper needs and does not have."""
    problems = []
    servers = list(config["zookeeper_servers"])
    if len(servers) < 3 and not config["allow_small"]:
        problems.append(
            f"{config['policy']} with {len(servers)} ZooKeeper servers cannot stand a partition: it needs 3 or more"
        )
    if config["session_ms"] is None:
        return problems
    session, tick = int(config["session_ms"]), int(config["tick_ms"])
    low, high = session_range_ms(tick)
    if not low <= session <= high:
        problems.append(
            f"session_ms {session} is outside {low} to {high}, 2 to 20 ticks of {tick} ms: ZooKeeper changes it"
        )
    return problems + _short_connections(config, session)


def _short_connections(config: ArtemisConfig, session_ms: int) -> list[str]:
    """A backup that gives up its primary's connection before the session can end waits for the lock without a copy."""
    wanted = config["replication_cluster_names"]
    connections = [item for item in config["cluster_connections"] if item["name"] in wanted]
    return [
        f"the cluster connection {item['name']} has a connection-ttl of {item['elements']['connection-ttl']} ms, below "
        f"the session of {session_ms} ms: a backup would give up its copy at every stall and become active no sooner; "
        f"set artemis_connection_ttl_ms to {session_ms} or more"
        for item in connections or config["cluster_connections"][:1]
        if int(item["elements"]["connection-ttl"]) < session_ms
    ]


def _same_journals(config: ArtemisConfig) -> list[str]:
    return _one_value(config, "journal", "artemis_journal_file_size")


def _spare_copies(config: ArtemisConfig) -> list[str]:
    """A primary copies to one backup at a time; neither the inventory nor a broker's own health says to which."""
    return [
        f"pair {pair} has {len(members)} members: with replication one of them copies the active one, and any other "
        "waits without being in sync; give it a pair of its own, or share a store"
        for pair, members in _pairs(config).items()
        if len(members) > 2
    ]


def _shared_groups(config: ArtemisConfig) -> list[str]:
    """With one group name for several pairs, a backup copies whichever primary of the group it reaches first."""
    groups: dict[str, set[str]] = {}
    for member in config["members"].values():
        groups.setdefault(member["group"], set()).add(member["pair"])
    return [
        f"artemis_group_name {group} is that of the pairs {' and '.join(sorted(pairs))}: a backup may copy any of "
        "their primaries, so that nothing could tell whose store it serves; leave it out, or give each pair its own"
        for group, pairs in sorted(groups.items())
        if len(pairs) > 1
    ]


def _copies_problems(config: ArtemisConfig) -> list[str]:
    return _same_journals(config) + _spare_copies(config) + _shared_groups(config)


def _quorum_problems(config: ArtemisConfig) -> list[str]:
    return _all_pairs_problems(config) + _copies_problems(config) + _lock_manager_problems(config)


def _replication_problems(config: ArtemisConfig) -> list[str]:
    return _all_pairs_problems(config) + _copies_problems(config) + _unchecked_failback(config) + _minority_vote(config)


def _minority_vote(config: ArtemisConfig) -> list[str]:
    """A vote that fewer than most of the other pairs can win: QuorumVoteServerConnect asks n/2 of up to 2 brokers, else
    n/2 + 1, rounded down, where n is the quorum size."""
    size = config["optional"].get("artemis_quorum_size")
    others = len({member["pair"] for member in config["members"].values()}) - 1
    if size is None or int(size) < 0 or not others:
        return []
    needed = int(int(size) / 2 + (int(size) > 2))
    if needed * 2 > others:
        return []
    return [
        f"artemis_quorum_size {size} asks for {needed} of {others} votes: a backup would replace a primary that others "
        f"see; set {others + 1}, the number of pairs, or leave it out"
    ]


def _unchecked_failback(config: ArtemisConfig) -> list[str]:
    """A classic primary that returns after a failover serves all over again what its backup has handled already."""
    if config["allow_failback"] and not config["check_for_active"] and not config["allow_unchecked_failback"]:
        return [
            "artemis_allow_failback without artemis_check_for_active_server: a primary that returns after a failover "
            "would serve everything a second time beside its backup"
        ]
    return []


def _unannounced_backups(config: ArtemisConfig) -> list[str]:
    """A backup announces itself once, when it starts (BackupManager.start): to the broker that is active then."""
    if config["allow_several_backups"]:
        return []
    return [
        f"pair {pair} has {len(backups)} backups ({' and '.join(backups)}): a primary that takes its store back does "
        "not learn of the one that went on waiting, and clients do not find that one at the next failover; give the "
        "pair one backup"
        for pair, members in _pairs(config).items()
        if len(backups := sorted(host for host, member in members.items() if member["role"] == "backup")) > 1
    ]


def _shared_store_problems(config: ArtemisConfig) -> list[str]:
    stores = _one_value(config, "store_dir", "artemis_store_dir") + _same_journals(config)
    return _all_pairs_problems(config) + stores + _unannounced_backups(config)


def _peers_problems(config: ArtemisConfig) -> list[str]:
    problems = []
    for pair, members in _pairs(config).items():
        if len(members) < 2:
            problems.append(f"pair {pair} has one peer only: it needs a second host")
        backups = sorted(host for host, member in members.items() if member["role"] != "primary")
        problems += [f"{host} is a backup, but peers have none: each is a primary" for host in backups]
    problems += _one_value(config, "coordination_id", "artemis_coordination_id")
    pairs: dict[str, set[str]] = {}
    for member in config["members"].values():
        pairs.setdefault(str(member["coordination_id"])[:COORDINATION_LENGTH], set()).add(member["pair"])
    problems += [
        f"the coordination ids of {' and '.join(sorted(names))} are the same within {COORDINATION_LENGTH} characters"
        for _coordination_id, names in sorted(pairs.items())
        if len(names) > 1
    ]
    return problems + _copies_problems(config) + _lock_manager_problems(config)


def _colocated_problems(config: ArtemisConfig) -> list[str]:
    problems = _no_backups(config)
    if len(config["members"]) < 2:
        problems.append("colocated with one broker: there is no other to run its backup")
    problems += [
        f"{' and '.join(sorted(members))} are one pair {pair}: colocated brokers are a pair each"
        for pair, members in _pairs(config).items()
        if len(members) > 1
    ]
    problems += _second_backups(config)
    leading_out = {name for name, connector in config["connectors"].items() if connector["type"] == "tcp"}
    moved = sorted(leading_out - {config["own"]} - set(config["excludes"]))
    if config["colocated_store"] == "shared_store":
        if moved:
            problems.append(
                f"a colocated backup with a shared store moves the connectors {', '.join(moved)} to ports that nobody "
                f"listens on (the schema has no excludes there): set artemis_discovery to udp or jgroups"
            )
        return problems
    if moved:
        problems.append(
            f"artemis_colocated_excludes lacks {', '.join(moved)}: a colocated backup would dial them at moved ports"
        )
    # Of two brokers each can only run the other's backup, whatever their group is called.
    problems += _shared_groups(config) if len(config["members"]) > 2 else []
    return problems + _unchecked_failback(config) + _minority_vote(config)


def _second_backups(config: ArtemisConfig) -> list[str]:
    """A second backup in one process has a name, ports and directories that follow from the order of requests."""
    most = config["max_backups"]
    if most is None or int(most) <= 1:
        return []
    return [
        f"artemis_max_backups {most}: whose backup is the second in a process follows from the order of requests, so "
        "that nothing could tell whether it is healthy; set 1 or leave it out"
    ]


def _no_backups(config: ArtemisConfig) -> list[str]:
    backups = sorted(host for host, member in _alike(config).items() if member["role"] == "backup")
    return [f"{host} is a backup, but artemis_ha_policy {config['policy']} has none" for host in backups]


def _scale_down_problems(config: ArtemisConfig) -> list[str]:
    return _no_backups(config) + _scale_down_target_problems(config)


def _scale_down_target_problems(config: ArtemisConfig) -> list[str]:
    target = config["scale_down"]
    if not target or target["enabled"] is False:
        return []
    if target["discovery_group"]:
        groups = _names(config["discovery_groups"])
        return _unknown("scale-down", "discovery group", [target["discovery_group"]], groups)
    if not target["connectors"]:
        return ["scale-down has nobody to hand messages to: the cluster has no other pair, and no connector is named"]
    unknown = sorted(set(target["connectors"]) - set(config["connectors"]))
    problems = [f"scale-down names the connectors {', '.join(unknown)}, which there are not"] if unknown else []
    within = [
        name for name in target["connectors"] if name not in unknown and config["connectors"][name]["type"] == "vm"
    ]
    if within and config["policy"] != "colocated":
        problems.append(
            f"scale-down by {', '.join(within)} leads back to this broker: only a colocated backup has another broker "
            "in its process"
        )
    return problems


POLICIES = {
    "primary_only": _no_backups,
    "shared_store": _shared_store_problems,
    "replication": _replication_problems,
    "replication_quorum": _quorum_problems,
    "peers": _peers_problems,
    "colocated": _colocated_problems,
    "scale_down": _scale_down_problems,
}

_GROUPS = {"artemis_group_name", "artemis_replication_cluster_name", "artemis_retry_replication_wait_ms"}
_CHECK = {"artemis_check_for_active_server", "artemis_check_for_live_server"}
_VOTES = {
    "artemis_vote_on_replication_failure",
    "artemis_quorum_size",
    "artemis_vote_retries",
    "artemis_vote_retry_wait_ms",
    "artemis_quorum_vote_wait_s",
}
_REQUESTS = {
    "artemis_backup_request_retries",
    "artemis_backup_request_retry_interval_ms",
    "artemis_max_backups",
    "artemis_colocated_excludes",
}
_BACKUP = {"artemis_restart_backup", "artemis_scale_down"}
TAKES: dict[str, set[str]] = {
    "primary_only": set(),
    "shared_store": {"artemis_wait_for_activation"} | _BACKUP,
    "replication": _GROUPS | _CHECK | _VOTES | _BACKUP,
    "replication_quorum": _GROUPS,
    "peers": _GROUPS,
    "colocated": _GROUPS | _CHECK | _VOTES | _REQUESTS | _BACKUP | {"artemis_wait_for_activation"},
    "scale_down": {"artemis_scale_down"},
}
"""Optional variables that each policy uses; any other that is set is refused."""


def _names(items: Sequence[Group | ClusterConnection | Acceptor]) -> list[str]:
    return [item["name"] for item in items]


def _unknown(who: str, what: str, wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return a sentence for each of `wanted` that is not in `known`."""
    there = f"there are: {', '.join(sorted(known))}" if known else "there are none"
    return [f"{who} refers to the {what} {name}, which is not there; {there}" for name in wanted if name not in known]


def _twice(kind: str, names: Sequence[str]) -> list[str]:
    return [
        f"two {kind} are called {name}: give each its own name" for name in sorted({*names}) if names.count(name) > 1
    ]


def _connection_problems(config: ArtemisConfig) -> list[str]:
    """Return what is wrong with discovery groups, broadcast groups and cluster connections: names and references."""
    reachable = [name for name, connector in config["connectors"].items() if connector["type"] == "tcp"]
    groups = _names(config["discovery_groups"])
    connections = _names(config["cluster_connections"])
    problems = [
        *_twice("discovery groups", groups),
        *_twice("broadcast groups", _names(config["broadcast_groups"])),
        *_twice("cluster connections", connections),
    ]
    for group in config["broadcast_groups"]:
        problems += _unknown(f"broadcast group {group['name']}", "connector", group["connectors"], reachable)
    for item in config["cluster_connections"]:
        who = f"cluster connection {item['name']}"
        problems += _unknown(who, "connector", [item["connector"], *item["static_connectors"]], reachable)
        if item["discovery_group"] is not None:
            problems += _unknown(who, "discovery group", [item["discovery_group"]], groups)
            if item["static_connectors"]:
                problems.append(f"{who} has a discovery group and static connectors: give one of them")
    problems += _unknown(
        "replication", "cluster connection (cluster-name)", config["replication_cluster_names"], connections
    )
    if len(config["members"]) > 1 and not connections:
        problems.append("artemis_cluster_connections is empty, but the cluster has several brokers")
    return problems


def _endpoint_problems(config: ArtemisConfig) -> list[str]:
    """Return what is wrong with acceptors and connectors, ports and ids of brokers in the same process."""
    problems = [*_twice("acceptors", _names(config["acceptors"]))]
    served = {item["server_id"] for item in config["acceptors"] if item["type"] == "vm"}
    if not any(item["type"] == "tcp" for item in config["acceptors"]):
        problems.append("artemis_acceptors has none with a port: neither clients nor other brokers could connect")
    problems += [
        f"connector {name} leads to vm://{connector['server_id']}, but no acceptor of type vm has that server_id"
        for name, connector in config["connectors"].items()
        if connector["type"] == "vm" and connector["server_id"] not in served
    ]
    return problems


def _ignored(config: ArtemisConfig) -> list[str]:
    takes = TAKES[config["policy"]]
    return [
        f"{name} is set, but {config['policy']} ignores it: take it out"
        for name, value in sorted(config["optional"].items())
        if value is not None and name not in takes
    ]


def artemis_problems(config: ArtemisConfig) -> list[str]:
    """Return what forbids this cluster of brokers, a sentence each."""
    problems = []
    policy = config["policy"]
    if not config["archive"]:
        problems.append(
            f"artemis_version {config['version']} is not known: give its coordinate and checksum in artemis_archive"
        )
    if policy not in POLICIES:
        problems.append(f"artemis_ha_policy {policy!r} is unknown; there are: {', '.join(sorted(POLICIES))}")
    else:
        problems += POLICIES[policy](config) + _ignored(config)
        if policy in ("shared_store", "replication", "colocated"):
            problems += _scale_down_target_problems(config)
    problems += _endpoint_problems(config) + _connection_problems(config)
    credentials: dict[Any, list[str]] = {}
    for host, member in sorted(config["members"].items()):
        credentials.setdefault((member["cluster_user"], member["cluster_password"]), []).append(host)
    if len(credentials) > 1:
        one_each = " and ".join(hosts[0] for hosts in credentials.values())
        problems.append(f"{one_each} have different cluster credentials: the members of a cluster need the same")
    return problems


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"artemis_problems": artemis_problems}
