"""What a deployment refuses before anything is touched: pure functions from plain data to sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SESSION_TICKS = (2, 20)
"""ZooKeeper Administrator's Guide, minSessionTimeout and maxSessionTimeout: a session lasts 2 to 20 ticks."""


COORDINATION_LENGTH = 16


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


def _pairs(config: Mapping[str, Any]) -> dict[str, dict[str, Mapping[str, Any]]]:
    pairs: dict[str, dict[str, Mapping[str, Any]]] = {}
    for host, member in config["members"].items():
        pairs.setdefault(member["pair"], {})[host] = member
    return dict(sorted(pairs.items()))


def _all_pairs_problems(config: Mapping[str, Any]) -> list[str]:
    return [problem for pair, members in _pairs(config).items() for problem in _pair_problems(pair, members)]


def _one_value(config: Mapping[str, Any], field: str, what: str) -> list[str]:
    """Return which pairs' members differ in `field`: `what` names it."""
    problems = []
    for members in _pairs(config).values():
        first: dict[Any, str] = {}
        for host, member in sorted(members.items()):
            first.setdefault(member[field], host)
        if len(first) > 1:
            problems.append(
                f"{' and '.join(first.values())} have different {what}: the members of a pair need the same"
            )
    return problems


def _lock_manager_problems(config: Mapping[str, Any]) -> list[str]:
    """What isolation protection by ZooKeeper asks for."""
    problems = []
    servers = list(config["zookeeper_servers"])
    if len(servers) < 3 and not config.get("allow_small"):
        problems.append(
            f"{config['policy']} with {len(servers)} ZooKeeper servers cannot stand a partition: it needs 3 or more"
        )
    session, tick = int(config["session_ms"]), int(config["tick_ms"])
    low, high = (ticks * tick for ticks in SESSION_TICKS)
    if not low <= session <= high:
        problems.append(
            f"session_ms {session} is outside {low} to {high}, 2 to 20 ticks of {tick} ms: ZooKeeper changes it"
        )
    return problems


def _same_journals(config: Mapping[str, Any]) -> list[str]:
    return _one_value(config, "journal", "artemis_journal_file_size")


def _quorum_problems(config: Mapping[str, Any]) -> list[str]:
    return _all_pairs_problems(config) + _same_journals(config) + _lock_manager_problems(config)


def _replication_problems(config: Mapping[str, Any]) -> list[str]:
    return _all_pairs_problems(config) + _same_journals(config) + _unchecked_failback(config) + _minority_vote(config)


def _minority_vote(config: Mapping[str, Any]) -> list[str]:
    """A vote that fewer than most of the other pairs can win: QuorumVoteServerConnect asks n/2 of up to 2 brokers, else
    n/2 + 1, rounded down, where n is the quorum size."""
    size, others = config["optional"].get("artemis_quorum_size"), len(_pairs(config)) - 1
    if size is None or int(size) < 0 or not others:
        return []
    needed = int(int(size) / 2 + (int(size) > 2))
    if needed * 2 > others:
        return []
    return [
        f"artemis_quorum_size {size} asks for {needed} of {others} votes: a backup would replace a primary that others "
        f"see; set {others + 1}, the number of pairs, or leave it out"
    ]


def _unchecked_failback(config: Mapping[str, Any]) -> list[str]:
    """A classic primary that returns after a failover serves all over again what its backup has handled already."""
    if config["allow_failback"] and not config["check_for_active"] and not config.get("allow_unchecked_failback"):
        return [
            "artemis_allow_failback without artemis_check_for_active_server: a primary that returns after a failover "
            "would serve everything a second time beside its backup"
        ]
    return []


def _shared_store_problems(config: Mapping[str, Any]) -> list[str]:
    return _all_pairs_problems(config) + _one_value(config, "store_dir", "artemis_store_dir") + _same_journals(config)


