"""What is read of a ledger's files: pieces of them, valid rows as Arrow tables, and what is wrong with the others.

A row with a problem stays apart: one clear sentence names the file and the line (JSON Lines) or the column (Parquet).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from brokerdrill.analysis.columns import ARROW
from brokerdrill.ledger.contract import OP_COLUMNS

# What the stages use of an operation's columns.
RAW = tuple(c for c in OP_COLUMNS if c.name not in ("run_id", "producer_seq", "protocol", "error"))
OP_SCHEMA = pa.schema([(column.name, ARROW[column.type]) for column in OP_COLUMNS])
RAW_SCHEMA = pa.schema([("run", pa.int32()), *((column.name, ARROW[column.type]) for column in RAW)])
# Values by column: a row that has none of them is not asked for.
Only = Mapping[str, pa.Array]
# Those of all columns: a row that has none of them anywhere is not asked for either.
Wanted = frozenset[Any]


class Piece(NamedTuple):
    """Part of a local file of operations: a Parquet file's row groups `begin` to `end`, or of JSON Lines the lines that
    begin in these bytes. `run` is the run's number, `run_id` what its rows must say, `file` its path in the run,
    `header` the first line of a spool that Spark reads."""

    run: int
    run_id: str
    file: str
    path: str
    begin: int
    end: int
    header: str | None = None


class Problem(NamedTuple):
    """What is wrong with `n` rows of a file; `raw` is the first such line (None: Parquet)."""

    run: int
    file: str
    problem: str
    raw: str | None
    n: int = 1


@dataclass
class CheckedRows:
    """Valid rows (`OP_SCHEMA`) and the problems of others."""

    table: pa.Table
    problems: list[Problem] = field(default_factory=list)


def having(table: pa.Table, only: Only) -> pa.Table:
    """Return the rows of a table, as `conform` makes it, that have one of the values in `only`. A column that is not of
    the contract's type leaves nothing out: what it says is judged by `checked`."""
    keep: pa.ChunkedArray | None = None
    for name, values in only.items():
        found = table.column(name)
        if found.type != OP_SCHEMA.field(name).type:
            return table
        one = pc.is_in(found, values)
        keep = one if keep is None else pc.or_(keep, one)
    return table.slice(0, 0) if keep is None else table.filter(keep)


def raw(table: pa.Table, run: int) -> pa.Table:
    """Return valid rows as the stages take them: with the run's number, without the columns that they do not use."""
    numbers = pa.array(np.full(len(table), run, np.int32))
    return pa.table([numbers, *(table.column(column.name) for column in RAW)], schema=RAW_SCHEMA)
