"""Which rows are valid: the rules for their values, as SQL over a table and as Python for one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from brokerdrill.analysis.columns import ARROW
from brokerdrill.analysis.reading.details import detail_problem
from brokerdrill.analysis.reading.rows import CheckedRows, Piece, Problem
from brokerdrill.ledger.contract import ALERT_VALUES, OP_COLUMNS, PHASE_VALUES, POOL_VALUES, ROLES, Column

NOT_JSON = "is not JSON"
# A row may amend an earlier one and leave out what that one said, but not whose operation it is.
EACH_OP_ROW = ("run_id", "clock", "client", "op_id")
# 36 years: a time beyond it is none since a run's start, and sums of such times would overflow.
LATEST_NS = 1 << 60
INT32, INT64 = 1 << 31, 1 << 63


def literal(text: str) -> str:
    """A text in SQL."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"


def _conditions(run_id: str) -> list[tuple[str, str]]:
    """(condition, problem) of each rule for a row's values, both SQL, as is `run_id`, what the row's must be; the first
    that applies is returned."""
    found = [(f"{name} IS NULL", f"'{name} is missing'") for name in EACH_OP_ROW]
    for column in OP_COLUMNS:
        if column.values:
            values = ", ".join(map(literal, column.values))
            found.append(
                (
                    f"{column.name} NOT IN ({values})",
                    f"'{column.name} has the unknown value ''' || {column.name} || ''''",
                )
            )
    times = ("start_ns", "end_ns", "expires_ns")
    found += [(f"{name} < 0", f"'{name} is negative'") for name in times]
    found += [(f"{name} > {LATEST_NS}", f"'{name} is later than any run'") for name in times]
    found.append(("end_ns < start_ns", "'end_ns is before start_ns'"))
    sentence = f"'run_id is ''' || run_id || ''', but run.json''s is ''' || {run_id} || ''''"
    found.append((f"run_id <> {run_id}", sentence))
    return found


def _any_of(conditions: Iterable[tuple[str, str]]) -> str:
    return " OR ".join(f"({condition})" for condition, _ in conditions)


def invalid(run_id: str) -> str:
    """Return the condition that a row which is not valid meets; of a valid one it may be null."""
    return _any_of(_conditions(literal(run_id)))


def are_valid(base: duckdb.DuckDBPyConnection, rows: str, run_id: str) -> bool:
    """Whether all rows of a query (`as_sql`) are valid, and their texts UTF-8."""
    # DuckDB sees a text that is none when it reads all of it.
    texts = ", ".join(f'"{column.name}"' for column in OP_COLUMNS if column.type == "string")
    with suppress(duckdb.InvalidInputException):
        query = f"SELECT count(*) FILTER ({invalid(run_id)}), bit_xor(hash({texts})) FROM ({rows})"
        found = base.execute(query).fetchone()
        wrong = found[0] if found else 0
        return not wrong
    return False


@cache
def _checking() -> duckdb.DuckDBPyConnection:
    """A database for small questions: to open one takes longer than most blocks."""
    return duckdb.connect(config={"threads": 1})


def all_valid(table: pa.Table, run_ids: pa.Array) -> bool:
    """Whether all rows of Parquet, of one file or of many, are valid; `run_ids`: what each row's must be."""
    for column in OP_COLUMNS:
        found = table.column(column.name)
        if found.type != ARROW[column.type] or (column.type == "string" and _texts(found) is not None):
            return False
    base = _checking().cursor()
    try:
        base.register("given", table.append_column("own_run_id", run_ids))
        wrong = base.execute(f"SELECT count(*) FROM given WHERE {_any_of(_conditions('own_run_id'))}").fetchone()
    finally:
        base.close()
    return wrong == (0,)


