"""`brokerdrill analyze`: from run directories to their verdicts, and to the series that the report draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from brokerdrill.analysis import verdict
from brokerdrill.analysis.details import explained
from brokerdrill.analysis.files import remote_runs_of, runs_of
from brokerdrill.analysis.judge import Judging, Ledger, database
from brokerdrill.analysis.load import Run, load
from brokerdrill.analysis.measures import bucket_ns
from brokerdrill.analysis.problems import refused
from brokerdrill.analysis.series import series_of
from brokerdrill.analysis.sources import source_of
from brokerdrill.analysis.spark import using
from brokerdrill.analysis.stories import with_stories
from brokerdrill.analysis.sums import Sums
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.contract import EVENTS_DIR, LEFT_BEHIND, OPS_DIR, PromiseSpec
from brokerdrill.ledger.series import Series
from brokerdrill.ledger.verdict import RunVerdict, Verdict


def analyze(
    run_dirs: Sequence[Path | str], promises: Sequence[PromiseSpec] | None = None, master: str | None = None
) -> Verdict:
    """Return the verdict on runs, whose `to_json` is the contract's JSON object.

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
) -> tuple[Verdict, dict[str, Series]]:
    """As `analyze`; returns its verdict and, by run_id, the series of each run that can be read."""
    if not run_dirs:
        raise UsageError("no run directory is given")
    run_dirs = runs_of(run_dirs)
    with using(master) as spark:
        return _analyzed(spark, run_dirs, promises, with_series=with_series)


def _analyzed(
    spark: SparkSession, run_dirs: Sequence[Path | str], promises: Sequence[PromiseSpec] | None, *, with_series: bool
) -> tuple[Verdict, dict[str, Series]]:
    run_dirs = remote_runs_of(spark, run_dirs)
    runs, errors = load(spark, run_dirs)
    checked: dict[int, tuple[PromiseSpec, ...]] = {}
    for run in runs:
        try:
            checked[run.number] = verdict.checked(run.info, promises, f"{run.folder.name}/run.json")
        except UsageError as error:
            errors[run.number] = str(error)
    good = [run for run in runs if run.number not in errors]
    results: dict[int, RunVerdict] = {}
    drawn: dict[int, Series] = {}
    if good:
        source, parts = source_of(spark, good, spark.sparkContext.defaultParallelism)
        ledger = Ledger(
            runs={run.number: run.info for run in good},
            promises={run.number: checked[run.number] for run in good},
            events={run.number: run.events for run in good},
            clocks={run.number: run.clocks for run in good},
            parts=parts,
            series=with_series,
            lacking=Sums(good).of,
        )
        with Judging(spark, source, ledger) as judging:
            errors |= refused(good, judging.check())
            good = [run for run in good if run.number not in errors]
            if good:
                results, drawn = judged(judging, good, with_series=with_series)
    if len(run_dirs) == 1 and errors:
        raise UsageError(errors[0])
    verdicts = [
        verdict.unreadable(str(run_dir), errors[place]) if place in errors else results[place]
        for place, run_dir in enumerate(run_dirs)
    ]
    return verdict.together(verdicts), {run.info.run_id: drawn[run.number] for run in good if run.number in drawn}


def judged(
    judging: Judging, good: Sequence[Run], *, with_series: bool
) -> tuple[dict[int, RunVerdict], dict[int, Series]]:
    """Return the verdict, with what explains it, and the series of each run in `good`, by number."""
    found = judging.finish(lambda unplaced: _doubts(good, unplaced), [run.number for run in good])
    times = {run.number: found.times[run.number] for run in good}
    drawn: dict[int, Series] = {}
    with database(found.partials, {run: bucket_ns(one.run_end) for run, one in times.items()}) as base:
        results = explained(base, {run.number: found.results[run.number] for run in good}, times)
        if with_series:
            drawn = series_of(base, times, results)
    runs = {run.number: run.info for run in good}
    return with_stories(results, runs, times, judging.look_up, follows=judging.follows), drawn


def _doubts(runs: Sequence[Run], unplaced: frozenset[int]) -> tuple[dict[int, frozenset[str]], dict[int, list[str]]]:
    """Which promises of each run cannot pass, and the notes that say why."""
    doubts: dict[int, frozenset[str]] = {}
    notes: dict[int, list[str]] = {}
    for run in runs:
        doubted: frozenset[str] = frozenset()
        said = [f"it ended early: {event.value}" for event in run.events if event.kind == "abort" and event.value]
        said += [event.value for event in run.events if event.name == LEFT_BEHIND and event.value]
        if run.torn.get(OPS_DIR):
            doubted |= verdict.DOUBTED_BY_OPS
        if run.torn.get(EVENTS_DIR):
            doubted |= verdict.DOUBTED_BY_EVENTS
        if run.torn_files:
            said.append(f"skipped {len(run.torn_files)} torn last line(s): {', '.join(run.torn_files)}")
        if run.number in unplaced or run.unplaced:
            doubted |= verdict.DOUBTED_BY_CLOCKS
            said.append(
                "some rows are of a clock that run.json does not place: promises that compare times cannot pass"
            )
        doubts[run.number], notes[run.number] = doubted, said
    return doubts, notes
