"""How typed values become JSON objects and come back: an entry a field, by its name.

In what is read every entry may be missing, and null is as good as nothing: an older version wrote fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

Json = Mapping[str, Any]
R = TypeVar("R", bound="JsonRow")


class JsonRow:
    """A dataclass of which each field is an entry of its JSON object; those with entries of another kind say so by
    methods of their own."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; null where there is nothing."""
        return {name: _plain(getattr(self, name)) for name in names(type(self))}

    @classmethod
    def from_json(cls: type[R], row: Json) -> R:
        """Return the value of a JSON object; what is not known here is left out."""
        return cls.picked(row)

    @classmethod
    def picked(cls: type[R], row: Json, /, **more: Any) -> R:
        """Return the value of those entries of `row` that are fields and not null, and of `more`, as it is."""
        return cls(**{name: row[name] for name in names(cls) if row.get(name) is not None} | more)


def names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of a dataclass's fields."""
    return tuple(one.name for one in fields(kind))


def _plain(value: Any) -> Any:
    if isinstance(value, JsonRow):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def objects(value: Any) -> list[Json]:
    """Return the JSON objects of a list, which may be missing."""
    return [row for row in value or () if isinstance(row, Mapping)]


def texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list; of one text alone, too."""
    return (value,) if isinstance(value, str) else tuple(str(item) for item in value or ())


def counts(value: Any) -> dict[str, int]:
    """Return the numbers of an object by name; null is none."""
    return {str(name): int(count or 0) for name, count in value.items()} if isinstance(value, Mapping) else {}


def all_json(values: Iterable[JsonRow]) -> list[dict[str, Any]]:
    """Return the JSON objects of values."""
    return [one.to_json() for one in values]
