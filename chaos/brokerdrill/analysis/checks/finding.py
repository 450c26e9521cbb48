"""What a promise's check found in one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass
class Finding:
    """`n` breaks, `excused` ones apart; `evidence` that there was something to check; `doubt`, so that the promise
    cannot pass, and `why`, a sentence each; `judged_from` says how much was seen; `measured` (ms) and the worst
    `witnesses`. `moments` are when the breaks that the events alone show happened (run time, ns). `judged` counts what
    could have broken, where that is known."""

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
