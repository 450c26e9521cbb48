"""Stage 0: the rows of a ledger's files as valid Arrow tables, and what is wrong with the others.

Local files are read by the task itself, in pieces; what Spark reads (other file systems) comes as batches. A row with
a problem stays apart: one clear sentence names the file and the line (JSON Lines) or the column (Parquet).
"""

from __future__ import annotations

import gc
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from brokerdrill.ledger import spool
from brokerdrill.ledger.contract import ALERT_VALUES, OP_COLUMNS, PHASE_VALUES, POOL_VALUES, ROLES, Column

ARROW = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "map": pa.map_(pa.string(), pa.string()),
}
NOT_JSON = "is not JSON"
# A row may amend an earlier one and leave out what that one said, but not whose operation it is.
EACH_OP_ROW = ("run_id", "clock", "client", "op_id")
# 36 years: a time beyond it is none since a run's start, and sums of such times would overflow.
LATEST_NS = 1 << 60
# So much of JSON Lines is parsed at a time, and so many rows of Parquet are taken.
_BLOCK = 8 << 20
_ROWS = 200_000
_INT32, _INT64 = 1 << 31, 1 << 63

# What the stages use of an operation's columns.
RAW = tuple(c for c in OP_COLUMNS if c.name not in ("run_id", "producer_seq", "protocol", "error", "via"))
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
class Rows:
    """Valid rows (`OP_SCHEMA`) and the problems of others."""

    table: pa.Table
    problems: list[Problem] = field(default_factory=list)


def read(pieces: Iterable[Piece], only: Only | None = None) -> Iterator[tuple[Piece, Rows]]:
    """Yield the rows of the pieces, some at a time; of Parquet and spools only those that have one of the values in
    `only`. Without it an operation's rows that a spool has near each other come as one."""
    wanted = None if only is None else frozenset(chain.from_iterable(values.to_pylist() for values in only.values()))
    for piece in pieces:
        if piece.path.endswith(".parquet"):
            with pq.ParquetFile(piece.path, pre_buffer=False) as file:
                groups = list(range(piece.begin, piece.end))
                there = set(file.schema_arrow.names)
                names = [column.name for column in OP_COLUMNS if column.name in there]
                for batch in file.iter_batches(_ROWS, row_groups=groups, columns=names):
                    table = conform(pa.Table.from_batches([batch]))
                    if only is not None:
                        table = having(table, only)
                    if len(table):
                        yield piece, checked(table, piece)
        elif piece.path.endswith(spool.SUFFIX):
            with Path(piece.path).open("rb") as file:
                own = piece._replace(header=file.readline().decode("utf-8", "replace"))
            for block in blocks(piece):
                rows = parse_spool(block, own, wanted)
                yield piece, rows if only is None else Rows(having(rows.table, only), rows.problems)
        else:
            for block in blocks(piece):
                yield piece, parse(block, piece)


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


def blocks(piece: Piece) -> Iterator[bytes]:
    """Yield the whole lines that begin in the piece's bytes."""
    with Path(piece.path).open("rb") as file:
        position = piece.begin
        if position:
            file.seek(position - 1)
            position += len(file.readline()) - 1
        while position < piece.end:
            block = file.read(min(_BLOCK, piece.end - position))
            if not block:
                return
            if not block.endswith(b"\n"):
                block += file.readline()
            position += len(block)
            yield block


# --- Parquet --------------------------------------------------------------------------------------------------------

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
    path = _literal(re.sub(r"([\[*?])", r"[\1]", piece.path))
    query = f"SELECT {', '.join(columns)} FROM read_parquet({path}, file_row_number = true, hive_partitioning = false)"
    if (piece.begin, piece.end) == (0, len(groups)):
        return query
    begin, end = sum(groups[: piece.begin]), sum(groups[: piece.end])
    return f"{query} WHERE file_row_number >= {begin} AND file_row_number < {end}"


