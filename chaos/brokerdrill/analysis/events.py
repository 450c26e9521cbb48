"""From the rows of events to timelines: placed in run time, without repeats, and handed to the driver, since they are
few."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerdrill.analysis.timeline import Event, Timeline, timeline
from brokerdrill.ledger import RunInfo


def place_events(raw: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return the events that tell something, in run time and each once (a spooled file and its compacted copy may
    both be there): run_id, kind, target, instance, store, name, value, detail (sorted entries), at, u, placed (its
    clock is in run.json). Probes and health are left out but for those named `detected`, roles where they repeat
    the instance's last."""
    offset = F.coalesce("offset", F.lit(0))
    placed = (
        raw.where(~F.col("kind").isin("probe", "health") | (F.col("name") == "detected"))
        .join(F.broadcast(clocks), ["run_id", "clock"], "left")
        .select(
            "run_id",
            "kind",
            "target",
            "instance",
            "store",
            "name",
            "value",
            F.sort_array(F.map_entries("detail")).alias("detail"),
            (F.col("t_ns") + offset).alias("at"),
            (F.coalesce("uncertainty_ns", F.lit(0)) + F.coalesce("clock_u", F.lit(0))).alias("u"),
            F.col("offset").isNotNull().alias("placed"),
        )
        .distinct()
    )
    own = Window.partitionBy("run_id", "kind", "instance").orderBy("at", "value", "store", "u", "name", "target")
    repeat = (
        (F.col("kind") == "role")
        & F.col("instance").isNotNull()
        & F.lag("value").over(own).eqNullSafe(F.col("value"))
        & F.lag("store").over(own).eqNullSafe(F.col("store"))
        & (F.row_number().over(own) > 1)
    )
    return placed.withColumn("repeat", repeat).where(~F.col("repeat")).drop("repeat")


def timelines(
    placed: DataFrame, runs: Mapping[str, RunInfo], ends: Mapping[str, int | None]
) -> tuple[dict[str, Timeline], frozenset[str]]:
    """Return each run's `Timeline` from the placed events and the last times of the runs' operations (`ends`), and
    the runs with events whose clock run.json does not place."""
    found: dict[str, list[Event]] = defaultdict(list)
    unplaced = set()
    for row in placed.collect():
        if not row.placed:
            unplaced.add(row.run_id)
        found[row.run_id].append(
            Event(
                kind=row.kind,
                at=row.at,
                u=row.u,
                target=row.target,
                instance=row.instance,
                store=row.store,
                name=row.name,
                value=row.value,
                detail=tuple((entry.key, entry.value) for entry in row.detail or ()),
            )
        )
    return {key: timeline(found[key], run.stores, ends.get(key)) for key, run in runs.items()}, frozenset(unplaced)
