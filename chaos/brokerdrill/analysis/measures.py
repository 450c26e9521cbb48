"""How much and how fast: operations counted and their latencies in bins, by the run's phases and over time.

Stages 1 and 2 make a histogram whose bins are 1 % wide; everything else is read from that, which is small whatever the
ledger's size. A bin stands for its mean, so that a quantile is off by less than 1 % and a bin of one value is exact.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import duckdb

from brokerdrill.analysis.events import NEVER
from brokerdrill.analysis.partials import Query, declare
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.ledger.contract import PREPARATIONS
from brokerdrill.ledger.verdict import Numbers, PhaseNumbers

KINDS = ("send", "commit", "receive")
PHASES = ("load", "before_fault", "during_fault", "after_heal", "drain", "outside")
# As `Numbers` has them.
QUANTILES = (0.5, 0.95, 0.99)
SECOND_NS = 1_000_000_000
MOST_BUCKETS = 600
_STEPS_MS = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000,
             1_800_000, 3_600_000)  # fmt: skip


HISTOGRAM = declare(
    "histogram",
    "run int, kind string, phase string, start_ns long ns, bin int, n long, calls long, took double ns, "
    "longest long ns",
    "judge._BINS",
)


def histogram(source: str) -> Query:
    """Return what ended in each bucket and bin of latency, of the query `source` (run, kind, moment, took, counted)."""
    return HISTOGRAM.by(f"""
SELECT x.run, x.kind, g.phase, x.moment // w.width * w.width AS start_ns,
       floor(ln(greatest(x.took, 1)) / ln(1.01))::INT AS bin, sum(x.counted)::BIGINT AS n, count(x.took) AS calls,
       sum(x.took)::DOUBLE AS took, max(x.took) AS longest
FROM ({source}) x JOIN widths w ON x.run = w.run
JOIN segments g ON x.run = g.run AND x.moment >= g.seg_from AND x.moment < g.seg_to
WHERE x.moment >= 0 GROUP BY ALL
""")


def bucket_ns(run_end: int) -> int:
    """Return the width of a bucket (ns): the first round time by which a run needs at most `MOST_BUCKETS`."""
    fits = (step * 1_000_000 for step in _STEPS_MS if run_end <= step * 1_000_000 * MOST_BUCKETS)
    return next(fits, -(-run_end // (SECOND_NS * MOST_BUCKETS)) * SECOND_NS)


def base_width(run_end: int) -> int:
    """Return the greatest width (ns) of which every `bucket_ns` of this run end and of later ones is a multiple; the
    events record a time up to which a run lasts at least, its operations may end later."""
    wanted = bucket_ns(run_end)
    later = [step * 1_000_000 for step in _STEPS_MS if step * 1_000_000 >= wanted]
    return math.gcd(*later) if later else SECOND_NS


def segments(times: Timeline) -> list[tuple[int, str]]:
    """Return (start, phase) of the stretches of a run, by start: each lasts until the next, the last for ever.

    `drain` is the drain; else `during_fault` a time with a fault in effect; else, in a load, `before_fault` up to the
    first fault and `after_heal` from then on (`load` in a run without a fault); else `outside`.
    """
    faults = [
        (f.at, times.run_end + 1 if f.healed_at is None else f.healed_at)
        for f in times.faults
        if f.name not in PREPARATIONS
    ]
    first = min((at for at, _ in faults), default=None)
    drain = (
        [] if times.drain_begin is None else [(times.drain_begin, times.drain_end or times.run_end)]
    )  # an operation that ends with the drain is part of it
    drains = [(begin, end + 1) for begin, end in drain]
    loads = [(begin, end + 1) for begin, end in times.loads]

    def phase(at: int) -> str:
        def in_any(spans: Iterable[tuple[int, int]]) -> bool:
            return any(begin <= at < end for begin, end in spans)

        if in_any(drains):
            return "drain"
        if in_any(faults):
            return "during_fault"
        if not in_any(loads):
            return "outside"
        return "load" if first is None else "before_fault" if at < first else "after_heal"

    edges = sorted({-NEVER, *(edge for spans in (faults, drains, loads) for span in spans for edge in span)})
    found: list[tuple[int, str]] = []
    for edge in edges:
        name = phase(edge)
        if not found or found[-1][1] != name:
            found.append((edge, name))
    return found


def lengths(times: Timeline) -> dict[str, int]:
    """Return the ns that each phase of a run takes, from 0 to the run's end."""
    found: dict[str, int] = defaultdict(int)
    parts = segments(times)
    ends = [start for start, _ in parts[1:]] + [times.run_end]
    for (start, name), end in zip(parts, ends, strict=True):
        found[name] += max(0, min(end, times.run_end) - max(start, 0))
    return dict(found)


