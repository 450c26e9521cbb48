"""One value that a sweep or matrix sets: a place in the scenario's YAML, or an inventory variable of the deployment."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from brokerdrill import paths
from brokerdrill.errors import UsageError, unknown_name
from brokerdrill.scenario import LoadedScenario, Scenario, parse
from brokerdrill.topology import Topology


def in_scenario(name: str) -> bool:
    """Tell whether `name` is a place in the scenario: its first part is one of a scenario's fields."""
    return name.split(".", 1)[0] in Scenario.model_fields


def text(value: Any) -> str:
    """Return a value as it is shown and as run.json keeps it: as one would write it in YAML, on one line."""
    written = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=1 << 20)
    return written.removesuffix("\n").removesuffix("\n...")


def parse_value(word: str, where: str) -> Any:
    """Return the YAML value of a word. Raises UsageError where it is none."""
    try:
        return yaml.safe_load(word)
    except yaml.YAMLError:
        raise UsageError(f"{where}: {word!r} is no YAML value") from None


def patched(loaded: LoadedScenario, changes: Mapping[str, Any], where: str) -> LoadedScenario:
    """Return `loaded` with the value at each dotted place changed, its text written anew and validated.

    A part of a place is a field; in a list it is an index from 0, or the `name` of an element
    (`method.kill-active.ttl`, `promises.failover_within.bound_ms`). Raises UsageError, beginning with `where`: no such
    place, a value that the scenario's schema refuses.
    """
    if not changes:
        return loaded
    data = copy.deepcopy(yaml.safe_load(loaded.text))
    for place, value in changes.items():
        _set(data, place.split("."), value, f"{where}: {place}")
    written = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    try:
        scenario = parse(written, loaded.path)
    except UsageError as error:
        # The line is one of the text made here, which nobody has seen.
        sentence = str(error).split(": ", 1)[-1]
        raise UsageError(f"{where}: {loaded.name} does not take it: {sentence}") from None
    return LoadedScenario(loaded.name, loaded.path, written, hashlib.sha256(written.encode()).hexdigest(), scenario)


def _set(data: Any, parts: list[str], value: Any, where: str) -> None:
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        if isinstance(data, list):
            place = _element(data, part)
            if place is None:
                raise UsageError(f"{where}: the list has no element {part!r}")
            if last:
                data[place] = value
                return
            data = data[place]
        elif isinstance(data, dict):
            if last:
                data[part] = value
                return
            data = data.setdefault(part, {})
        else:
            raise UsageError(f"{where}: {'.'.join(parts[:depth])} has no parts")


def _element(items: list[Any], part: str) -> int | None:
    if part.isdecimal() and int(part) < len(items):
        return int(part)
    names = [item.get("name") if isinstance(item, dict) else item for item in items]
    return names.index(part) if part in names else None


@functools.cache
def _role_variables(roles: Path) -> frozenset[str]:
    """The variables that the roles below `roles` have a default or an argument's specification for."""
    found: set[str] = set()
    for path in sorted(roles.glob("*/defaults/main.yml")):
        found |= set(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    for path in sorted(roles.glob("*/meta/argument_specs.yml")):
        specs = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("argument_specs", {})
        for spec in specs.values():
            found |= set(spec.get("options") or {})
    return frozenset(found)


def check_variable(name: str, topology: Topology, where: str) -> None:
    """Raise UsageError, with the nearest name, where `name` is a variable neither of the inventory nor of a role."""
    known = _role_variables(paths.ROOT / "roles") | {key for host in topology.hosts for key in host.vars}
    if name not in known:
        raise UsageError(f"{where}: {unknown_name(f'field of a scenario or variable of {topology.name}', name, known)}")
