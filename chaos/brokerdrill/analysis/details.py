"""What explains a verdict: quantiles by phase, redeliveries, whom breaks and outages hit, and the witnesses' stories.

A run that keeps its promises pays for the quantiles alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from brokerdrill.analysis import attribution, measures, stories
from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.tables import table
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.ledger import RunInfo

# More ways than a reader can go through; the rest is left out, the most frequent first.
MOST_ROWS = 200

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "attribution": ("class", "fault", "fault_ns", "target", "instance", "client", "count"),
    "redeliveries": ("flagged", "in_doubt", "client", "instance", "fault", "fault_ns", "target", "count"),
}


def add_details(
    results: Mapping[str, dict[str, Any]],
    made: Frames,
    runs: Mapping[str, RunInfo],
    times: Mapping[str, Timeline],
    raw: DataFrame,
    bins: DataFrame,
) -> None:
    """Extend each run's verdict JSON by `phases` (`measures.phases_json`), `takeovers` (`Timeline.takeovers`: store,
    instance, other_instance that had served it before, t_ns), `redeliveries` (`attribution.redelivered`),
    `attribution` (`attribution.broken`), the clients and instances of its outages (`attribution.sides`) and its
    witnesses' stories (`stories.tell`).

    `raw` has the rows of the ledger's operations, `bins` is of `measures.histogram`.
    """
    found: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for part in made.together(_parts(results, made, bins)):
        for row in part.collect():
            found[row.run_id][row.what].append(row)
    for key, result in results.items():
        rows = found[key]
        result["phases"] = measures.phases_json(rows["phases"], times[key])
        result["takeovers"] = [
            {"store": one.store, "instance": one.instance, "other_instance": one.before, "t_ns": one.at}
            for one in times[key].takeovers
        ]
        for name, fields in _FIELDS.items():
            told = [json.loads(row.payload) for row in rows[name]]
            told.sort(key=lambda item: (-item["count"], json.dumps(item, sort_keys=True)))
            result[name] = [{field: item.get(field) for field in fields} for item in told]
        for row in rows["sides"]:
            who = json.loads(row.payload)
            outage = result["outages"][who.pop("place")]
            outage |= {name: who.get(name) for name in ("client", "instance", "next_client", "next_instance")}
    stories.tell(results, made, runs, times, raw)


def _parts(results: Mapping[str, Mapping[str, Any]], made: Frames, bins: DataFrame) -> list[DataFrame]:
    """The parts that there is something to tell of; `what` says of which a row is."""
    parts = [measures.by_phase(bins).withColumn("what", F.lit("phases"))]
    messages = [result["messages"] for result in results.values()]
    broken = sum(one[name] for one in messages for name in attribution.BROKEN)
    again = sum(one["redelivered"] + one["duplicated"] + one["corrupted"] for one in messages) + broken
    if broken:
        parts.append(_payload("attribution", attribution.broken(made, broken)))
    if again:
        parts.append(_payload("redeliveries", attribution.redelivered(made, again)))
    outages = [
        (key, place, row["side"], row["address"], row["start_ns"], row["end_ns"])
        for key, result in results.items()
        for place, row in enumerate(result["outages"])
    ]
    if outages:
        few = table(
            made.ops.sparkSession,
            outages,
            "run_id string, place int, side string, address string, start_ns long, end_ns long",
        )
        told = attribution.sides(made, few)
        payload = F.to_json(F.struct(*(name for name in told.columns if name != "run_id")))
        parts.append(told.select("run_id", F.lit("sides").alias("what"), payload.alias("payload")))
    return parts


def _payload(what: str, rows: DataFrame) -> DataFrame:
    """The most frequent of `rows` (with n) as JSON."""
    fields = [name for name in rows.columns if name not in ("run_id", "n")]
    place = Window.partitionBy("run_id").orderBy(F.col("n").desc(), *fields)
    payload = F.to_json(F.struct(*fields, F.col("n").alias("count")))
    return (
        rows.withColumn("place", F.row_number().over(place))
        .where(F.col("place") <= MOST_ROWS)
        .select("run_id", F.lit(what).alias("what"), payload.alias("payload"))
    )
