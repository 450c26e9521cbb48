"""From the partial results of the stages to the verdict: what is left is small and put together by the driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from brokerdrill.analysis import checks as rules
from brokerdrill.analysis import verdict
from brokerdrill.analysis.checks import delivered_within
from brokerdrill.analysis.checks.finding import Finding
from brokerdrill.analysis.clients import Plan
from brokerdrill.analysis.columns import table
from brokerdrill.analysis.coverage import covered, targets, why_vacuous
from brokerdrill.analysis.events import NEVER, Event
from brokerdrill.analysis.gaps import MOST_ROWS
from brokerdrill.analysis.kernel import add, pack
from brokerdrill.analysis.partials import declared
from brokerdrill.analysis.placing import Placed
from brokerdrill.analysis.seen import Seen, apply_doubts
from brokerdrill.analysis.stages import Partials, Source, Stages
from brokerdrill.analysis.tables import Runs, Specs, Times, message_tables, stage_tables
from brokerdrill.analysis.timeline import Timeline, timeline
from brokerdrill.ledger.contract import CLASSES_SHOWN, PromiseSpec, RunInfo
from brokerdrill.ledger.verdict import PromiseVerdict, RunVerdict

# A run's end before its operations are seen: later than all of them, and times may be added to it.
OPEN_END = NEVER >> 1

# A delivery, its acknowledgement and the end of its transaction may be three clients'; one pass more sees no change.
_MOST_HANDS = 3


@dataclass
class JudgedRuns:
    """What the stages found: `results` (each run's verdict, by its number), `times` (each run's timeline) and
    `partials` of all stages."""

    results: dict[int, RunVerdict]
    times: dict[int, Timeline]
    partials: dict[str, list[pa.Table]]


IN_DOUBT = (
    "{count:,} of the messages that count as delivered were received once only, and their consumer's acknowledgement "
    "had no answer: whether they were processed is not known."
)

# From the runs with operations of a clock that run.json does not place: by run the promises that cannot pass, and
# notes.
Doubts = Callable[[frozenset[int]], tuple[Mapping[int, frozenset[str]], Mapping[int, Sequence[str]]]]


@dataclass(frozen=True)
class Ledger:
    """What is to be judged: runs by number, their promises (`verdict.checked`), their events in run time, where their
    clocks lie in it; `parts` partitions, and whether what a report draws is wanted. `lacking` says what is missing of
    a run's files, a sentence each."""

    runs: Runs
    promises: Specs
    events: Mapping[int, Sequence[Event]]
    clocks: Mapping[int, Mapping[str, Placed]]
    parts: int
    series: bool
    lacking: Callable[[int], Sequence[str]] = lambda run: ()


