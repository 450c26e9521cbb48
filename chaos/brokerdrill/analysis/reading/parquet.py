"""Rows of Parquet: read by DuckDB itself where the columns are of the contract's types, brought to them where not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from brokerdrill.analysis.columns import ARROW
from brokerdrill.analysis.reading.rows import Piece
from brokerdrill.analysis.reading.valid import alike, literal
from brokerdrill.ledger.contract import OP_COLUMNS

_SQL_TYPES = {"string": "VARCHAR", "long": "BIGINT", "int": "INTEGER", "boolean": "BOOLEAN"}


def as_sql(piece: Piece) -> str | None:
    """Return a query of a Parquet piece's rows with the contract's columns, for DuckDB to read the file itself, which
    takes a quarter of the time of the way by Arrow. None: it is no Parquet, or a column is not of the contract's type,
    as `conform` and `checked` take it."""
    if not piece.path.endswith(".parquet"):
        return None
    with pq.ParquetFile(piece.path, pre_buffer=False) as file:
        schema = file.schema_arrow
        groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    # DuckDB's names have no case.
    if len({name.lower() for name in schema.names}) < len(schema.names):
        return None
    columns = []
    for column in OP_COLUMNS:
        if column.name in schema.names:
            if schema.field(column.name).type != ARROW[column.type]:
                return None
            columns.append(f'"{column.name}"')
        else:
            columns.append(f'NULL::{_SQL_TYPES[column.type]} AS "{column.name}"')
    # A path may hold what means something in a pattern of paths.
    path = literal(re.sub(r"([\[*?])", r"[\1]", piece.path))
    query = f"SELECT {', '.join(columns)} FROM read_parquet({path}, file_row_number = true, hive_partitioning = false)"
    if (piece.begin, piece.end) == (0, len(groups)):
        return query
    begin, end = sum(groups[: piece.begin]), sum(groups[: piece.end])
    return f"{query} WHERE file_row_number >= {begin} AND file_row_number < {end}"


def conform(table: pa.Table) -> pa.Table:
    """Return a table of Parquet with each column of the contract's type where its values allow that; the driver has
    checked the types themselves (`load`)."""
    columns = []
    for column in OP_COLUMNS:
        wanted = ARROW[column.type]
        if column.optional and column.name not in table.column_names:
            columns.append(pa.chunked_array([pa.nulls(len(table), wanted)]))
            continue
        found = table.column(column.name)
        if pa.types.is_dictionary(found.type):
            found = found.cast(found.type.value_type)
        if found.type != wanted:
            with suppress(pa.ArrowInvalid):
                found = found.cast(wanted) if alike(found.type, column) else found
        columns.append(found)
    return pa.table(columns, names=[column.name for column in OP_COLUMNS])


def divided(pieces: Iterable[Piece]) -> tuple[list[tuple[Piece, str]], list[Piece]]:
    """Return the pieces that DuckDB reads itself, with their queries (`as_sql`), and those that `read` reads."""
    queries = [(piece, as_sql(piece)) for piece in pieces]
    return [(piece, rows) for piece, rows in queries if rows is not None], [
        piece for piece, rows in queries if rows is None
    ]