def divided(pieces: Iterable[Piece]) -> tuple[list[tuple[Piece, str]], list[Piece]]:
    """Return the pieces that DuckDB reads itself, with their queries (`as_sql`), and those that `read` reads."""
    queries = [(piece, as_sql(piece)) for piece in pieces]
    return [(piece, rows) for piece, rows in queries if rows is not None], [
        piece for piece, rows in queries if rows is None
    ]


def invalid(run_id: str) -> str:
    """Return the condition that a row which is not valid meets; of a valid one it may be null."""
    return _any_of(_conditions(_literal(run_id)))


def _any_of(conditions: Iterable[tuple[str, str]]) -> str:
    return " OR ".join(f"({condition})" for condition, _ in conditions)


def _literal(text: str) -> str:
    """A text in SQL."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"


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


def alike(kind: pa.DataType, column: Column) -> bool:
    """Whether a Parquet column of this type may hold the contract's: text, integers, booleans, or nothing at all."""
    if pa.types.is_null(kind):
        return True
    if column.type == "string":
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
    if column.type in ("long", "int"):
        return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))
    return bool(column.type == "boolean" and pa.types.is_boolean(kind))


def _conditions(run_id: str) -> list[tuple[str, str]]:
    """(condition, problem) of each rule for a row's values, both SQL, as is `run_id`, what the row's must be; the first
    that applies is told."""
    found = [(f"{name} IS NULL", f"'{name} is missing'") for name in EACH_OP_ROW]
    for column in OP_COLUMNS:
        if column.values:
            values = ", ".join(map(_literal, column.values))
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
    told = f"'run_id is ''' || run_id || ''', but run.json''s is ''' || {run_id} || ''''"
    found.append((f"run_id <> {run_id}", told))
    return found


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


def checked(table: pa.Table, piece: Piece) -> Rows:
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
    for _, fine, told in bad_types:
        n = len(table) - (pc.sum(fine).as_py() or 0)
        if n:
            problems.append(Problem(piece.run, piece.file, told, None, n))
            keep = fine if keep is None else pc.and_(keep, fine)
    if keep is not None:
        table = table.filter(keep)
    base = _checking().cursor()
    try:
        base.register("given", table)
        anything = invalid(piece.run_id)
        (count,) = base.execute(f"SELECT count(*) FROM given WHERE {anything}").fetchone() or (0,)
        if count:
            conditions = _conditions(_literal(piece.run_id))
            case = " ".join(f"WHEN {condition} THEN {told}" for condition, told in conditions)
            rows = base.execute(
                f"SELECT CASE {case} END AS problem, count(*) FROM given WHERE {anything} GROUP BY problem"
            ).fetchall()
            problems += [Problem(piece.run, piece.file, told, None, n) for told, n in rows]
            table = base.sql(f"SELECT * FROM given WHERE NOT coalesce({anything}, false)").to_arrow_table()
    finally:
        base.close()
    return Rows(table, problems)


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
    low, high = (-_INT32, _INT32 - 1) if column.type == "int" else (-_INT64, _INT64 - 1)
    values = found.cast(pa.decimal128(38, 0))
    inside = pc.and_(
        pc.greater_equal(values, pa.scalar(low, pa.decimal128(38, 0))),
        pc.less_equal(values, pa.scalar(high, pa.decimal128(38, 0))),
    )
    return pc.fill_null(inside, True)


def _fitting(found: pa.ChunkedArray, fits: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    return pc.if_else(fits, found, pa.scalar(None, found.type)).cast(ARROW[column.type])


# --- JSON Lines -----------------------------------------------------------------------------------------------------


def parse(block: bytes, piece: Piece) -> Rows:
    """Return the rows of a block of JSON Lines. What the fast and strict reader does not take, or what is not valid, is
    read line by line, which tells why."""
    try:
        block.decode()
        table = pj.read_json(
            io.BytesIO(block),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(len(block), 1024) + 1),
            parse_options=pj.ParseOptions(explicit_schema=OP_SCHEMA, unexpected_field_behavior="ignore"),
        )
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return _by_line(block, piece)
    rows = checked(table, piece)
    return _by_line(block, piece) if rows.problems else rows


