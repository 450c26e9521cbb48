"""Filters of the role shared_store: pure functions from plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial, Listener
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of

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


GLUSTERD_PORT = 24007
# Two copies that do not see each other cannot tell which of them may go on; the third one's word is the majority.
COPIES = 3
FIRST_PORT = 1024
LAST_PORT = 65535
# How many ports a brick may have: a glusterd that was killed gives its brick another one when it is back.
BRICK_PORTS = 4


class StoreMember(TypedDict):
    """A server of GlusterFS as the others see it; `brick` is ADDRESS:DIRECTORY, and has one of `ports`."""

    instance: str
    address: str
    ports: list[int]
    brick: str


def shared_store_members(
    hosts: Sequence[str], hostvars: HostVars, defaults: Mapping[str, Any]
) -> dict[str, StoreMember]:
    """Return the servers of GlusterFS on `hosts`, by host in sorted order; `defaults` has the `brick` and `port` of
    those whose inventory says nothing else."""
    found: dict[str, StoreMember] = {}
    for host in sorted(hosts):
        of = hostvars[host]
        address = address_of(host, of, "shared_store_glusterfs_address")
        first = int(of.get("shared_store_glusterfs_brick_port", defaults["port"]))
        found[host] = {
            "instance": of.get("shared_store_glusterfs_instance", f"store-{host}"),
            "address": address,
            "ports": [*range(first, first + BRICK_PORTS)],
            "brick": f"{address}:{of.get('shared_store_glusterfs_brick', defaults['brick'])}",
        }
    return found


def shared_store_dials(members: Mapping[str, StoreMember], host: str) -> list[Dial]:
    """Return what `host` dials of the other servers: their daemons, and their bricks."""
    return [
        {"link": "store", "to": member["instance"], "address": member["address"], "port": port}
        for other, member in members.items()
        if other != host
        for port in (GLUSTERD_PORT, *member["ports"])
    ]


def shared_store_listeners(member: StoreMember) -> list[Listener]:
    """Return where a server listens: its daemon, and its brick at one of these ports."""
    ports = [
        ("glusterd", "glusterd", GLUSTERD_PORT),
        *((f"brick-{port}", "glusterfs", port) for port in member["ports"]),
    ]
    return [
        {
            "name": name,
            "address": member["address"],
            "port": port,
            "protocol": protocol,
            "tls": False,
            "clients": False,
        }
        for name, protocol, port in ports
    ]


class StoreConfig(TypedDict):
    """What the role's vars/main.yml hands over: where the store is mounted, and of what. `server`, `export` and
    `options` are of the kind `nfs`; `members`, `brick`, `brick_port`, `volume`, `ping_timeout_s`,
    `server_timeout_s` and `volume_options` of the kind `glusterfs`."""

    kind: str
    path: str
    server: str
    export: str
    options: Sequence[str]
    members: Mapping[str, StoreMember]
    brick: str
    brick_port: int
    volume: str
    ping_timeout_s: int
    server_timeout_s: int
    volume_options: Mapping[str, str]


# Their variables of the role say them.
OWN_VOLUME_OPTIONS = {
    "network.ping-timeout": "shared_store_glusterfs_ping_timeout_s",
    "server.tcp-user-timeout": "shared_store_glusterfs_server_timeout_s",
    "client.strict-locks": "shared_store_glusterfs_strict_locks",
}


def _glusterfs_problems(config: StoreConfig) -> list[str]:
    problems = []
    if len(config["members"]) != COPIES:
        problems.append(
            f"shared_store_kind glusterfs keeps {COPIES} copies, a host each; "
            f"the group shared_store has {len(config['members'])}"
        )
    brick, path = f"{config['brick']}/", f"{config['path']}/"
    if not brick.startswith("/") or brick.startswith(path) or path.startswith(brick):
        problems.append(f"shared_store_glusterfs_brick {config['brick']!r} is no directory beside shared_store_path")
    first = int(config["brick_port"])
    if not FIRST_PORT <= first <= LAST_PORT + 1 - BRICK_PORTS or GLUSTERD_PORT in range(first, first + BRICK_PORTS):
        problems.append(
            f"shared_store_glusterfs_brick_port {first} is none that a brick can have, "
            f"with the {BRICK_PORTS - 1} after it"
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", str(config["volume"])):
        problems.append(f"shared_store_glusterfs_volume {config['volume']!r} is no name of a volume")
    if int(config["ping_timeout_s"]) < 1:
        problems.append(
            "shared_store_glusterfs_ping_timeout_s must be 1 or more: with 0 nobody notices a server that is gone"
        )
    if int(config["server_timeout_s"]) <= int(config["ping_timeout_s"]):
        problems.append(
            f"shared_store_glusterfs_server_timeout_s {config['server_timeout_s']} is not above "
            f"shared_store_glusterfs_ping_timeout_s {config['ping_timeout_s']}: a server would give a lock to the next "
            "broker while the one that holds it does not know yet"
        )
    problems += [
        f"shared_store_glusterfs_options has {option}, which {variable} says"
        for option, variable in OWN_VOLUME_OPTIONS.items()
        if option in config["volume_options"]
    ]
    return problems


def shared_store_problems(config: StoreConfig) -> list[str]:
    """Return what forbids this shared store, a sentence each."""
    problems = []
    if not str(config["path"]).startswith("/") or str(config["path"]) == "/":
        problems.append(f"shared_store_path {config['path']!r} is no directory to mount at")
    if config["kind"] == "glusterfs":
        return problems + _glusterfs_problems(config)
    if config["kind"] != "nfs":
        return problems
    given = {"server": config["server"], "export": config["export"]}
    problems += [f"shared_store_kind nfs needs shared_store_nfs_{part}" for part, value in given.items() if not value]
    options = [str(option) for option in config["options"]]
    problems += [f"NFS option {option}: {UNSAFE_OPTIONS[option]}" for option in options if option in UNSAFE_OPTIONS]
    versions = [option.partition("=")[2] for option in options if option.startswith(("vers=", "nfsvers="))]
    problems += [
        f"NFS version {version}: its locks outlive a host that died; take 4 or later"
        for version in versions
        if not version.startswith("4")
    ]
    return problems


# findmnt's word for what the role mounts, by kind.
MOUNTED_AS = {"nfs": "nfs4", "glusterfs": "fuse.glusterfs"}


def mounted_problem(found: str, kind: str) -> str:
    """Return what is wrong with the file system below a store, as findmnt says it ("TYPE OPTIONS"); "" if nothing."""
    type_, _space, options = found.strip().partition(" ")
    if not type_:
        return "there is no such directory"
    if kind in MOUNTED_AS and type_ != MOUNTED_AS[kind]:
        return f"{type_} is mounted there, not {MOUNTED_AS[kind]}"
    words = options.strip().split(",")
    if "ro" in words:
        return "it is mounted read-only"
    unsafe = [word for word in words if word in UNSAFE_OPTIONS and word not in ("hard", "ac")]
    return f"mounted with {unsafe[0]}: {UNSAFE_OPTIONS[unsafe[0]]}" if unsafe and kind == "nfs" else ""


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "mount_unit": mount_unit,
            "mounted_problem": mounted_problem,
            "shared_store_dials": shared_store_dials,
            "shared_store_listeners": shared_store_listeners,
            "shared_store_members": shared_store_members,
            "shared_store_problems": shared_store_problems,
        }
