"""From what is wrong with rows and operations to one sentence a run that names the file and the line or column."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from brokerdrill.analysis.load import SPOOLED, Run
from brokerdrill.analysis.reading.valid import NOT_JSON
from brokerdrill.analysis.stages import Partials
from brokerdrill.ledger import spool
from brokerdrill.ledger.contract import OPS_DIR

# A run is refused for its first problem; a few more are looked at to find which that is.
_LOOKED_AT = 20


def refused(runs: Sequence[Run], first: Partials) -> dict[int, str]:
    """Return, by the run's number, the sentence for which a run is refused; torn last lines are none. `first` has the
    partial results of stage 1."""
    rows = _rows(first, "problem")
    conflicts = _rows(first, "conflict")
    sentences = {}
    for run in runs:
        found = {
            _sentence(run, row["file"], row["problem"], row["raw"])
            for row in [*(problem._asdict() for problem in run.problems), *rows[run.number]][:_LOOKED_AT]
            if not (row["problem"] == NOT_JSON and row["raw"] == run.tails.get(row["file"]))
        }
        # What an operation lacks may be what one of its rows that is wrong itself would have said.
        found = found or {_conflict(run, row) for row in conflicts[run.number][:_LOOKED_AT]}
        if found:
            sentences[run.number] = min(found)
    return sentences


def _rows(first: Partials, kind: str) -> Mapping[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for one in first.get(kind, ()):
        for row in one.to_pylist():
            found[row["run"]].append(row)
    return found


def _sentence(run: Run, file: str, problem: str, raw: str | None) -> str:
    """One sentence: file, line where there is one, and the problem."""
    if raw is None:
        return f"{run.folder.name}/{file}: {problem}"
    line = next((number for number, text in enumerate(run.folder.lines(file), start=1) if text == raw), 0)
    return f"{run.folder.name}/{file}, line {line}: {problem}"


def _conflict(run: Run, row: Mapping[str, Any]) -> str:
    """A problem of several rows of one operation: name where the last of them is."""
    sentence = f"operation {row['op_id']} of {row['client']}: {row['problem']}"
    for file in sorted(run.files[OPS_DIR], reverse=True):
        if file.endswith(SPOOLED):
            lines = list(_lines_of(run, file, row["client"], row["op_id"]))
            if lines:
                return f"{run.folder.name}/{file}, line {lines[-1]}: {sentence}"
    return f"{run.folder.name}/{OPS_DIR}: {sentence}"


def _lines_of(run: Run, file: str, client: str, op_id: int) -> Iterator[int]:
    rows_by_line = _by_spool_line if file.endswith(spool.SUFFIX) else _by_line
    for number, rows in rows_by_line(run.folder.lines(file)):
        if any((row.get("client"), row.get("op_id")) == (client, op_id) for row in rows):
            yield number


def _by_line(lines: Iterable[str]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The row of each line of JSON, by the line's number."""
    for number, text in enumerate(lines, start=1):
        with suppress(ValueError):
            value = json.loads(text)
            yield number, [value] if isinstance(value, dict) else []


def _by_spool_line(lines: Iterable[str]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The rows of each line of a spool, by the line's number."""
    numbered = enumerate(lines, start=1)
    header = spool.Header.parse(next(numbered, (1, ""))[1])
    for number, text in numbered:
        with suppress(ValueError, IndexError, TypeError, KeyError):
            names, rows = spool.expand(json.loads(text), header)
            yield number, [dict(zip(names, values, strict=True)) for values in rows]
