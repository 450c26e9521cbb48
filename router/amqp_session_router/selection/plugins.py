"""Partition policies and backend selectors by name: our own, and a user's by entry point."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from amqp_session_router.base.errors import UsageError, unknown_name


@cache
def _entry_points(group: str) -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=group)}


def find(kind: str, group: str, name: str, own: dict[str, Any]) -> Any:
    """Return the object called `name`: one of `own`, or the entry point of `group` with that name, loaded and, if it
    is a class, made without arguments. Raises UsageError if there is none or it does not load."""
    if name in own:
        return own[name]
    points = _entry_points(group)
    if name not in points:
        raise UsageError(unknown_name(kind, name, [*own, *points]))
    try:
        loaded = points[name].load()
        return loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise UsageError(f"the {kind} {name!r} ({points[name].value}) does not load: {error}") from error
