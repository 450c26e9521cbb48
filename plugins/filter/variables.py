"""What an inventory says that no role reads: mistyped names, and addresses that are none."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

COLLECTION = Path(__file__).resolve().parents[2]
_NAME = re.compile(r"[A-Za-z_]\w*")
# Where names of variables stand.
_READ = (("roles", ("*.yml", "*.j2")), ("playbooks", ("*.yml",)), ("plugins", ("*.py",)))
NEAR = 0.8
# As the defaults of instances' names have it.
HOSTNAME = "{{ inventory_hostname }}"


@functools.cache
def _documented(collection: Path) -> Mapping[str, Any]:
    """Return the roles' documented variables with their defaults, None without one."""
    found: dict[str, Any] = {}
    for path in sorted(collection.glob("roles/*/meta/argument_specs.yml")):
        for spec in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            found |= {name: option.get("default") for name, option in (spec.get("options") or {}).items()}
    return found


@functools.cache
def _read_anywhere(collection: Path) -> frozenset[str]:
    """Return every name that the collection's files have: a mistyped one is none of them."""
    return frozenset(
        name
        for folder, patterns in _READ
        for pattern in patterns
        for path in (collection / folder).rglob(pattern)
        for name in _NAME.findall(path.read_text(encoding="utf-8"))
    )


def _roles(collection: Path) -> list[str]:
    return sorted((path.name for path in (collection / "roles").iterdir()), key=len, reverse=True)


def unknown_variables(names: Iterable[str], allowed: Sequence[str] = (), collection: Path = COLLECTION) -> list[str]:
    """Return a sentence for each of an inventory's variables that begins like a role's, is none, and is near to one.

    Others that only begin so may be somebody's own, and so may those that are `allowed`.
    """
    prefixes = tuple(f"{role}_" for role in _roles(collection))
    wanted = [name for name in names if name.startswith(prefixes) and name not in allowed]
    # Reading all files is for the few inventories that have one.
    unknown = sorted(name for name in set(wanted) - _documented(collection).keys())
    unknown = [name for name in unknown if name not in _read_anywhere(collection)] if unknown else []
    problems = []
    for name in unknown:
        if near := difflib.get_close_matches(name, _documented(collection), n=1, cutoff=NEAR):
            problems.append(
                f"no role has a variable {name}: did you mean {near[0]}? "
                f"(Is it your own? Then name it in common_own_variables.)"
            )
    return problems


def address_variables(names: Iterable[str], collection: Path = COLLECTION) -> list[str]:
    """Return which of the names are variables of an address that must be one: without it a role takes the host's."""
    documented = _documented(collection)
    return sorted(name for name in names if name.endswith("_address") and documented.get(name))


def empty_addresses(values: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each of the `address_variables` that is empty."""
    return [
        f"{name} is empty: say an address, or leave it out for the default"
        for name, value in values.items()
        if not value
    ]


def same_instances(
    variables: Mapping[str, Any], host: str, products: Iterable[str], collection: Path = COLLECTION
) -> list[str]:
    """Return a sentence for each name that several of the `products` on `host`, which has these `variables`, call their
    instance: the descriptor of one would be written over that of the other."""
    called: dict[str, list[str]] = {}
    documented = _documented(collection)
    for product in products:
        variable = f"{product}_instance"
        # A role without one describes no instance.
        if variable in documented:
            name = str(variables.get(variable) or str(documented[variable]).replace(HOSTNAME, host))
            called.setdefault(name, []).append(product)
    return [
        f"{' and '.join(several)} on {host} are both called {name}: set another {several[0]}_instance, such as "
        f"{several[0]}-{host}"
        for name, several in called.items()
        if len(several) > 1
    ]


def same_machines(
    hosts: Mapping[str, Mapping[str, Any]],
    host: str,
    groups: Mapping[str, Sequence[str]],
    products: Iterable[str],
    collection: Path = COLLECTION,
) -> list[str]:
    """Return a sentence for each of the `products` that `host` gets by several names of one machine, among `hosts`
    (name → variables): the second one would be written over the first."""
    documented = _documented(collection)

    def place(name: str, product: str) -> tuple[str, ...]:
        variables = hosts[name]
        address = variables.get("ansible_host") or variables.get("ansible_ssh_host") or name
        # (Behind one address there may be several machines.)
        port = variables.get("ansible_port") or variables.get("ansible_ssh_port") or ""
        unit = variables.get(f"{product}_unit") or documented.get(f"{product}_unit") or ""
        return str(address), str(port), str(unit)

    found = []
    for product in products:
        if f"{product}_instance" not in documented:
            continue  # what is no instance may be there once for several
        same = sorted(name for name in groups.get(product, ()) if place(name, product) == place(host, product))
        if len(same) > 1:
            found.append(
                f"{' and '.join(same)} are one machine ({place(host, product)[0]}), and {product} would be deployed "
                "there more than once: give each its own ansible_host"
            )
    return found


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "address_variables": address_variables,
            "empty_addresses": empty_addresses,
            "same_instances": same_instances,
            "same_machines": same_machines,
            "unknown_variables": unknown_variables,
        }
