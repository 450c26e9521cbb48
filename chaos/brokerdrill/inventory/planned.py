"""What an inventory says that would be deployed: the descriptors that the roles would leave, without touching a host.

Ansible takes seconds for them, so that they are kept in the cache for as long as the inventory, the roles and the
plugins stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brokerdrill.base import paths
from brokerdrill.base.progress import Progress
from brokerdrill.inventory.descriptors import SCHEMA, Descriptor, parse
from brokerdrill.inventory.playbooks import run_playbook
from brokerdrill.inventory.topology import Topology, fingerprint

PLAYBOOK = "describe"
COLUMNS = ("host", "product", "instance", "version", "role", "store", "listens on")


def planned(topology: Topology, progress: Progress, variables: Mapping[str, Any] | None = None) -> list[Descriptor]:
    """Return the descriptors of the brokers, databases and ensembles of `topology`, deployed with `variables`: what all
    products have in common.

    Raises UsageError where preflight refuses the inventory, InfrastructureError where anything else fails.
    """
    kept = paths.private_dir(paths.cache() / "planned") / f"{_key(topology, variables or {})}.json"
    if not kept.is_file():
        made = json.dumps(_made(topology, progress, variables or {}))
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False, encoding="utf-8") as file:
            file.write(made)
        Path(file.name).replace(kept)
    return [
        one
        for host, listed in json.loads(kept.read_text(encoding="utf-8")).items()
        for one in parse(host, {f"{item['instance']}.json": json.dumps(item) for item in listed}, {})
    ]


def load_hosts(topology: Topology) -> list[Descriptor]:
    """Return the load hosts of a topology, where links begin: as tools they are not among what is planned."""
    return [
        Descriptor(schema=SCHEMA, product="load", instance=host.name, host=host.name) for host in topology.group("load")
    ]


def rows(topology: Topology, descriptors: Sequence[Descriptor]) -> list[tuple[str, ...]]:
    """Return what each host of `topology` would get, by host: `COLUMNS` of each instance that `descriptors` say, and of
    a host without one the groups that it is in."""
    found: list[tuple[str, ...]] = []
    for host in topology.hosts:
        of_host = [one for one in descriptors if one.host == host.name]
        for one in of_host:
            ports = ", ".join(
                f"{listener.port} ({listener.protocol}{' TLS' if listener.tls else ''})" for listener in one.listeners
            )
            found.append((host.name, one.product, one.instance, one.version, one.role or "", one.store or "", ports))
        if not of_host:
            found.append((host.name, ", ".join(sorted({*host.groups} - {"all", "ungrouped"})), "", "", "", "", ""))
    return found


def _key(topology: Topology, variables: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of all that decides what would be deployed."""
    parts = [topology.sha256, *(fingerprint(paths.COLLECTION / name) for name in ("roles", "plugins", "playbooks"))]
    return hashlib.sha256(json.dumps([parts, variables], sort_keys=True).encode()).hexdigest()


def _made(topology: Topology, progress: Progress, variables: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the content of the descriptors by host, as Ansible makes it."""
    with tempfile.TemporaryDirectory(prefix="brokerdrill-") as folder:
        extra = Path(folder) / "extra.json"
        extra.write_text(json.dumps({**variables, "describe_out": folder}), encoding="utf-8")
        run_playbook(topology, PLAYBOOK, progress, ("--extra-vars", f"@{extra}"))
        return {
            host.name: json.loads((Path(folder) / f"{host.name}.json").read_text(encoding="utf-8"))
            for host in topology.hosts
        }