def _by_line(block: bytes, piece: Piece) -> Rows:
    good: dict[str, list[Any]] = {column.name: [] for column in OP_COLUMNS}
    problems: list[Problem] = []
    for line in block.decode("utf-8", "replace").split("\n"):
        if not line.strip():
            continue
        row, problem = parse_line(line, OP_COLUMNS, piece.run_id)
        if problem is not None:
            problems.append(Problem(piece.run, piece.file, problem, line))
        else:
            for name, values in good.items():
                values.append(row[name])
    return Rows(pa.table(good, schema=OP_SCHEMA), problems)


# --- spools ---------------------------------------------------------------------------------------------------------

_NO_SPOOL = "is no line of a spool"
# With so many wrong lines a run is refused, whatever the others say.
MOST_PROBLEMS = 20
_WRONG = (ValueError, IndexError, TypeError, KeyError, AttributeError, OverflowError, pa.ArrowInvalid)


def parse_spool(block: bytes, piece: Piece, wanted: Wanted | None = None) -> Rows:
    """Return the rows of a block of a spool's lines, whose header the piece has, and of them only those that have one
    of the values in `wanted`. As `parse`: what the fast reader does not take is divided until the lines are found that
    are wrong."""
    lines = [line for line in block.decode("utf-8", "replace").split("\n") if line.strip()]
    try:
        header = spool.Header.parse(piece.header or "")
    except ValueError:
        return _no_header(lines, piece)
    # The file's first line is in one of its blocks.
    lines = [line for line in lines if line.strip() != (piece.header or "").strip()]
    with _collector_off():
        return _spool_rows(lines, header, piece, wanted)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Spare the search for cycles among the hundred thousands of tuples that a block's rows are for a moment: there are
    none, and it takes as long as all the rest."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _no_header(lines: Sequence[str], piece: Piece) -> Rows:
    """A spool without a header tells nothing; that its writer was killed in it leaves a torn line."""
    told = NOT_JSON if len(lines) == 1 else "is no header of a spool"
    return Rows(OP_SCHEMA.empty_table(), [Problem(piece.run, piece.file, told, lines[0])] if lines else [])


def _asked(lines: Iterable[Sequence[Any]], header: spool.Header, wanted: Wanted) -> Iterator[spool.Rows]:
    """The rows with one of the values in `wanted`, as they were written. Most lines have none, and are not worth
    columns of Arrow."""
    for line in lines:
        names, rows = spool.expand(line, header)
        if found := [row for row in rows if not wanted.isdisjoint(row)]:
            yield spool.Rows(names, found)


def _together(lines: Iterable[Sequence[Any]], header: spool.Header) -> Iterator[spool.Rows]:
    """The rows that the lines say; an intent and its completion as one, which is half of what the stages would have to
    merge."""
    waiting: dict[tuple[Any, ...], spool.Rows] = {}
    for line in lines:
        found = spool.expand(line, header)
        if not found.rows:
            continue
        # Whose operations these are.
        place = (*found.rows[0][:2], len(found.rows))
        earlier = waiting.pop(place, None)
        if line[0] in spool.INTENTS:
            waiting[place] = found
            if earlier is not None:
                yield earlier
        elif earlier is None:
            yield found
        elif joined := _joined(earlier, found):
            yield joined
        else:
            yield from (earlier, found)
    yield from waiting.values()


@cache
def _parts(intent: tuple[str, ...], end: tuple[str, ...]) -> tuple[list[int], list[tuple[int, int]]]:
    """Where in an intent's row stands what its completion does not say, and where in both what must be the same."""
    more = [n for n, name in enumerate(intent) if name not in end]
    same = [
        (n, end.index(name)) for n, name in enumerate(intent) if name in end and name not in ("outcome", "start_ns")
    ]
    return more, same


