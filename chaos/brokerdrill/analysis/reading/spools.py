"""Rows of a worker's spool: its short lines expanded, an intent and its completion as one row."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import pyarrow as pa

from brokerdrill.analysis.reading.rows import OP_SCHEMA, CheckedRows, Piece, Problem, Wanted
from brokerdrill.analysis.reading.valid import NOT_JSON, checked
from brokerdrill.ledger import spool

_NO_SPOOL = "is no line of a spool"
# With so many wrong lines a run is refused, whatever the others say.
MOST_PROBLEMS = 20
_WRONG = (ValueError, IndexError, TypeError, KeyError, AttributeError, OverflowError, pa.ArrowInvalid)


def parse_spool(block: bytes, piece: Piece, wanted: Wanted | None = None) -> CheckedRows:
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


def _no_header(lines: Sequence[str], piece: Piece) -> CheckedRows:
    """A spool without a header cannot be read; that its writer was killed in it leaves a torn line."""
    problem = NOT_JSON if len(lines) == 1 else "is no header of a spool"
    return CheckedRows(OP_SCHEMA.empty_table(), [Problem(piece.run, piece.file, problem, lines[0])] if lines else [])


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


def _spool_rows(lines: Sequence[str], header: spool.Header, piece: Piece, wanted: Wanted | None) -> CheckedRows:
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
        return CheckedRows(pa.concat_tables([first.table, second.table]), [*first.problems, *second.problems])
    (line,) = lines
    if rows is not None:
        return CheckedRows(rows.table, [problem._replace(raw=line) for problem in rows.problems])
    return CheckedRows(OP_SCHEMA.empty_table(), [Problem(piece.run, piece.file, _why_no_line(line), line)])


def _why_no_line(text: str) -> str:
    try:
        json.loads(text)
    except ValueError:
        return NOT_JSON
    return _NO_SPOOL
