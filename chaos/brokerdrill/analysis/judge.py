"""Judge many runs in one Spark job: operations and events in, one JSON object of the verdict a run out."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from brokerdrill.analysis import verdict
from brokerdrill.analysis.events import place_events, timelines
from brokerdrill.analysis.frames import Frames, frames
from brokerdrill.analysis.large import large_frames, operations, scan
from brokerdrill.analysis.promises import apart, available, check_all, failover_within
from brokerdrill.analysis.spark import cut
from brokerdrill.analysis.tables import clocks, tables
from brokerdrill.analysis.units import good_ops, merge_rows, ops_ends, with_transactions
from brokerdrill.ledger import CLASSES_SHOWN, PromiseSpec, RunInfo

# More than a report can show; the rest is counted, not listed.
MOST_ROWS = 1000

# Promises whose checks look at units that are in no doubt themselves.
WHOLE = frozenset({"atomic"})

Specs = Mapping[str, Sequence[PromiseSpec]]


def judge(
    spark: SparkSession,
    ops: DataFrame,
    events: DataFrame,
    runs: Mapping[str, RunInfo],
    promises: Specs,
    *,
    large: bool = False,
) -> dict[str, dict[str, Any]]:
    """Return the JSON object of each run of `runs`, by its key, which is the `run_id` of its rows in `ops` and
    `events`. `large`: by the way of a large ledger.

    `ops` and `events` have the contract's columns, unmerged and valid. `promises` are each run's promises to check,
    in the order of the output (`verdict.checked` makes them).
    """
    clock = clocks(spark, runs)
    if large:
        scanned = scan(ops, clock)
        merged, _ = operations(ops, clock, scanned)
        times, _ = timelines(place_events(events, clock), runs, {row.run_id: row.ops_end for row in scanned.runs})
        small = tables(spark, runs, promises, times)
        return judge_frames(large_frames(merged, small, scanned, whole=needs_whole(promises)), runs, promises)
    staged = cut(with_transactions(cut(merge_rows(ops, clock))))
    ends = {row.run_id: row.ops_end for row in ops_ends(staged).collect()}
    times, _ = timelines(place_events(events, clock), runs, ends)
    return judge_frames(frames(good_ops(staged), tables(spark, runs, promises, times)), runs, promises)


def needs_whole(promises: Specs) -> bool:
    """Whether a promise is to be checked that has to look at every message, plain or not."""
    return any(spec.name in WHOLE for specs in promises.values() for spec in specs)


def judge_frames(
    made: Frames,
    runs: Mapping[str, RunInfo],
    promises: Specs,
    doubts: Mapping[str, frozenset[str]] | None = None,
    notes: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, dict[str, Any]]:
    """As `judge`, from what the promises look at. `doubts` names, by run, promises that cannot pass, `notes` what to
    say of the input."""
    names = {spec.name for specs in promises.values() for spec in specs}
    collected: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for rows in _rows(made, names):
        for row in rows.collect():
            collected[row.run_id][row.kind].append(row)
    return {
        key: _assemble(
            run, promises[key], collected[key], (doubts or {}).get(key, frozenset()), (notes or {}).get(key, ())
        )
        for key, run in runs.items()
    }


def _rows(made: Frames, names: set[str]) -> list[DataFrame]:
    """All results, small whatever the ledger's size: rows of kind `class` (value, n, flagged, in_doubt), `promise`
    (spec, n, excused, evidence, doubt, measured, payload: witnesses as JSON), `failover` and `outage` (payload: JSON).
    """
    asked = apart(names) if made.large else [names]
    results = [_classes(made), *(_promises(made, some) for some in asked), _failover(made)]
    if available.NAME in names:
        results.append(_outages(made))
    return made.together(results)


def _classes(made: Frames) -> DataFrame:
    counted = made.units.groupBy("run_id", F.col("class").alias("value"), "flagged", "in_doubt").agg(
        F.count("*").alias("n")
    )
    plain = made.plain_counts
    if plain is not None:
        ok = plain.select("run_id", F.lit("ok").alias("value"), F.col("n"))
        counted = counted.unionByName(ok, allowMissingColumns=True)
    return counted.withColumn("kind", F.lit("class"))


def _promises(made: Frames, names: set[str]) -> DataFrame:
    """Counts and the worst witnesses of each promise of each run."""
    breaks = F.col("breaks")
    # One row a promise for all that breaks nothing, so that a run that keeps its promises hands on a handful of rows
    # and the marks, which cost all the work, are made once.
    told = (
        check_all(made, names)
        .where("breaks or excused or evidence or doubt or measured is not null")
        .groupBy(
            "run_id",
            "spec",
            "breaks",
            F.when(breaks, F.col("weight")).alias("weight"),
            F.when(breaks, F.col("witness")).alias("witness"),
        )
        .agg(
            F.count_if(breaks).alias("n"),
            F.count_if("excused").alias("excused"),
            F.max("evidence").alias("evidence"),
            F.max("doubt").alias("doubt"),
            F.max("measured").alias("measured"),
        )
    )
    worst = Window.partitionBy("run_id", "spec").orderBy(breaks.desc(), F.col("weight").desc(), "witness")
    shown = breaks & (F.col("place") <= verdict.WITNESSES)
    return (
        told.withColumn("place", F.row_number().over(worst))
        .groupBy("run_id", "spec")
        .agg(
            F.sum("n").alias("n"),
            F.sum("excused").alias("excused"),
            F.max("evidence").alias("evidence"),
            F.max("doubt").alias("doubt"),
            F.max("measured").alias("measured"),
            F.collect_list(F.when(shown, F.struct("place", "witness"))).alias("best"),
        )
        .withColumn("payload", F.to_json(F.transform(F.sort_array("best"), lambda w: w["witness"])))
        .withColumn("kind", F.lit("promise"))
        .drop("best")
    )


def _limited(rows: DataFrame, *order: str) -> DataFrame:
    place = Window.partitionBy("run_id").orderBy(*order)
    return rows.withColumn("place", F.row_number().over(place)).where(F.col("place") <= MOST_ROWS)


def _failover(made: Frames) -> DataFrame:
    rows = _limited(failover_within.split(made), "t_ns", "client")
    fields = [name for name in rows.columns if name not in ("run_id", "place")]
    return rows.select("run_id", F.lit("failover").alias("kind"), F.to_json(F.struct(*fields)).alias("payload"))


def _outages(made: Frames) -> DataFrame:
    rows = _limited(available.outages(made), "gap_from", "address", "side")
    payload = F.struct(
        F.col("gap_from").alias("start_ns"),
        F.col("gap_to").alias("end_ns"),
        F.col("f_name").alias("fault"),
        F.coalesce("f_instance", "f_target").alias("target"),
        "address",
        "side",
    )
    return rows.select("run_id", F.lit("outage").alias("kind"), F.to_json(payload).alias("payload"))


_FAILOVER_FIELDS = (
    "fault",
    "instance",
    "store",
    "t_ns",
    "client",
    "detection_ms",
    "activation_ms",
    "first_send_ms",
    "first_delivery_ms",
)
_OUTAGE_FIELDS = ("start_ns", "end_ns", "fault", "target", "address", "side")


def _payloads(rows: Sequence[Row], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Parse the rows' JSON, which leaves nulls out: every field is there."""
    parsed = [json.loads(row.payload) for row in rows]
    return [{field: value.get(field) for field in fields} for value in parsed]