def _peers_problems(config: Mapping[str, Any]) -> list[str]:
    problems = []
    for pair, members in _pairs(config).items():
        if len(members) < 2:
            problems.append(f"pair {pair} has one peer only: it needs a second host")
        backups = sorted(host for host, member in members.items() if member["role"] != "primary")
        problems += [f"{host} is a backup, but peers have none: each is a primary" for host in backups]
    problems += _one_value(config, "coordination_id", "artemis_coordination_id")
    # ReplicationPrimaryPolicyConfiguration.setCoordinationId cuts at 16 characters.
    pairs: dict[str, set[str]] = {}
    for member in config["members"].values():
        pairs.setdefault(str(member["coordination_id"])[:COORDINATION_LENGTH], set()).add(member["pair"])
    problems += [
        f"the coordination ids of {' and '.join(sorted(names))} are the same within {COORDINATION_LENGTH} characters"
        for _, names in sorted(pairs.items())
        if len(names) > 1
    ]
    return problems + _same_journals(config) + _lock_manager_problems(config)


def _colocated_problems(config: Mapping[str, Any]) -> list[str]:
    problems = _no_backups(config)
    if len(config["members"]) < 2:
        problems.append("colocated with one broker: there is no other to run its backup")
    problems += [
        f"{' and '.join(sorted(members))} are one pair {pair}: colocated brokers are a pair each"
        for pair, members in _pairs(config).items()
        if len(members) > 1
    ]
    moved = sorted(set(config["connectors"]) - {config["own"]} - set(config["excludes"]))
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
    return problems + _unchecked_failback(config) + _minority_vote(config)


def _no_backups(config: Mapping[str, Any]) -> list[str]:
    backups = sorted(host for host, member in config["members"].items() if member["role"] == "backup")
    return [f"{host} is a backup, but artemis_ha_policy {config['policy']} has none" for host in backups]


def _scale_down_problems(config: Mapping[str, Any]) -> list[str]:
    return _no_backups(config) + _scale_down_target_problems(config)


def _scale_down_target_problems(config: Mapping[str, Any]) -> list[str]:
    target = config["scale_down"]
    if not target or target["enabled"] is False:
        return []
    if target["discovery_group"]:
        if config["discovery"] == "static":
            return [f"scale-down by the discovery group {target['discovery_group']}, but artemis_discovery is static"]
        if target["discovery_group"] != config["discovery_group"]:
            return [f"scale-down by {target['discovery_group']}, which is not artemis_discovery_group"]
        return []
    if not target["connectors"]:
        return ["scale-down has nobody to hand messages to: the cluster has no other pair, and no connector is named"]
    unknown = sorted(set(target["connectors"]) - set(config["connectors"]))
    return [f"scale-down names the connectors {', '.join(unknown)}, which there are not"] if unknown else []


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
"""What each policy makes use of; set with another one, it would be a wish that nobody hears."""


def _ignored(config: Mapping[str, Any]) -> list[str]:
    takes = TAKES[config["policy"]]
    return [
        f"{name} is set, but {config['policy']} ignores it: take it out"
        for name, value in sorted(config["optional"].items())
        if value is not None and name not in takes
    ]


def artemis_problems(config: Mapping[str, Any]) -> list[str]:
    """Return what forbids this cluster of brokers.

    `config`: policy; members, host to {"pair", "role", "store_dir", "journal", "coordination_id", "cluster_user",
    "cluster_password"}; optional, variable to value (None: not set); and what each policy's own check reads.
    """
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