class Judging:
    """The analysis of one ledger: `check` runs stage 1 and returns what is wrong with rows, `finish` does the rest."""

    def __init__(self, spark: Any, source: Source, ledger: Ledger) -> None:
        self._ledger = ledger
        self._source = source
        self._plan = Plan(
            ledger.parts, frozenset(spec.name for specs in ledger.promises.values() for spec in specs), ledger.series
        )
        self._stages = Stages(spark, source, self._plan)
        self._first: Partials = {}

    def __enter__(self) -> Judging:
        return self

    def __exit__(self, *_: object) -> None:
        self._stages.close()

    def check(self) -> Partials:
        """Run stage 1; return the partial results, of which `problem` and `conflict` name bad rows and
        operations."""
        ledger = self._ledger
        open_ended = _timelines(ledger, dict.fromkeys(ledger.runs, OPEN_END))
        tables = stage_tables(ledger.runs, ledger.promises, open_ended, ledger.parts, series=ledger.series)
        self._first = self._stages.first(tables)
        # What one client ended of another's may itself have been ended by a third.
        given: dict[str, bytes] = {}
        for _ in range(_MOST_HANDS):
            foreign = _foreign(self._first)
            if foreign == given:
                break
            given = foreign
            self._first = self._stages.first(tables | given)
        return self._first

    def finish(self, doubts: Doubts | None = None, runs: Collection[int] | None = None) -> JudgedRuns:
        """Run stages 2 and 3 and put the verdicts on `runs` (None: on all) together: what is wrong in others may be of
        no form that a rule takes. `doubts` says which promises of each run cannot pass, and what to say of the input,
        from the runs with operations of a clock that run.json does not place."""
        ledger, first = self._ledger, self._first
        with database(first) as base:
            rows = base.execute('SELECT run, max(ops_end), bool_or(unplaced) FROM "end" GROUP BY run').fetchall()
            ends = {run: end for run, end, _ in rows}
            times = _timelines(ledger, ends)
            own = stage_tables(ledger.runs, ledger.promises, times, ledger.parts, series=ledger.series)
            tables = message_tables(ledger.runs, ledger.promises, times)
            tables |= {name: own[name] for name in ("segments", "asked", "widths")}
            tables |= {name: pack(base.sql(query).to_arrow_table()) for name, query in _SHARED.items()}
        rest = self._stages.rest(tables)
        partials = {kind: [*first.get(kind, ()), *rest.get(kind, ())] for kind in sorted({*first, *rest})}
        unplaced = frozenset(run for run, _, there in rows if there)
        doubted, notes = doubts(unplaced) if doubts else ({}, {})
        wanted = ledger.runs if runs is None else {run: ledger.runs[run] for run in runs}
        return JudgedRuns(_verdicts(ledger, wanted, times, partials, doubted, notes), times, partials)

    @property
    def follows(self) -> bool:
        """Whether `look_up` also gives the rows that those which are asked for lead to."""
        return self._source.whole and not self._first.get("stray")

    def look_up(self, tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
        """Return the rows of the ledger that `tables` (`stories.WANTED`) ask for."""
        return self._stages.look_up(tables, follow=self.follows)


# What stage 1 returned that every partition of the later stages needs.
_SHARED = {
    # since: from when on it was there for certain; maybe: from when on it may have been. Null: it was not.
    "topics": """
SELECT run, address, sub, CASE WHEN NOT coalesce(maybe_at > first, false) THEN since END AS since,
       CASE WHEN NOT coalesce(gone_at > first, false) THEN maybe END AS maybe
FROM (SELECT run, address, sub, min(first) AS first, min(since) AS since, min(maybe) AS maybe, max(gone_at) AS gone_at,
             max(maybe_at) AS maybe_at FROM topic GROUP BY ALL)
""",
    "serving": "SELECT run, store, instance, e_start, tick, min(after) AS after, max(before) AS before FROM serving "
    "WHERE store IS NOT NULL GROUP BY ALL",
    "asking": delivered_within.ASKING,
    "sessions": "SELECT DISTINCT run, address, sub, begun, e_at, client, session, since FROM session",
}


def _timelines(ledger: Ledger, ends: Mapping[int, int | None]) -> dict[int, Timeline]:
    return {
        run: timeline(ledger.events[run], info.stores, ends.get(run), ledger.clocks[run])
        for run, info in ledger.runs.items()
    }


@contextmanager
def database(partials: Partials, widths: Mapping[int, int] | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """The partial results as tables of the driver's own database, those that are missing empty; with the `widths` of
    buckets (ns) also `bins`: run, kind, phase, start_ns, side (send, delivery), bin, n (acknowledged sends or
    deliveries that ended there), calls (those with a latency), took (ms, the bin's mean), longest (ms)."""
    base = duckdb.connect(config={"threads": 1, "memory_limit": "1GB"})
    try:
        for kind, partial in declared().items():
            if partial.as_table:
                add(base, kind, table((), partial.text))
                for one in partials.get(kind, ()):
                    add(base, kind, one)
        if widths is not None:
            add(base, "bucket_width", table(widths.items(), "run int, width long"))
            base.execute(_BINS)
        yield base
    finally:
        base.close()


_BINS = """
CREATE TEMP TABLE bins AS
SELECT h.run, h.kind, h.phase, h.start_ns // w.width * w.width AS start_ns, h.bin,
       CASE h.kind WHEN 'receive' THEN 'delivery' ELSE 'send' END AS side, sum(h.n)::BIGINT AS n,
       sum(h.calls)::BIGINT AS calls, sum(h.took) / nullif(sum(h.calls), 0) / 1e6 AS took,
       max(h.longest) / 1e6 AS longest
FROM histogram h JOIN bucket_width w USING (run)
GROUP BY h.run, h.kind, h.phase, h.start_ns // w.width, w.width, h.bin
"""


def _foreign(first: Partials) -> dict[str, bytes]:
    """What one client ended of another's work: ends of transactions and acknowledgements that found nothing in their
    own partition, where another partition lacks them."""
    if not first.get("stray"):
        return {}
    base = duckdb.connect(config={"threads": 1, "memory_limit": "1GB"})
    try:
        for kind in ("stray", "open"):
            add(base, kind, table((), declared()[kind].text))
            for one in first.get(kind, ()):
                add(base, kind, one)
        txns = base.sql(
            "SELECT DISTINCT s.run, s.name AS txn, s.invoked, s.commits, s.committed, s.opened, s.rolled_back, s.ended "
            "FROM stray s SEMI JOIN open o ON s.run = o.run AND s.name = o.txn WHERE s.what = 'txn' ORDER BY ALL"
        ).to_arrow_table()
        acks = base.sql(
            "SELECT DISTINCT run, name AS delivery, by_ack, by_txn FROM stray WHERE what = 'ack' ORDER BY ALL"
        ).to_arrow_table()
    finally:
        base.close()
    if not txns.num_rows and not acks.num_rows:
        return {}
    return {"foreign_txns": pack(txns), "foreign_acks": pack(acks)}


# --- verdicts -------------------------------------------------------------------------------------------------------


def _verdicts(
    ledger: Ledger,
    runs: Runs,
    times: Times,
    partials: Partials,
    doubts: Mapping[int, frozenset[str]],
    notes: Mapping[int, Sequence[str]],
) -> dict[int, RunVerdict]:
    """The verdict on each of `runs`."""
    with database(partials) as base:
        found = rules.Findings(base, ledger.promises, times)
        seen = Seen(base, ledger.runs)
        counts: dict[int, list[tuple[str, bool, bool, int]]] = defaultdict(list)
        for run, name, flagged, in_doubt, n in base.execute(
            "SELECT run, class, flagged, in_doubt, sum(n)::BIGINT FROM class GROUP BY ALL"
        ).fetchall():
            counts[run].append((name, flagged, in_doubt, n))
        witnesses = _witnesses(partials)
        who = _who(partials)
        judged: dict[int, RunVerdict] = {}
        for run, info in runs.items():
            specs, events = ledger.promises[run], ledger.events[run]
            findings = found.of(run, info, counts[run], witnesses[run])
            outages = found.outages(run, who[run])
            lacking = [*seen.lacking(run, {event.clock for event in events}), *ledger.lacking(run)]
            met = covered(info, times[run], events, seen.met[run])
            vacuous = why_vacuous(info, met, events)
            apply_doubts(specs, findings, counts[run], doubts.get(run, frozenset()), lacking, vacuous)
            promises = _promises(info, specs, findings)
            verdicts = [promise.verdict for promise in promises]
            result = RunVerdict(
                promises=promises,
                messages=_messages(counts[run]),
                redelivered=_redelivered(counts[run]),
                failover=found.failover(run)[:MOST_ROWS],
                outages=outages[:MOST_ROWS],
                rounds=found.rounds(run, findings, outages, whole=not lacking),
                notes=(*notes.get(run, ()), *lacking, *_in_doubt(counts[run])),
                vacuous=vacuous,
                coverage=met,
            )
            not_met = seen.not_met(run, specs, findings, verdicts, targets(times[run], info.stores))
            judged[run] = verdict.concluded(info, result, not_met)
        return judged


def _witnesses(partials: Partials) -> dict[int, list[dict[str, Any]]]:
    """All witnesses of the stages, by run: {rule or spec, weight, and their own fields}."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for one in partials.get("witness", ()):
        for row in one.to_pylist():
            found[row.pop("run")].append(row)
    return found


def _who(partials: Partials) -> dict[int, dict[tuple[str, str, int], tuple[str, str | None]]]:
    """Who (client, server) had the success at (side, address, time), by run: of several the first client."""
    found: dict[int, dict[tuple[str, str, int], tuple[str, str | None]]] = defaultdict(dict)
    for one in partials.get("side", ()):
        for row in one.to_pylist():
            # Where two loads meet, two partitions return that time: each of all that had a success then.
            found[row["run"]][row["side"], row["address"], row["moment"]] = row["client"], row["server"]
    return found


def _promises(run: RunInfo, specs: Sequence[PromiseSpec], findings: Sequence[Finding]) -> tuple[PromiseVerdict, ...]:
    return tuple(
        verdict.of_promise(
            spec,
            run.expect.get(spec.name, "kept"),
            count=finding.n,
            excused=finding.excused,
            evidence=finding.evidence,
            doubt=finding.doubt,
            measured=finding.measured,
            witnesses=finding.witnesses,
            why=finding.why,
            judged_from=finding.judged_from,
        )
        for spec, finding in zip(specs, findings, strict=True)
    )


def _messages(counts: Sequence[tuple[str, bool, bool, int]]) -> dict[str, int]:
    """How many units each class has."""
    messages = dict.fromkeys(CLASSES_SHOWN, 0)
    for name, _, _, n in counts:
        messages[name] += n
    return messages


def _redelivered(counts: Sequence[tuple[str, bool, bool, int]]) -> dict[str, int]:
    """Those of that class by the broker's flag, and by whether an acknowledgement was in doubt."""
    split = {"flagged": 0, "unflagged": 0, "in_doubt": 0, "not_in_doubt": 0}
    for name, flagged, in_doubt, n in counts:
        if name == "redelivered":
            split["flagged" if flagged else "unflagged"] += n
            split["in_doubt" if in_doubt else "not_in_doubt"] += n
    return split


def _in_doubt(counts: Sequence[tuple[str, bool, bool, int]]) -> list[str]:
    # Delivered once, and that once in doubt.
    undecided = sum(n for name, _, in_doubt, n in counts if name == "ok" and in_doubt)
    return [IN_DOUBT.format(count=undecided)] if undecided else []
