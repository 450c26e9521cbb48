"""The products of the collection: every role with a file meta/product.yml, which says what the role's tasks do not.

`uses`: the products that it depends on, deployed before it. `client`: what load hosts need for its clients. `tool`: it
serves the drills, which do not break it. `metrics`: where Prometheus reads it. `heap`: the variable of its JVM's heap.
docs/adding-a-product.md has all of it.
What a product can do is which task files its role has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parents[2] / "roles"
KEYS = {"uses", "client", "tool", "metrics", "heap"}
CLIENT_KEYS = {"protocol", "more_protocols", "archive", "jars", "version", "include", "directory"}
METRICS_KEYS = {"address", "cluster", "port", "store", "tls", "variables"}
VARIABLE_KEYS = {"address", "cluster", "port", "store"}
METRICS_FILES = {"rules": "rules.yml", "dashboards": "dashboard.json"}
"""What a role may have in its folder files/prometheus, by the folder of Prometheus' that it goes to."""


@dataclass(frozen=True)
class Product:
    """A product: its role's name, what it uses, its clients (None where none connect), its task files, whether it is a
    tool of the drills, its metrics (None where it has none), the paths of the role's files for Prometheus, and the
    variable of its JVM's heap in MiB (None where it is none) with the role's default."""

    name: str
    uses: tuple[str, ...] = ()
    client: Mapping[str, Any] | None = None
    tasks: frozenset[str] = field(default_factory=frozenset)
    tool: bool = False
    metrics: Mapping[str, Any] | None = None
    metrics_files: Mapping[str, str] = field(default_factory=dict)
    heap: str | None = None
    heap_mib: int = 0


def parse(
    name: str,
    content: Any,
    tasks: Iterable[str],
    metrics_files: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Product:
    """Return the product that the content of a meta/product.yml describes; `defaults` are its role's. Raises ValueError
    with one sentence."""
    where = f"roles/{name}/meta/product.yml"
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ValueError(f"{where} is no mapping")
    client, metrics = content.get("client"), content.get("metrics")
    variables = (metrics.get("variables") or {}) if isinstance(metrics, dict) else {}
    for key, value in (("client", client), ("metrics", metrics), ("metrics.variables", variables)):
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"{where}: {key} is no mapping")
    for found, known, place in (
        (content, KEYS, ""),
        (client or {}, CLIENT_KEYS, "client."),
        (metrics or {}, METRICS_KEYS, "metrics."),
        (variables, VARIABLE_KEYS, "metrics.variables."),
    ):
        if unknown := sorted(set(found) - known):
            raise ValueError(f"{where}: {place}{unknown[0]} is none of {', '.join(sorted(known))}")
    if client is not None and "protocol" not in client:
        raise ValueError(f"{where}: client.protocol is missing")
    if client is not None and "jars" in client and "version" not in client:
        raise ValueError(f"{where}: client.version is missing, which client.jars need")
    if metrics is not None and not isinstance(metrics.get("port"), int):
        raise ValueError(f"{where}: metrics.port is no number")
    heap = content.get("heap")
    heap_mib = (defaults or {}).get(heap, 0) if heap is not None else 0
    if heap is not None and not (isinstance(heap_mib, int) and heap_mib > 0):
        raise ValueError(f"{where}: heap: the role has no default of {heap} that is a number of MiB")
    uses, tool = tuple(content.get("uses", ())), bool(content.get("tool", False))
    return Product(name, uses, client, frozenset(tasks), tool, metrics, metrics_files or {}, heap, heap_mib)


def in_order(products: Iterable[Product]) -> list[Product]:
    """Return the products in the order of a deployment: each after what it uses, else by name.

    Raises ValueError where one uses an unknown product, or itself through others.
    """
    by_name = {product.name: product for product in products}
    for product in by_name.values():
        if unknown := sorted(set(product.uses) - set(by_name)):
            raise ValueError(f"roles/{product.name}/meta/product.yml: uses {unknown[0]}, which is no product")
    sorter = TopologicalSorter({name: by_name[name].uses for name in sorted(by_name)})
    try:
        sorter.prepare()
    except CycleError as error:
        raise ValueError(f"products use each other in a circle: {' → '.join(error.args[1])}") from None
    found = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found += [by_name[name] for name in ready]
        sorter.done(*ready)
    return found


def read_all(roles: Path = ROLES) -> list[Product]:
    """Return the products whose roles are in the folder `roles`, in the order of a deployment.

    Raises ValueError with one sentence where a meta/product.yml is wrong.
    """
    found = []
    for path in sorted(roles.glob("*/meta/product.yml")):
        role = path.parents[1]
        content = _read(path)
        defaults = _read(role / "defaults" / "main.yml") if isinstance(content, dict) and "heap" in content else None
        files = {kind: role / "files" / "prometheus" / file for kind, file in METRICS_FILES.items()}
        there = {kind: str(file) for kind, file in files.items() if file.is_file()}
        found.append(parse(role.name, content, (task.stem for task in (role / "tasks").glob("*.yml")), there, defaults))
    return in_order(found)


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        where = "/".join(path.parts[-4:])
        raise ValueError(f"{where} is no YAML: {' '.join(str(error).split())}") from None