def newest_data(members: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return which member of a pair holds the latest data: {"order": hosts, newest first, "why", "problem"}.

    `members`: host to {"role"} and what the module artemis_journal returned. A lock manager's activation sequence
    decides, else the journal's files: a member that went on alone has written to later ones. `problem` is a sentence
    where nothing can be said, else "".
    """
    holding = {host: found for host, found in members.items() if found["there"]}
    if not holding:
        return {"order": [], "why": "", "problem": "no member has a journal"}
    identities = {found["node_id"] for found in holding.values()} - {""}
    if len(identities) > 1:
        named = " and ".join(sorted(holding))
        problem = f"{named} hold journals of different brokers: a copy was never made, and the choice is yours"
        return {"order": [], "why": "", "problem": problem}

    def age(host: str) -> tuple[Any, ...]:
        found = holding[host]
        sequence = found["activation_sequence"]
        return (
            -1 if sequence is None else sequence,
            found["journal_file"],
            found["written"],
            found["role"] == "primary",
        )

    order = sorted(holding, key=age, reverse=True)
    first = holding[order[0]]
    others = [holding[host] for host in order[1:]]
    facts = (
        ("activation_sequence", "its activation sequence is {}, the highest"),
        ("journal_file", "its journal goes on to file {}, the last"),
        ("written", "its journal was written last, at {}"),
    )
    why = "its data are as new as any other's"
    for name, words in facts:
        if others and all(other[name] != first[name] for other in others):
            why = words.format(first[name])
            break
    missing = sorted(set(members) - set(holding))
    return {"order": order + missing, "why": f"{order[0]}: {why}", "problem": ""}


UNSAFE_OPTIONS = {
    "nolock": "locks would be this host's alone",
    "local_lock=all": "locks would be this host's alone",
    "local_lock=posix": "locks would be this host's alone",
    "local_lock=flock": "locks would be this host's alone",
    "async": "a write would count before the server has it",
    "ac": "a host would see the other's files late",
    "hard": "a broker would hang on a server that is gone, and hold its role",
}


def mount_unit(path: str) -> str:
    """Return the name of systemd's unit for the mount at `path` (systemd-escape(1), --path)."""
    parts = [part for part in path.split("/") if part]
    safe = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.")
    named = ["".join(c if c in safe else "".join(f"\\x{b:02x}" for b in c.encode()) for c in part) for part in parts]
    return "-".join(named) + ".mount"


def shared_store_problems(config: Mapping[str, Any]) -> list[str]:
    """Return what forbids this shared store. `config`: kind, path, server, export, options."""
    problems = []
    if not str(config["path"]).startswith("/") or str(config["path"]) == "/":
        problems.append(f"shared_store_path {config['path']!r} is no directory to mount at")
    if config["kind"] != "nfs":
        return problems
    problems += [
        f"shared_store_kind nfs needs shared_store_nfs_{part}" for part in ("server", "export") if not config[part]
    ]
    options = [str(option) for option in config["options"]]
    problems += [f"NFS option {option}: {UNSAFE_OPTIONS[option]}" for option in options if option in UNSAFE_OPTIONS]
    versions = [option.partition("=")[2] for option in options if option.startswith(("vers=", "nfsvers="))]
    problems += [
        f"NFS version {version}: its locks outlive a host that died; take 4 or later"
        for version in versions
        if not version.startswith("4")
    ]
    return problems


def mounted_problem(found: str, kind: str) -> str:
    """Return what is wrong with the file system below a store, as findmnt says it ("TYPE OPTIONS"); "" if nothing."""
    type_, _, options = found.strip().partition(" ")
    if not type_:
        return "there is no such directory"
    if kind == "nfs" and type_ != "nfs4":
        return f"{type_} is mounted there, not nfs4"
    words = options.strip().split(",")
    if "ro" in words:
        return "it is mounted read-only"
    unsafe = [word for word in words if word in UNSAFE_OPTIONS and word not in ("hard", "ac")]
    return f"mounted with {unsafe[0]}: {UNSAFE_OPTIONS[unsafe[0]]}" if unsafe and kind == "nfs" else ""


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "zookeeper_problems": zookeeper_problems,
            "artemis_problems": artemis_problems,
            "mount_unit": mount_unit,
            "mounted_problem": mounted_problem,
            "newest_data": newest_data,
            "pair_problems": pair_problems,
            "shared_store_problems": shared_store_problems,
        }
