"""From rows with a problem to one sentence a run that names the file and the line or column."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from brokerdrill.analysis.load import NOT_JSON, Loaded, Run

# A run is refused for its first problem; a few more are fetched to find which that is.
_FETCHED = 20


def problem_rows(staged: DataFrame) -> DataFrame:
    """The problems of merged operations (or of raw events, which have no `_conflict`), a few rows a run: run_id,
    problem, file, n, raw (a line with it), client and op_id (an operation with it)."""
    conflict = F.col("_conflict") if "_conflict" in staged.columns else F.lit(None).cast("string")
    who = (
        F.struct("client", F.col("op_id").alias("op_id"))
        if "client" in staged.columns
        else F.struct(F.lit(None).cast("string").alias("client"), F.lit(None).cast("bigint").alias("op_id"))
    )
    return (
        staged.select(
            "run_id", F.coalesce("_problem", conflict).alias("problem"), "_file", "_raw", "_line", who.alias("who")
        )
        .where(F.col("problem").isNotNull())
        .groupBy("run_id", "problem", F.col("_file").alias("file"))
        .agg(F.count("*").alias("n"), F.min_by("_raw", "_line").alias("raw"), F.min("who").alias("who"))
        .select("run_id", "problem", "file", "n", "raw", "who.client", "who.op_id")
    )


def refused(found: list[Row], loaded: Loaded) -> dict[str, str]:
    """Return, by run key, the sentence for which a run is refused; torn last lines are none."""
    by_run: dict[str, list[Row]] = {}
    for row in found:
        by_run.setdefault(row.run_id, []).append(row)
    runs = {run.key: run for run in loaded.runs}
    sentences = {}
    for key, rows in by_run.items():
        told = [row for row in rows if not _only_torn(row, runs[key])]
        # What an operation lacks may be what one of its rows that is wrong itself would have said.
        causes = [row for row in told if row.file is not None] or told
        if causes:
            sentences[key] = min(_sentence(row, runs[key], loaded) for row in causes[:_FETCHED])
    return sentences


def _name(row: Row, run: Run) -> str:
    """The problem's file as the run directory's paths have it."""
    path = unquote(row.file)
    return next((file for names in run.files.values() for file in names if path.endswith("/" + file)), path)


def _only_torn(row: Row, run: Run) -> bool:
    return row.file is not None and row.problem == NOT_JSON and row.n == 1 and _name(row, run) in run.torn_files


def _sentence(row: Row, run: Run, loaded: Loaded) -> str:
    """One sentence: file, line where there is one, and the problem."""
    if row.file is None:
        return _conflict(row, run, loaded)
    file = _name(row, run)
    if row.raw is None:
        return f"{run.folder.name}/{file}: {row.problem}"
    return f"{run.folder.name}/{file}, line {_line(run, file, row.raw)}: {row.problem}"


def _conflict(row: Row, run: Run, loaded: Loaded) -> str:
    """A problem of several rows of one operation: name where the last of them is."""
    rows = (
        loaded.ops.where((F.col("run_id") == run.key) & (F.col("client") == row.client) & (F.col("op_id") == row.op_id))
        .select("_src", "_text")
        .take(_FETCHED)
    )
    where: Mapping[str, str | None] = {unquote(one["_src"]): one["_text"] for one in rows}
    for path, text in sorted(where.items(), reverse=True):
        file = next((name for name in run.files["ops"] if path.endswith("/" + name)), path)
        line = "" if text is None else f", line {_line(run, file, text)}"
        return f"{run.folder.name}/{file}{line}: operation {row.op_id} of {row.client}: {row.problem}"
    return f"{run.folder.name}/ops: operation {row.op_id} of {row.client}: {row.problem}"


def _line(run: Run, file: str, text: str) -> int:
    """The number of the first line that is `text`."""
    return next((number for number, line in enumerate(run.folder.lines(file), start=1) if line == text), 0)
