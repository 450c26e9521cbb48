"""A shipped topology under a name and on a subnet of a test's own: it stands beside whoever has the shipped one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from brokerdrill.base import paths
from brokerdrill.inventory.topology import Topology, load

_SUBNET = re.compile(r"172\.30\.\d+\.")


def copied(
    folder: Path,
    base: str,
    name: str,
    subnet: str,
    variables: Mapping[str, Mapping[str, Any]] | None = None,
    more: Mapping[str, Any] | None = None,
    without: Iterable[str] = (),
) -> Topology:
    """Write the inventory `name` below `folder`: `base` with its bench, on `subnet` (its first three numbers), with
    `variables` of groups, with hosts and groups of `more` (as an inventory says them), `without` these hosts."""
    directory = folder / name
    directory.mkdir()
    said = [paths.INVENTORIES / base / "hosts.yml", paths.BENCH / f"{base}.yml"]
    for place, path in zip(("hosts.yml", "hosts_bench.yml"), said, strict=True):
        inventory = yaml.safe_load(_SUBNET.sub(f"{subnet}.", path.read_text()))
        _leave_out(inventory, set(without))
        (directory / place).write_text(yaml.safe_dump(inventory))
    if more:
        (directory / "hosts_more.yml").write_text(yaml.safe_dump(dict(more)))
    # Of one group's files the last one counts
    for place, given in (("1_inventory.yml", said[0]), ("2_bench.yml", said[1])):
        for path in (given.parent / "group_vars").glob("*.yml"):
            shutil.copy(path, _group(directory, path.stem) / place)
    own = {"all": {"bench_cache": str(paths.cache())}, **(variables or {})}
    for group, values in own.items():
        (_group(directory, group) / "3_test.yml").write_text(yaml.safe_dump({**own["all"], **values}))
    return load(directory)


def removed(folder: Path, topology: Topology, *hosts: str) -> Topology:
    """Return the same topology, as an inventory below `folder`, from which an operator has taken `hosts` out."""
    directory = folder / topology.name
    shutil.copytree(topology.directory, directory)
    for path in directory.glob("hosts*.yml"):
        inventory = yaml.safe_load(path.read_text())
        _leave_out(inventory, set(hosts))
        path.write_text(yaml.safe_dump(inventory))
    return load(directory)


def _group(directory: Path, name: str) -> Path:
    place = directory / "group_vars" / name
    place.mkdir(parents=True, exist_ok=True)
    return place


def _leave_out(group: Any, hosts: set[str]) -> None:
    for one in (group or {}).values() if isinstance(group, dict) else ():
        if not isinstance(one, dict):
            continue
        if isinstance(named := one.get("hosts"), dict):
            one["hosts"] = {host: values for host, values in named.items() if host not in hosts}
        _leave_out(one.get("children"), hosts)
