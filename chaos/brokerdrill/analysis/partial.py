"""A partial result: what a stage tells the driver, declared beside the SQL that makes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from brokerdrill.analysis.kernel import Parcel, to_driver


@dataclass(frozen=True)
class Partial:
    """Rows of the kind `name`, with `columns` (`name type, ...`), that `query` makes of a partition's tables."""

    name: str
    columns: str
    query: str

    def of(self, base: duckdb.DuckDBPyConnection) -> Iterator[Parcel]:
        """Yield the partition's rows for the driver."""
        return to_driver(base, self.name, self.query)
