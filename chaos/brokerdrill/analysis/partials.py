"""Partial results: what tasks return to the driver. Each kind is declared once, beside the SQL that makes it.

A new column of a partial is one in its declaration and its query, and in who reads it (`needed_by`);
`tests/analysis/test_partials.py` holds the three against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb

from brokerdrill.analysis.columns import TableColumn, columns
from brokerdrill.analysis.kernel import Parcel, to_driver


@dataclass(frozen=True)
class Partial:
    """Rows of one `kind`, with these columns; `needed_by` names who reads them in the driver, below
    `brokerdrill.analysis`. `as_table`: they are put into a table of the driver's database that is called as the kind
    is."""

    kind: str
    text: str
    needed_by: tuple[str, ...]
    as_table: bool = True

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """The columns of all rows of this kind."""
        return columns(self.text)

    def by(self, sql: str, more: str = "") -> Query:
        """Return a query that makes such rows, those of this query with `more` columns."""
        query = Query(self, sql, more)
        _QUERIES.append(query)
        return query


@dataclass(frozen=True)
class Query:
    """SQL that makes rows of a partial of a partition's tables; `more` columns have no other query's rows."""

    partial: Partial
    sql: str
    more: str = ""

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """The columns of the rows that this query makes."""
        return (*self.partial.columns, *(columns(self.more) if self.more else ()))

    def of(self, base: duckdb.DuckDBPyConnection) -> Iterator[Parcel]:
        """Yield the partition's rows for the driver."""
        return to_driver(base, self.partial.kind, self.sql)


_DECLARED: dict[str, Partial] = {}
_QUERIES: list[Query] = []


def declare(kind: str, text: str, *needed_by: str, as_table: bool = True) -> Partial:
    """Declare a kind of partial results, once; `text` names its columns (`columns.columns`)."""
    if kind in _DECLARED:
        raise ValueError(f"the partial {kind} is declared twice")
    _DECLARED[kind] = Partial(kind, text, needed_by, as_table)
    return _DECLARED[kind]


def declared() -> Mapping[str, Partial]:
    """Return the partials that the imported modules declare, by kind."""
    return _DECLARED


def queries() -> list[Query]:
    """Return the queries of all partials that the imported modules make."""
    return list(_QUERIES)