def _joined(intents: spool.Rows, ends: spool.Rows) -> spool.Rows | None:
    """Return the rows of operations from their intents and completions, None where that takes more than the rules'
    simplest case: they say the same, and the intent's time, which is then the operation's, is no later."""
    more, same = _parts(intents.names, ends.names)
    start, end = ends.names.index("start_ns"), ends.names.index("end_ns")
    begun = intents.names.index("start_ns")
    rows = []
    for intent, done in zip(intents.rows, ends.rows, strict=True):
        if not intent[begun] <= done[start] <= done[end] or any(intent[a] != done[b] for a, b in same):
            return None
        rows.append((*done[:start], intent[begun], *done[start + 1 :], *(intent[n] for n in more)))
    return spool.Rows((*ends.names, *(intents.names[n] for n in more)), rows)


def _expanded(lines: Sequence[Sequence[Any]], header: spool.Header, wanted: Wanted | None) -> pa.Table:
    """The rows that the lines say, those that fill the same columns together. Raises one of _WRONG."""
    alike_rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for names, rows in _together(lines, header) if wanted is None else _asked(lines, header, wanted):
        alike_rows.setdefault(names, []).extend(rows)
    tables = [OP_SCHEMA.empty_table()]
    for names, rows in alike_rows.items():
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        filled = []
        for column in OP_SCHEMA:
            if column.name in columns:
                filled.append(pa.array(columns[column.name], column.type))
            elif column.name in ("run_id", "clock"):
                value = header.run_id if column.name == "run_id" else header.clock
                filled.append(pa.repeat(pa.scalar(value, column.type), len(rows)))
            else:
                filled.append(pa.nulls(len(rows), column.type))
        tables.append(pa.table(filled, schema=OP_SCHEMA))
    return pa.concat_tables(tables)


def _spool_rows(lines: Sequence[str], header: spool.Header, piece: Piece, wanted: Wanted | None) -> Rows:
    """Return the rows of `lines`; where something is wrong, of each half by itself, down to the line that is it."""
    rows = None
    with suppress(*_WRONG):
        rows = checked(_expanded(json.loads(f"[{','.join(lines)}]"), header, wanted), piece)
    if rows is not None and not rows.problems:
        return rows
    if len(lines) > 1:
        middle = len(lines) // 2
        first = _spool_rows(lines[:middle], header, piece, wanted)
        if len(first.problems) >= MOST_PROBLEMS:
            return first
        second = _spool_rows(lines[middle:], header, piece, wanted)
        return Rows(pa.concat_tables([first.table, second.table]), [*first.problems, *second.problems])
    (line,) = lines
    if rows is not None:
        return Rows(rows.table, [problem._replace(raw=line) for problem in rows.problems])
    return Rows(OP_SCHEMA.empty_table(), [Problem(piece.run, piece.file, _why_no_line(line), line)])


def _why_no_line(text: str) -> str:
    try:
        json.loads(text)
    except ValueError:
        return NOT_JSON
    return _NO_SPOOL


# --- lines and their values -----------------------------------------------------------------------------------------


def parse_line(line: str, columns: Sequence[Column], run_id: str) -> tuple[dict[str, Any], str | None]:
    """Return the columns of one JSON line (absent ones None) and what is wrong with it (None: nothing)."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}, NOT_JSON
    if not isinstance(value, dict):
        return {}, "is no JSON object"
    row = {column.name: value.get(column.name) for column in columns}
    for column in columns:
        if row[column.name] is not None and not _is_of(row[column.name], column.type):
            return {}, f"{column.name} is of a wrong type, not {column.type}"
    return row, row_problem(row, columns, run_id)


def _is_of(value: object, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "map":
        return isinstance(value, dict)
    most = _INT32 if kind == "int" else _INT64
    return isinstance(value, int) and not isinstance(value, bool) and -most <= value < most


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
            told = "null" if row["value"] is None else row["value"]
            return f"value of a {row['kind']} event is '{told}', unknown"
    if row["run_id"] != run_id:
        return f"run_id is '{row['run_id']}', but run.json's is '{run_id}'"
    return None


def raw(table: pa.Table, run: int) -> pa.Table:
    """Return valid rows as the stages take them: with the run's number, without the columns that they do not use."""
    numbers = pa.array(np.full(len(table), run, np.int32))
    return pa.table([numbers, *(table.column(column.name) for column in RAW)], schema=RAW_SCHEMA)