def checked(table: pa.Table, piece: Piece) -> CheckedRows:
    """Return the rows of Parquet that are valid, and the problems of the others."""
    problems: list[Problem] = []
    bad_types = []
    for column in OP_COLUMNS:
        found = table.column(column.name)
        if found.type != ARROW[column.type]:
            place = table.schema.get_field_index(column.name)
            if alike(found.type, column):
                fits = _fits(found, column)
                bad_types.append((column.name, fits, f"column {column.name} is out of range"))
                table = table.set_column(place, column.name, _fitting(found, fits, column))
            else:
                none = pa.nulls(len(table), ARROW[column.type])
                bad_types.append(
                    (
                        column.name,
                        found.is_null(),
                        f"column {column.name} is of a wrong type, not {column.type}",
                    )
                )
                table = table.set_column(place, column.name, none)
        elif column.type == "string" and (text := _texts(found)) is not None:
            place = table.schema.get_field_index(column.name)
            bad_types.append((column.name, text, f"column {column.name} has a value that is not UTF-8"))
            table = table.set_column(place, column.name, pc.if_else(text, found, None))
    keep = None
    for _, fine, sentence in bad_types:
        n = len(table) - (pc.sum(fine).as_py() or 0)
        if n:
            problems.append(Problem(piece.run, piece.file, sentence, None, n))
            keep = fine if keep is None else pc.and_(keep, fine)
    if keep is not None:
        table = table.filter(keep)
    base = _checking().cursor()
    try:
        base.register("given", table)
        anything = invalid(piece.run_id)
        (count,) = base.execute(f"SELECT count(*) FROM given WHERE {anything}").fetchone() or (0,)
        if count:
            conditions = _conditions(literal(piece.run_id))
            case = " ".join(f"WHEN {condition} THEN {sentence}" for condition, sentence in conditions)
            rows = base.execute(
                f"SELECT CASE {case} END AS problem, count(*) FROM given WHERE {anything} GROUP BY problem"
            ).fetchall()
            problems += [Problem(piece.run, piece.file, sentence, None, n) for sentence, n in rows]
            table = base.sql(f"SELECT * FROM given WHERE NOT coalesce({anything}, false)").to_arrow_table()
    finally:
        base.close()
    return CheckedRows(table, problems)


def alike(kind: pa.DataType, column: Column) -> bool:
    """Whether a Parquet column of this type may hold the contract's: text, integers, booleans, or nothing at all."""
    if pa.types.is_null(kind):
        return True
    if column.type == "string":
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
    if column.type in ("long", "int"):
        return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))
    return bool(column.type == "boolean" and pa.types.is_boolean(kind))


def _texts(found: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Which values of a column of strings are UTF-8, as not each writer of Parquet sees to; None: all."""
    with suppress(pa.ArrowInvalid):
        found.validate(full=True)
        return None
    return pa.chunked_array([[_decodes(value) for value in found.cast(pa.binary()).to_pylist()]])


def _decodes(value: bytes | None) -> bool:
    with suppress(UnicodeDecodeError):
        (value or b"").decode()
        return True
    return False


def _fits(found: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    low, high = (-INT32, INT32 - 1) if column.type == "int" else (-INT64, INT64 - 1)
    values = found.cast(pa.decimal128(38, 0))
    inside = pc.and_(
        pc.greater_equal(values, pa.scalar(low, pa.decimal128(38, 0))),
        pc.less_equal(values, pa.scalar(high, pa.decimal128(38, 0))),
    )
    return pc.fill_null(inside, True)


def _fitting(found: pa.ChunkedArray, fits: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    return pc.if_else(fits, found, pa.scalar(None, found.type)).cast(ARROW[column.type])


def row_problem(row: Mapping[str, Any], columns: Sequence[Column], run_id: str) -> str | None:
    """Return what is wrong with the values of one row of `columns` (None: nothing), the first rule that applies."""
    is_op = columns is OP_COLUMNS
    for column in columns:
        if row[column.name] is None and (column.name in EACH_OP_ROW if is_op else column.required):
            return f"{column.name} is missing"
    for column in columns:
        if column.values and row[column.name] is not None and row[column.name] not in column.values:
            return f"{column.name} has the unknown value '{row[column.name]}'"
    times = ("start_ns", "end_ns", "expires_ns") if is_op else ("t_ns", "uncertainty_ns")
    for name in times:
        if row[name] is not None and row[name] < 0:
            return f"{name} is negative"
    for name in times:
        if row[name] is not None and row[name] > LATEST_NS:
            return f"{name} is later than any run"
    if is_op:
        if row["end_ns"] is not None and row["start_ns"] is not None and row["end_ns"] < row["start_ns"]:
            return "end_ns is before start_ns"
    else:
        values = {"role": ROLES, "pool": POOL_VALUES, "phase": PHASE_VALUES, "alert": ALERT_VALUES}.get(row["kind"])
        if values is not None and row["value"] not in values:
            value = "null" if row["value"] is None else row["value"]
            return f"value of a {row['kind']} event is '{value}', unknown"
        if problem := detail_problem(row):
            return problem
    if row["run_id"] != run_id:
        return f"run_id is '{row['run_id']}', but run.json's is '{run_id}'"
    return None
