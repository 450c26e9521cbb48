"""What explains a verdict: quantiles by phase, takeovers, redeliveries, and whom breaks hit, from the stages' partial
results."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import duckdb

from brokerdrill.analysis import measures
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.ledger.verdict import Attribution, Redelivery, RunVerdict

# More ways than a reader can go through; the rest is left out, the most frequent first.
MOST_ROWS = 200
Way = TypeVar("Way", Attribution, Redelivery)


def explained(
    base: duckdb.DuckDBPyConnection, results: Mapping[int, RunVerdict], times: Mapping[int, Timeline]
) -> dict[int, RunVerdict]:
    """Return each run's verdict with its phases, its takeovers, and each way in which units broke or were delivered
    again, the most frequent first. `base` as for `series.series_of`."""
    rows: dict[int, list[Any]] = defaultdict(list)
    for run, *of in measures.by_phase(base):
        rows[run].append(of)
    broken = _ways(
        base,
        Attribution,
        "SELECT run, class, fault, fault_ns, target, instance, client, sum(n)::BIGINT FROM attribution GROUP BY ALL",
    )
    again = _ways(
        base,
        Redelivery,
        "SELECT run, flagged, in_doubt, client, instance, fault, fault_ns, target, sum(n)::BIGINT FROM redeliveries "
        "GROUP BY ALL",
    )
    return {
        run: replace(
            result,
            phases=measures.phases(rows[run], times[run]),
            takeovers=times[run].takeovers,
            attribution=_most_frequent(broken[run]),
            redeliveries=_most_frequent(again[run]),
        )
        for run, result in results.items()
    }


def _ways(base: duckdb.DuckDBPyConnection, kind: type[Way], query: str) -> dict[int, list[Way]]:
    """The rows of a query, whose columns after the run are the fields of `kind`, by run."""
    found: dict[int, list[Way]] = defaultdict(list)
    for run, *of in base.execute(query).fetchall():
        found[run].append(kind(*of))
    return found


def _most_frequent(ways: list[Way]) -> tuple[Way, ...]:
    ways.sort(key=lambda way: (-way.count, json.dumps(way.to_json(), sort_keys=True)))
    return tuple(ways[:MOST_ROWS])
