"""Tables of AMQP 0-9-1 (specification 4.2.5.5, with RabbitMQ's types) as their bytes: read as far as is needed, and
added to. A client's types, and texts that are no UTF-8, stay as they are.

What comes first counts where a name is there twice, as in RabbitMQ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from amqp_session_router.amqp.frames import SYNTAX_ERROR, ProtocolError, long, short

Simple = str | bool
"""Values of a table's fields that are written."""

_FIXED = {
    kind: width
    for width, kinds in ((0, b"V"), (1, b"tbB"), (2, b"su"), (4, b"Iif"), (8, b"LldT"), (5, b"D"))
    for kind in kinds
}
"""Bytes of the values of types that have a fixed length; all others have a length of four bytes before them."""
_TEXT, _BYTES, _TABLE, _ARRAY, _BOOLEAN = b"SxFAt"
_NESTING = 64
"""The deepest table or array that is read."""


class Field(NamedTuple):
    """A field of a table: where its value begins and ends, its length included if it has one."""

    name: bytes
    kind: int
    start: int
    end: int


def fields(inside: bytes) -> list[Field]:
    """Return the fields of a table's inside in their order, doubled ones too; raises ProtocolError if it is none."""
    try:
        return _fields(inside, 0, len(inside), _NESTING)
    except IndexError:
        raise ProtocolError(SYNTAX_ERROR, "a table cannot be read") from None


def _fields(data: bytes, at: int, end: int, nesting: int) -> list[Field]:
    found = []
    while at < end:
        start = at + 1 + data[at]
        name, kind = data[at + 1 : start], data[start]
        at = _behind(data, kind, start + 1, end, nesting)
        found.append(Field(name, kind, start + 1, at))
    return found


def _behind(data: bytes, kind: int, start: int, end: int, nesting: int) -> int:
    """Return where a value ends; raises IndexError where that is not within `end`, and for what is no type."""
    width = _FIXED.get(kind)
    if width is None and kind not in (_TEXT, _BYTES, _TABLE, _ARRAY):
        raise IndexError
    behind = start + (4 + int.from_bytes(data[start : start + 4]) if width is None else width)
    if behind > end or not nesting or (width is None and start + 4 > end):
        raise IndexError
    if kind == _TABLE:
        _fields(data, start + 4, behind, nesting - 1)
    elif kind == _ARRAY:
        at = start + 4
        while at < behind:
            at = _behind(data, data[at], at + 1, behind, nesting - 1)
    return behind


def first(inside: bytes, name: bytes) -> Field | None:
    """Return the first field of this name, None if there is none; raises ProtocolError."""
    return next((field for field in fields(inside) if field.name == name), None)


def text(inside: bytes, name: bytes) -> bytes | None:
    """Return the first field of this name if it is a text, None if there is none; raises ProtocolError."""
    found = first(inside, name)
    return inside[found.start + 4 : found.end] if found is not None and found.kind == _TEXT else None


def true(inside: bytes, table: bytes, name: bytes) -> bool:
    """Return whether in the field `table`, which is a table, the field `name` is the boolean true."""
    outer = first(inside, table)
    if outer is None or outer.kind != _TABLE:
        return False
    within = inside[outer.start + 4 : outer.end]
    inner = first(within, name)
    return inner is not None and inner.kind == _BOOLEAN and within[inner.start] != 0


def common(insides: Sequence[bytes]) -> bytes:
    """Return the table of what all of some tables say alike; of their `version` the least, of their `capabilities` what
    all have. A client that goes by it takes none of them for more than it is. Raises ProtocolError."""
    one, *others = insides
    if all(other == one for other in others):
        return one
    tables = [
        {field.name: (field.kind, inside[field.start : field.end]) for field in fields(inside)} for inside in insides
    ]
    kept = b""
    for name, (kind, value) in tables[0].items():
        said = [table[name] for table in tables if name in table]
        if len(said) < len(tables):
            continue
        if kind == _TABLE and all(other[0] == _TABLE for other in said):
            value = long(common([other[1][4:] for other in said]))
        elif name == b"version":
            kind, value = min(said, key=lambda other: _version(other[1][4:]))
        elif any(other != (kind, value) for other in said):
            continue
        kept += short(name) + bytes((kind,)) + value
    return kept


def _version(said: bytes) -> list[int]:
    return [int(part) for part in re.findall(rb"\d+", said)]


# --- additions --------------------------------------------------------------------------------------------------------


def _layout(inside: bytes) -> tuple[frozenset[bytes], tuple[int, int] | None]:
    """Return a table's names, and the bounds of the value of its table `capabilities` (None: it has none)."""
    found = fields(inside)
    places = ((one.start, one.end) for one in found if one.name == b"capabilities" and one.kind == _TABLE)
    return frozenset(one.name for one in found), next(places, None)


def _without(inside: bytes, names: frozenset[bytes]) -> bytes:
    """Return the table without the fields of these names."""
    kept, begin = b"", 0
    for field in fields(inside):
        if field.name not in names:
            kept += inside[begin : field.end]
        begin = field.end
    return kept


def add_properties(inside: bytes, capabilities: Mapping[str, Simple], properties: Mapping[str, Simple]) -> bytes:
    """Return the table with `properties` in place of any fields of these names, and `capabilities` merged into its own.

    The other fields stay byte for byte: a client's types are not the decoder's.
    """
    before, behind = _around(inside, tuple(capabilities.items()), tuple(properties))
    return before + b"".join([_field(name, value) for name, value in properties.items()]) + behind


# The sessions of one application mostly have equal properties. Tables with passwords do not come here.
@lru_cache(maxsize=64)
def _around(inside: bytes, capabilities: tuple[tuple[str, Simple], ...], names: tuple[str, ...]) -> tuple[bytes, bytes]:
    """Return what stands before and behind the properties of these names that are added to a table."""
    present, place = _layout(inside)
    if forged := present.intersection(name.encode() for name in names):
        inside = _without(inside, forged)
        present, place = _layout(inside)
    if place is not None and capabilities:
        start, end = place
        inner = _add_missing(inside[start + 4 : end], capabilities)
        return inside[:start] + long(inner) + inside[end:], b""
    if b"capabilities" in present or not capabilities:
        return inside, b""
    return inside, short("capabilities") + b"F" + long(_add_missing(b"", capabilities))


def _add_missing(inside: bytes, added: Iterable[tuple[str, Simple]]) -> bytes:
    """Return the table with those of `added` that it does not have."""
    present, _ = _layout(inside)
    return inside + b"".join([_field(name, value) for name, value in added if name.encode() not in present])


def _field(name: str, value: Simple) -> bytes:
    return short(name) + (b"S" + long(value.encode()) if isinstance(value, str) else b"t\x01" if value else b"t\x00")
