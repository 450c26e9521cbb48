"""What explains a verdict: quantiles by phase, redeliveries, and whom breaks hit, from the stages' partial results."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import duckdb

from brokerdrill.analysis import measures
from brokerdrill.analysis.timeline import Timeline

# More ways than a reader can go through; the rest is left out, the most frequent first.
MOST_ROWS = 200

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "attribution": ("class", "fault", "fault_ns", "target", "instance", "client"),
    "redeliveries": ("flagged", "in_doubt", "client", "instance", "fault", "fault_ns", "target"),
}


def add_details(
    base: duckdb.DuckDBPyConnection, results: Mapping[int, dict[str, Any]], times: Mapping[int, Timeline]
) -> None:
    """Extend each run's verdict JSON by `phases` (`measures.phases_json`), `takeovers` (`Timeline.takeovers`: store,
    instance, other_instance that had served it before, t_ns), `attribution` (each way in which units broke: class,
    fault, fault_ns, target, instance, client, count) and `redeliveries` (each way in which messages were delivered
    again: flagged, in_doubt, client, instance, fault, fault_ns, target, count). `base` as for `series.series_of`."""
    phases: dict[int, list[Any]] = defaultdict(list)
    for run, *of in measures.by_phase(base):
        phases[run].append(of)
    ways = {name: _ways(base, name, fields) for name, fields in _FIELDS.items()}
    for run, result in results.items():
        result["phases"] = measures.phases_json(phases[run], times[run])
        result["takeovers"] = [
            {"store": one.store, "instance": one.instance, "other_instance": one.before, "t_ns": one.at}
            for one in times[run].takeovers
        ]
        for name, found in ways.items():
            rows = sorted(found[run], key=lambda row: (-row["count"], json.dumps(row, sort_keys=True)))
            result[name] = rows[:MOST_ROWS]


def _ways(base: duckdb.DuckDBPyConnection, name: str, fields: tuple[str, ...]) -> dict[int, list[dict[str, Any]]]:
    columns = ", ".join(fields)
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for run, *of in base.execute(f"SELECT run, {columns}, sum(n)::BIGINT FROM {name} GROUP BY ALL").fetchall():
        found[run].append(dict(zip((*fields, "count"), of, strict=True)))
    return found
