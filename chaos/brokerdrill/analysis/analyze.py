"""`brokerdrill analyze`: from run directories to the JSON of the contract, and to the series that the report draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from brokerdrill.analysis import verdict
from brokerdrill.analysis.activity import activity
from brokerdrill.analysis.details import add_details
from brokerdrill.analysis.events import place_events, timelines
from brokerdrill.analysis.files import ledger_bytes, remote_runs_of, runs_of
from brokerdrill.analysis.frames import Frames, frames
from brokerdrill.analysis.judge import judge_frames, needs_whole
from brokerdrill.analysis.large import large_frames, operations, scan
from brokerdrill.analysis.load import Loaded, Run, load
from brokerdrill.analysis.measures import histogram
from brokerdrill.analysis.problems import problem_rows, refused
from brokerdrill.analysis.series import series_of, widths
from brokerdrill.analysis.spark import cut, gather, is_large, keep, session
from brokerdrill.analysis.tables import Tables, clocks, tables
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.analysis.units import good_ops, merge_rows, ops_ends, with_transactions
from brokerdrill.errors import UsageError
from brokerdrill.ledger import EVENTS_DIR, OPS_DIR, PromiseSpec, RunInfo


def analyze(
    run_dirs: Sequence[Path | str], promises: Sequence[PromiseSpec] | None = None, master: str | None = None
) -> dict[str, Any]:
    """Return the JSON object of the contract: a run's for one run directory, `{"verdict", "as_expected", "runs"}` for
    several.

    `run_dirs` are local paths or Hadoop-compatible URIs, of runs or of folders of many runs; `promises` replaces the
    promises that run.json lists (no_phantoms is always checked); `master` is Spark's (default: two local cores). Raises
    UsageError where a single run cannot be read; among several such a run is there with `error` and verdict unknown.
    """
    return analyze_with_series(run_dirs, promises, master, with_series=False)[0]


def analyze_with_series(
    run_dirs: Sequence[Path | str],
    promises: Sequence[PromiseSpec] | None = None,
    master: str | None = None,
    *,
    with_series: bool = True,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """As `analyze`; returns its JSON and, by run_id, the series of each run that can be read (`series.series_of`)."""
    if not run_dirs:
        raise UsageError("no run directory is given")
    run_dirs = runs_of(run_dirs)
    size = ledger_bytes(run_dirs)
    spark = session(master, size)
    run_dirs = remote_runs_of(spark, run_dirs)
    loaded = load(spark, run_dirs)
    errors = dict(loaded.errors)
    checked: dict[str, tuple[PromiseSpec, ...]] = {}
    for run in loaded.runs:
        try:
            checked[run.key] = verdict.checked(run.info, promises, f"{run.folder.name}/run.json")
        except UsageError as error:
            errors[int(run.key)] = str(error)
    ready = _prepare(spark, loaded, errors, large=is_large(size))
    if len(run_dirs) == 1 and errors:
        raise UsageError(errors[0])
    good = {run.key: run.info for run in loaded.runs if int(run.key) not in errors}
    results: dict[str, dict[str, Any]] = {}
    drawn: dict[str, dict[str, Any]] = {}
    if good:
        times = {key: ready.times[key] for key in good}
        doubts, notes = _doubts(loaded.runs, ready.unplaced)
        asked = {key: checked[key] for key in good}
        made = ready.make(tables(spark, good, asked, times), needs_whole(asked), list(good))
        results = judge_frames(made, good, checked, doubts, notes)
        bins = histogram(made, times, widths(times) if with_series else None)
        add_details(results, made, good, times, loaded.ops, bins)
        if with_series:
            drawn = series_of(bins, activity(made, widths(times)), times, results)
    runs = [
        verdict.unreadable(str(run_dir), errors[place]) if place in errors else results[f"{place:06d}"]
        for place, run_dir in enumerate(run_dirs)
    ]
    return (runs[0] if len(run_dirs) == 1 else verdict.several(runs)), {
        info.run_id: drawn[key] for key, info in good.items() if key in drawn
    }


class _Ready:
    """The promises' frames from the small tables, the runs' timelines, and which runs have times on unplaced clocks."""

    def __init__(
        self,
        make: Callable[[Tables, bool, Sequence[str]], Frames],
        times: Mapping[str, Timeline],
        unplaced: frozenset[str],
    ) -> None:
        self.make = make
        self.times = times
        self.unplaced = unplaced


def _only(ops: DataFrame, runs: Sequence[str], all_runs: int) -> DataFrame:
    return ops if len(runs) == all_runs else ops.where(F.col("run_id").isin(*runs))


def _prepare(spark: SparkSession, loaded: Loaded, errors: dict[int, str], *, large: bool) -> _Ready:
    """Merge the operations, and find what is wrong with any row: `errors` gets a sentence for each bad run."""
    infos: dict[str, RunInfo] = {run.key: run.info for run in loaded.runs}
    clock = clocks(spark, infos)
    events = loaded.events
    make: Callable[[Tables, bool, Sequence[str]], Frames]
    problems: list[Row]
    if not large:
        # The join with its own transactions would else read and merge all rows twice.
        staged = cut(with_transactions(cut(gather(merge_rows(loaded.ops, clock)))))
        ends = ops_ends(staged.where(F.col("_problem").isNull()))
        summary = problem_rows(staged).unionByName(ends, allowMissingColumns=True)
        rows = summary.unionByName(problem_rows(events), allowMissingColumns=True).collect()
        problems = [row for row in rows if row.problem is not None]
        told = [row for row in rows if row.problem is None]
        ops = good_ops(staged)

        def make(small: Tables, whole: bool, good: Sequence[str]) -> Frames:
            return frames(_only(ops, good, len(infos)), small)
    else:
        # The columns of Parquet are read again for each question; lines are parsed once.
        raw = keep(loaded.ops) if loaded.has_lines else loaded.ops
        scanned = scan(raw, clock)
        merged, conflicts = operations(raw, clock, scanned)
        told = list(scanned.runs)
        problems = [*scanned.problems, *conflicts.unionByName(problem_rows(events)).collect()]

        def make(small: Tables, whole: bool, good: Sequence[str]) -> Frames:
            return large_frames(_only(merged, good, len(infos)), small, scanned, whole=whole)

    for key, sentence in refused(problems, loaded).items():
        errors.setdefault(int(key), sentence)
    placed = place_events(events.where(F.col("_problem").isNull()), clock)
    times, unplaced = timelines(placed, infos, {row.run_id: row.ops_end for row in told})
    return _Ready(make, times, unplaced | {row.run_id for row in told if row.unplaced})


def _doubts(runs: Sequence[Run], unplaced: frozenset[str]) -> tuple[dict[str, frozenset[str]], dict[str, list[str]]]:
    """Which promises of each run cannot pass, and the notes that say why."""
    doubts: dict[str, frozenset[str]] = {}
    notes: dict[str, list[str]] = {}
    for run in runs:
        doubted: frozenset[str] = frozenset()
        said = []
        if run.torn.get(OPS_DIR):
            doubted |= verdict.DOUBTED_BY_OPS
        if run.torn.get(EVENTS_DIR):
            doubted |= verdict.DOUBTED_BY_EVENTS
        if run.torn_files:
            said.append(f"skipped {len(run.torn_files)} torn last line(s): {', '.join(run.torn_files)}")
        if run.key in unplaced:
            doubted |= verdict.DOUBTED_BY_CLOCKS
            said.append(
                "some rows are of a clock that run.json does not place: promises that compare times cannot pass"
            )
        doubts[run.key], notes[run.key] = doubted, said
    return doubts, notes
