"""Filters of the role shared_store: pure functions from plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

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


class StoreConfig(TypedDict):
    """What the role's vars/main.yml hands over: where the store is mounted, and of what. `server`, `export` and
    `options` are of the kind `nfs`."""

    kind: str
    path: str
    server: str
    export: str
    options: Sequence[str]


def shared_store_problems(config: StoreConfig) -> list[str]:
    """Return what forbids this shared store, a sentence each."""
    problems = []
    if not str(config["path"]).startswith("/") or str(config["path"]) == "/":
        problems.append(f"shared_store_path {config['path']!r} is no directory to mount at")
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


def mounted_problem(found: str, kind: str) -> str:
    """Return what is wrong with the file system below a store, as findmnt says it ("TYPE OPTIONS"); "" if nothing."""
    type_, _space, options = found.strip().partition(" ")
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
            "mount_unit": mount_unit,
            "mounted_problem": mounted_problem,
            "shared_store_problems": shared_store_problems,
        }
