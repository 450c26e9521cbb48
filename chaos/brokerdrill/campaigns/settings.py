"""One value that a sweep or matrix sets: a place in the scenario's YAML, or an inventory variable of the deployment."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from brokerdrill.base import paths
from brokerdrill.base.documents import plain_yaml
from brokerdrill.base.errors import UsageError, unknown_name
from brokerdrill.inventory.topology import Topology
from brokerdrill.scenario.drill import OPEN
from brokerdrill.scenario.model import Scenario


def in_scenario(name: str) -> bool:
    """Return whether `name` is a place in the scenario: its first part is one of a scenario's fields."""
    field = name.split(".", 1)[0]
    return field in Scenario.model_fields and field not in OPEN


def text(value: Any) -> str:
    """Return a value as it is shown and as run.json keeps it: as one would write it in YAML, on one line."""
    written = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=1 << 20)
    return written.removesuffix("\n").removesuffix("\n...")


def parse_value(word: str, where: str) -> Any:
    """Return the YAML value of a word. Raises UsageError where it is none."""
    try:
        return plain_yaml(word)
    except yaml.YAMLError:
        raise UsageError(f"{where}: {word!r} is no YAML value") from None


@functools.cache
def _role_variables(roles: Path) -> frozenset[str]:
    """The variables that the roles below `roles` have a default or an argument's specification for."""
    found: set[str] = set()
    for path in sorted(roles.glob("*/defaults/main.yml")):
        found |= set(plain_yaml(path.read_text(encoding="utf-8")) or {})
    for path in sorted(roles.glob("*/meta/argument_specs.yml")):
        specs = (plain_yaml(path.read_text(encoding="utf-8")) or {}).get("argument_specs", {})
        for spec in specs.values():
            found |= set(spec.get("options") or {})
    return frozenset(found)


def check_variable(name: str, topology: Topology, where: str) -> None:
    """Raise UsageError, with the nearest name, where `name` is a variable neither of the inventory nor of a role."""
    known = _role_variables(paths.COLLECTION / "roles") | {key for host in topology.hosts for key in host.vars}
    if name not in known:
        raise UsageError(f"{where}: {unknown_name(f'field of a scenario or variable of {topology.name}', name, known)}")
