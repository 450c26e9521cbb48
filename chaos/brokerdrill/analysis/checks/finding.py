"""What a promise's check found in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import duckdb

from brokerdrill.analysis.kernel import Parcel
from brokerdrill.analysis.partials import Query, declare
from brokerdrill.analysis.verdict import WITNESSES

NS_PER_MS = 1e6
# Why a promise with a bound is doubted, not broken.
BUSY = "the hosts were busy: something waited for CPU, memory or disk for as long as the bound was missed by"
CLOCKS = "the clocks are not known well enough to tell whether the bound was kept"


# What a partition found of a promise that it judges itself; `spec` is the promise's place in the run's list.
FOUND = declare(
    "finding",
    "run int, spec int, n long, excused long, evidence boolean, doubt boolean, measured double ms, judged long",
    "checks.Findings",
)
# How often something broke in a round of the method: a class, or a promise.
BROKEN_IN = declare("broken_in", "run int, what string, round int, n long", "checks.Findings")
# Cases that broke a promise, named by `rule` or by `spec`; `weight` is how bad they are.
WITNESS = declare("witness", "run int, weight long", "judge._witnesses", as_table=False)
# How many cases have not the fields that a known defect asks for: `known` is its place in the run's list.
OTHERWISE = declare("otherwise", "run int, rule string, spec int, known int, n long", "checks.Findings")


class Witnesses(NamedTuple):
    """The queries of what broke a promise: the worst cases, and how many there are of another kind than is known."""

    worst: Query
    otherwise: Query

    def of(self, base: duckdb.DuckDBPyConnection) -> Iterator[Parcel]:
        """Yield the partition's rows for the driver."""
        yield from self.worst.of(base)
        yield from self.otherwise.of(base)


def witnesses(of: str, select: str, order: str, more: str) -> Witnesses:
    """Return the queries of the cases that `select` makes: run, `of` (rule, or spec), weight and the columns `more`,
    the worst first by weight, then by `order`. All of them are held against the table `known_only`."""
    worst_first = f"QUALIFY row_number() OVER (PARTITION BY run, {of} ORDER BY weight DESC, {order}) <= {WITNESSES}"
    both = {"rule": "NULL::VARCHAR", "spec": "NULL::INT", of: f"w.{of}"}
    others = f"""
SELECT w.run, {both["rule"]} AS rule, {both["spec"]} AS spec, w.known, count(*) AS n FROM (
    SELECT DISTINCT w.place, w.run, w.{of}, k.known
    FROM (SELECT row_number() OVER () AS place, run, {of}, to_json(c) AS fields
          FROM ({select}) c SEMI JOIN known_only USING (run, {of})) w
    JOIN known_only k ON w.run = k.run AND w.{of} = k.{of}
    WHERE NOT coalesce(TRY_CAST(w.fields ->> k.path AS DOUBLE) = TRY_CAST(k.value AS DOUBLE),
                       w.fields ->> k.path IS NOT DISTINCT FROM k.value)) w
GROUP BY ALL
"""
    return Witnesses(WITNESS.by(f"{select}\n{worst_first}\n", more), OTHERWISE.by(others))


@dataclass
class Finding:
    """`n` breaks, `excused` ones apart; `evidence` that there was something to check; `doubt`, so that the promise
    cannot pass, and `why`, a sentence each; `judged_from` says how much was seen; `measured` (ms) and the worst
    `witnesses`. `moments` are when the breaks that the events alone show happened (run time, ns). `judged` counts what
    could have broken, where that is known. `rows` are all cases that the driver finds; of those that partitions find
    `otherwise` counts those of another kind than a known defect, by rule and by the defect's place in the run's
    list."""

    n: int = 0
    excused: int = 0
    evidence: bool = False
    doubt: bool = False
    measured: float | None = None
    witnesses: list[dict[str, Any]] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    judged_from: dict[str, Any] = field(default_factory=dict)
    judged: int | None = None
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    otherwise: dict[tuple[str | None, int], int] = field(default_factory=dict)

    def broken_by(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take note of all cases that broke the promise: `witnesses` are the worst of them."""
        self.rows = list(rows)
        self.witnesses = worst(self.rows)

    def doubted(self, why: str) -> None:
        """Forbid that the promise passes, and say why (once)."""
        self.doubt = True
        if why not in self.why:
            self.why.append(why)


def _place(value: object) -> tuple[int, Any]:
    return (2, 0) if value is None else (1, value) if isinstance(value, str) else (0, value)


def worst(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the worst witnesses of `rows` (each with `weight`, how bad it is), without what is null; of equal ones the
    first by their fields."""
    weighed = [({k: v for k, v in row.items() if k not in ("weight", "rule", "spec")}, row["weight"]) for row in rows]
    weighed.sort(key=lambda one: (-one[1], [_place(value) for value in one[0].values()]))
    return [{k: v for k, v in fields.items() if v is not None} for fields, _ in weighed[:WITNESSES]]


def by_round(rows: str, what: str, at: str) -> Query:
    """Return how many of `rows` (a table, perhaps with its WHERE) happened in each round; `what` broke and when (`at`)
    are expressions of columns."""
    return BROKEN_IN.by(f"""
SELECT b.run, b.what, r.round, count(*) AS n FROM (SELECT run, {what} AS what, {at} AS moment FROM {rows}) b
JOIN rounds r ON b.run = r.run AND b.moment >= r.r_from AND b.moment < r.r_to GROUP BY ALL
""")


def milliseconds(ns: int | None) -> float | None:
    """Return a time of nanoseconds in milliseconds."""
    return None if ns is None else ns / NS_PER_MS
