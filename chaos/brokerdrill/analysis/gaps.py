"""available and failback_within: the spans between successive successes of an address within a slice of the load.

The table `time` of stage 2 has the successes of each client and server in a slice as one list; all of a slice are in
one partition. NumPy sorts them, which takes a tenth of the time of a window over rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa

from brokerdrill.analysis.events import NEVER
from brokerdrill.analysis.kernel import Parcel, add
from brokerdrill.analysis.partials import declare
from brokerdrill.analysis.verdict import WITNESSES

# More outages than a report can show; the rest is counted, not listed.
MOST_ROWS = 1000
# So many slices are taken from DuckDB at a time.
_SLICES = 2048

_KEY = "run, side, number, address, slice"
# A slice with all its successes; `least`: the shortest bound that a promise sets a span of it.
_WHOLE = f"""
SELECT {_KEY}, coalesce(any_value(least), {NEVER}) AS least, flatten(list(moments)) AS moments
FROM "time" LEFT JOIN (SELECT run, side, min(bound) AS least FROM specs WHERE name = 'available' GROUP BY ALL) b
USING (run, side) GROUP BY {_KEY}
"""
_EMPTY = """
CREATE TEMP TABLE slices (run INT, side TEXT, number INT, address TEXT, slice BIGINT, first BIGINT, last BIGINT,
                          longest BIGINT);
CREATE TEMP TABLE gaps (run INT, side TEXT, number INT, address TEXT, slice BIGINT, gap_from BIGINT, gap_to BIGINT);
"""
_OUTAGES = """
CREATE TEMP TABLE outage AS
SELECT g.run, p.spec, g.side, g.number, g.address, g.slice, g.gap_from, g.gap_to
FROM gaps g JOIN specs p ON g.run = p.run AND p.name = 'available' AND p.side = g.side
    AND g.gap_to - g.gap_from > p.bound;
CREATE TEMP TABLE shown AS FROM outage
QUALIFY row_number() OVER (PARTITION BY run, spec, number, address ORDER BY gap_from - gap_to, gap_from)
        <= {most_witnesses}
     OR row_number() OVER (PARTITION BY run, spec, number, address ORDER BY gap_from) <= {most_rows};
"""
_COUNTS = declare("outages", "run int, spec int, number int, address string, n long", "checks.Findings").by(
    "SELECT run, spec, number, address, count(*) AS n FROM outage GROUP BY ALL"
)
_FOUND = declare(
    "slice",
    "run int, side string, number int, address string, slice long, first long ns, last long ns, longest long ns",
    "checks.Findings",
).by("FROM slices")
_SHOWN = declare(
    "outage",
    "run int, spec int, side string, number int, address string, gap_from long ns, gap_to long ns",
    "checks.Findings",
).by("SELECT * EXCLUDE (slice) FROM shown")
# Who was served at the ends of slices and of outages.
_SIDES = declare(
    "side",
    "run int, side string, address string, moment long ns, client string, server string",
    "judge._who",
    as_table=False,
).by(f"""
SELECT run, side, address, moment, who.client AS client, who.server AS server FROM (
SELECT t.run, t.side, t.address, e.moment, min({{'client': t.client, 'server': t.server}}) AS who
FROM "time" t JOIN (
    SELECT {_KEY}, unnest([first, last]) AS moment FROM slices WHERE side <> 'failback'
    UNION SELECT {_KEY}, unnest([gap_from, gap_to]) FROM shown) e
ON t.run = e.run AND t.side = e.side AND t.number = e.number AND t.address = e.address AND t.slice = e.slice
    AND list_contains(t.moments, e.moment)
GROUP BY t.run, t.side, t.address, e.moment)
""")


def spans(whole: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return of slices (`moments`: list of ns, `least`: ns, and columns that tell them apart) first, last and longest
    span (null: one success), and of their spans longer than `least` gap_from and gap_to; each with those columns."""
    keys = whole.drop_columns(["moments", "least"])
    lists = whole.column("moments").combine_chunks()
    values, ends = lists.flatten().to_numpy(), lists.value_lengths().to_numpy().cumsum()
    first, last, longest = [], [], []
    rows, starts, stops = [], [], []
    begin = 0
    for row, (end, least) in enumerate(zip(ends.tolist(), whole.column("least").to_pylist(), strict=True)):
        moments = np.sort(values[begin:end])
        between = np.diff(moments)
        first.append(moments[0])
        last.append(moments[-1])
        longest.append(between.max() if len(between) else None)
        wide = np.flatnonzero(between > least)
        rows.append(np.full(len(wide), row))
        starts.append(moments[wide])
        stops.append(moments[wide + 1])
        begin = end
    slices = [pa.array(column, pa.int64()) for column in (first, last, longest)]
    gaps = [pa.array(np.concatenate([np.empty(0, np.int64), *column])) for column in (rows, starts, stops)]
    return _beside(keys, first=slices[0], last=slices[1], longest=slices[2]), _beside(
        keys.take(gaps[0]), gap_from=gaps[1], gap_to=gaps[2]
    )


def _beside(keys: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        keys = keys.append_column(name, column)
    return keys


def find(base: duckdb.DuckDBPyConnection, most_witnesses: int = WITNESSES, most_rows: int = MOST_ROWS) -> None:
    """Make the tables slices, outage and shown from `time` and `specs`."""
    base.execute(_EMPTY)
    reader = base.sql(_WHOLE).to_arrow_reader(_SLICES)
    for slices, gaps in [spans(pa.Table.from_batches([batch])) for batch in reader if batch.num_rows]:
        add(base, "slices", slices)
        add(base, "gaps", gaps)
    base.execute(_OUTAGES.format(most_witnesses=most_witnesses, most_rows=most_rows))


def by_slice(base: duckdb.DuckDBPyConnection) -> Iterator[Parcel]:
    """Judge the table `time` of one partition; yield parcels for the driver."""
    find(base)
    yield from _FOUND.of(base)
    yield from _COUNTS.of(base)
    yield from _SHOWN.of(base)
    yield from _SIDES.of(base)