def _assemble(
    run: RunInfo,
    specs: Sequence[PromiseSpec],
    rows: Mapping[str, Sequence[Row]],
    doubts: frozenset[str],
    notes: Sequence[str],
) -> dict[str, Any]:
    """Put one run's result rows into the verdict's JSON."""
    if rows.get("clock"):
        doubts = doubts | verdict.DOUBTED_BY_CLOCKS
        notes = [
            *notes,
            "some rows are of a clock that run.json does not place; promises that compare times cannot pass",
        ]
    counts = dict.fromkeys(CLASSES_SHOWN, 0)
    split = {"flagged": 0, "unflagged": 0, "in_doubt": 0, "not_in_doubt": 0}
    for row in rows.get("class", ()):
        counts[row.value] += row.n
        if row.value == "redelivered":
            split["flagged" if row.flagged else "unflagged"] += row.n
            split["in_doubt" if row.in_doubt else "not_in_doubt"] += row.n
    by_spec: dict[int, list[Row]] = defaultdict(list)
    for row in rows.get("promise", ()):
        by_spec[row.spec].append(row)
    promises = []
    for index, spec in enumerate(specs):
        found = by_spec[index]
        measured = [row.measured for row in found if row.measured is not None]
        promises.append(
            verdict.promise_json(
                spec,
                run.expect.get(spec.name, "kept"),
                count=sum(row.n for row in found),
                excused=sum(row.excused for row in found),
                evidence=any(row.evidence for row in found),
                doubt=spec.name in doubts or any(row.doubt for row in found),
                measured=max(measured, default=None),
                witnesses=[json.loads(w) for row in found for w in json.loads(row.payload or "[]")],
            )
        )
    failover = _payloads(rows.get("failover", ()), _FAILOVER_FIELDS)
    outages = _payloads(rows.get("outage", ()), _OUTAGE_FIELDS)
    return verdict.run_json(
        run,
        promises,
        messages=counts,
        redelivered=split,
        failover=sorted(failover, key=lambda row: (row["t_ns"], row["client"])),
        outages=sorted(outages, key=lambda row: (row["start_ns"], row["address"], row["side"])),
        notes=notes,
    )
