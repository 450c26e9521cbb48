"""Columns of small tables, declared as `name type` and where it has one the unit: `run int, since long ns`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

# The types, those of the ledger's contract among them.
ARROW = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "map": pa.map_(pa.string(), pa.string()),
}
UNITS = ("ns", "ms")


class TableColumn(NamedTuple):
    """A column: its type is one of `ARROW`, its unit one of `UNITS` ("": it counts, names or numbers something)."""

    name: str
    type: str
    unit: str = ""


def columns(text: str) -> tuple[TableColumn, ...]:
    """Return the columns that a text declares."""
    return tuple(TableColumn(*column.split()) for column in text.split(", "))


def table(rows: Iterable[Sequence[Any]], text: str) -> pa.Table:
    """Return `rows` as a table of the columns that `text` declares."""
    declared = columns(text)
    values = [tuple(row) for row in rows]
    return pa.table(
        [pa.array([row[place] for row in values], ARROW[column.type]) for place, column in enumerate(declared)],
        names=[column.name for column in declared],
    )
