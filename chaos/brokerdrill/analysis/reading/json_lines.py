"""Rows of JSON Lines: by the block, and line by line where something is wrong, to say what."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from brokerdrill.analysis.reading.rows import OP_SCHEMA, CheckedRows, Piece, Problem
from brokerdrill.analysis.reading.valid import INT32, INT64, NOT_JSON, checked, row_problem
from brokerdrill.ledger.contract import OP_COLUMNS, Column


def parse(block: bytes, piece: Piece) -> CheckedRows:
    """Return the rows of a block of JSON Lines. What the fast and strict reader does not take, or what is not valid, is
    read line by line, to say why."""
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


def _by_line(block: bytes, piece: Piece) -> CheckedRows:
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
    return CheckedRows(pa.table(good, schema=OP_SCHEMA), problems)


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
    most = INT32 if kind == "int" else INT64
    return isinstance(value, int) and not isinstance(value, bool) and -most <= value < most
