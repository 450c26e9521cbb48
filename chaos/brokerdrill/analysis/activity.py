"""When clients were served and when their operations failed, for the report's timeline: few clients, by the bucket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import duckdb

from brokerdrill.analysis.clients import MOST_CLIENTS
from brokerdrill.ledger.series import ClientSpan

# A client that does little is not taken for one that waits.
SILENCE_NS = 1_000_000_000


class Active(NamedTuple):
    """A bucket in which a client ended an operation: served (one was ok), failed (how many were not)."""

    client: str
    start_ns: int
    served: bool
    failed: int


@dataclass
class Clients:
    """The clients of a run to look at, and how many (`count`) it has."""

    rows: list[Active] = field(default_factory=list)
    count: int = 0


def clients(base: duckdb.DuckDBPyConnection, widths: Mapping[int, int]) -> Mapping[int, Clients]:
    """Return each run's clients with most failures, then those with the longest time without an end of an operation,
    from the tables `active` and `busiest` (`clients._ACTIVITY`), in buckets of `widths` (ns)."""
    found: dict[int, Clients] = defaultdict(Clients)
    base.execute("CREATE TEMP TABLE bucket (run INT, width BIGINT)")
    if widths:
        base.executemany("INSERT INTO bucket VALUES (?, ?)", list(widths.items()))
    # Each partition returns how many clients it has on every row of its busiest ones.
    for run, count in base.execute(
        "SELECT run, sum(clients)::BIGINT FROM (SELECT DISTINCT run, place, clients FROM busiest) GROUP BY run"
    ).fetchall():
        found[run].count = count
    for run, *of in base.execute(
        f"""
        SELECT a.run, a.client, a.start_ns // w.width * w.width AS bucket_ns, bool_or(a.served), sum(a.failed)::BIGINT
        FROM active a JOIN bucket w USING (run) SEMI JOIN (
            SELECT run, client FROM busiest
            QUALIFY row_number() OVER (PARTITION BY run ORDER BY failures DESC, gap DESC NULLS LAST, client)
                <= {MOST_CLIENTS}) b ON a.run = b.run AND a.client = b.client
        GROUP BY a.run, a.client, bucket_ns
        """
    ).fetchall():
        found[run].rows.append(Active(*of))
    return found


def client_spans(rows: Iterable[Active], width: int) -> tuple[ClientSpan, ...]:
    """Return one run's rows, in buckets of `width` (ns), as spans by client and time. A time without a served operation
    counts as served if it is no longer than a second, or than four times what is usual for the client."""
    by_client: dict[str, list[Active]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.client, row.start_ns)):
        by_client[row.client].append(row)
    spans: list[ClientSpan] = []
    for client, own in by_client.items():
        starts = [row.start_ns for row in own if row.served]
        usual = median(b - a for a, b in pairwise(starts)) if len(starts) > 1 else 0
        near = max(SILENCE_NS, 4 * usual)
        # Where a client's last span of either kind stands.
        last: dict[str, int] = {}
        for row in own:
            for value, there, reach in (("served", row.served, near), ("failed", row.failed > 0, 0)):
                if not there:
                    continue
                place = last.get(value)
                if place is None or row.start_ns - spans[place].end_ns > reach:
                    last[value] = place = len(spans)
                    spans.append(ClientSpan(client, value, row.start_ns))
                failures = spans[place].failures + (row.failed if value == "failed" else 0)
                spans[place] = replace(spans[place], end_ns=row.start_ns + width, failures=failures)
    return tuple(spans)
