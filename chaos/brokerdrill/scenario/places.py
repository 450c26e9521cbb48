"""A place in a scenario's YAML, written with dots: `load.rate`, `method.kill-active.ttl`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from brokerdrill.base.errors import UsageError


def set_places(data: Any, changes: Mapping[str, Any], where: str) -> None:
    """Change `data`. A part of a place is a field; in a list it is an index from 0, or the name of an element.

    Raises UsageError, beginning with `where`, where there is no such place.
    """
    for place, value in changes.items():
        _set(data, place.split("."), copy.deepcopy(value), f"{where}: {place}")


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