def quantiles(base: duckdb.DuckDBPyConnection, keys: str, shares: Iterable[float]) -> duckdb.DuckDBPyRelation:
    """The latencies (q: list of ms) of the table `bins` at these shares, by `keys` (SQL); interpolated between the two
    calls whose ranks are nearest."""
    wanted = [
        f"min(took) FILTER (upto > floor((calls_of - 1) * {share})) * (1 - ((calls_of - 1) * {share}) % 1)"
        f" + min(took) FILTER (upto > ceil((calls_of - 1) * {share})) * (((calls_of - 1) * {share}) % 1)"
        for share in shares
    ]
    return base.sql(
        f"SELECT {keys}, [{', '.join(wanted)}] AS q FROM (SELECT {keys}, took, sum(calls) OVER (PARTITION BY {keys} "
        f"ORDER BY took, bin, phase, kind, start_ns ROWS UNBOUNDED PRECEDING) AS upto, sum(calls) OVER (PARTITION BY "
        f"{keys}) AS calls_of FROM bins WHERE calls > 0) GROUP BY {keys}, calls_of"
    )


def by_phase(base: duckdb.DuckDBPyConnection) -> list[tuple[int, str, str, int, list[float] | None, float | None]]:
    """Return run, phase, kind, count, latencies (ms at `QUANTILES`; None: there is none) and the longest (ms) of each
    phase and kind of the table `bins` (`judge.bins`) in which something ended."""
    quantiles(base, "run, phase, kind", QUANTILES).create("phase_quantiles")
    found = base.execute(
        "SELECT b.run, b.phase, b.kind, sum(CASE WHEN b.kind = 'commit' THEN b.calls ELSE b.n END)::BIGINT, "
        "any_value(q.q), max(b.longest) FROM bins b LEFT JOIN phase_quantiles q USING (run, phase, kind) "
        "GROUP BY b.run, b.phase, b.kind"
    ).fetchall()
    return [(run, phase, kind, count, q, longest) for run, phase, kind, count, q, longest in found]


def phases(
    rows: Iterable[tuple[str, str, int, list[float] | None, float | None]], times: Timeline
) -> tuple[PhaseNumbers, ...]:
    """Return one run's phases with what was done in them, from its rows of `by_phase` (without the run); without those
    that took no time and in which nothing ended."""
    seconds = {name: ns / 1e9 for name, ns in lengths(times).items()}
    kinds: dict[str, dict[str, Numbers]] = defaultdict(dict)
    for phase, kind, count, latencies, longest in rows:
        if count:
            lasted = seconds.get(phase, 0.0)
            p50, p95, p99 = latencies or (None, None, None)
            kinds[phase][kind] = Numbers(count, count / lasted if lasted else None, p50, p95, p99, longest)
    return tuple(
        PhaseNumbers(name, seconds.get(name, 0.0), {kind: kinds[name][kind] for kind in KINDS if kind in kinds[name]})
        for name in PHASES
        if name in kinds or (name != "outside" and seconds.get(name))
    )
