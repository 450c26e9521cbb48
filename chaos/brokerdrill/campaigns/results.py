"""What the cells of a plan say together: for each place on the page its runs, rates and quantiles, and how they differ.

Plain values in and out; a run is known by the verdict that stands beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from brokerdrill.base.statistics import (
    ALPHA,
    Shift,
    compare_rates,
    compare_times,
    holm,
    quantile_interval,
    rate_interval,
    smallest_p,
    to_json,
)
from brokerdrill.campaigns.execute import DONE, FAILED, REFUSED, Ended
from brokerdrill.campaigns.plan import CampaignPlan, Cell
from brokerdrill.ledger.verdict import FAIL, RunVerdict

VERDICT_FILE = "verdict.json"
KEPT, BROKEN, UNKNOWN, PENDING = "kept", "broken", "unknown", "pending"
_WORDS = {"pass": KEPT, "fail": BROKEN, "unknown": UNKNOWN}
# More pairs than this and each place is compared with the first only.
MOST_PAIRS = 28


@dataclass(frozen=True)
class CellOutcome:
    """One cell, how it ended (None: not yet), and the verdict of its run (None: it has none)."""

    cell: Cell
    ended: Ended | None
    result: RunVerdict | None

    @property
    def word(self) -> str:
        """kept, broken, unknown, pending, refused or failed (its run could not be made)."""
        if self.ended is None:
            return PENDING
        if self.ended.state == DONE and self.result is not None:
            return _WORDS[self.result.verdict]
        return self.ended.state if self.ended.state in (REFUSED, FAILED) else UNKNOWN


def outcomes(plan: CampaignPlan, ended: Mapping[str, Ended], runs: Path) -> list[CellOutcome]:
    """Return the outcome of each cell, in the plan's order; verdicts are read from the run directories."""
    return [CellOutcome(cell, ended.get(cell.key), verdict_of(ended.get(cell.key), runs)) for cell in plan.cells]


def verdict_of(ended: Ended | None, runs: Path) -> RunVerdict | None:
    """Return the verdict that stands beside a cell's run; None: the cell has none."""
    if ended is None or ended.run_dir is None:
        return None
    try:
        found = json.loads((runs / ended.run_dir / VERDICT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return RunVerdict.from_json(found) if isinstance(found, dict) else None


@dataclass(frozen=True)
class OutcomeGroup:
    """The outcomes with the same labels."""

    labels: Mapping[str, str]
    outcomes: tuple[CellOutcome, ...]

    @property
    def results(self) -> list[RunVerdict]:
        return [one.result for one in self.outcomes if one.word in (KEPT, BROKEN, UNKNOWN) and one.result is not None]

    def count(self, word: str) -> int:
        return sum(one.word == word for one in self.outcomes)

    @property
    def word(self) -> str:
        """The worst of its runs; without a run that was judged, why there is none."""
        order = (BROKEN, UNKNOWN, FAILED, REFUSED, PENDING, KEPT)
        return next((word for word in order if self.count(word)), PENDING)

    @property
    def times(self) -> list[float]:
        """Every failover's time in ms: the slowest client's next acknowledged send."""
        return [value for value in self._failovers if value is not None]

    @property
    def never(self) -> int:
        """Failovers after which some client was not served again."""
        return sum(value is None for value in self._failovers)

    @property
    def _failovers(self) -> list[float | None]:
        return [value for result in self.results for value in result.failovers().values()]

    @property
    def violations(self) -> tuple[int, int]:
        """(runs that broke a promise, runs that were judged)."""
        return self.count(BROKEN), self.count(BROKEN) + self.count(KEPT)

    def broken(self) -> dict[str, int]:
        """Return promise → how many runs broke it."""
        found: dict[str, int] = {}
        for result in self.results:
            for name in {row.name for row in result.promises if row.verdict == FAIL}:
                found[name] = found.get(name, 0) + 1
        return dict(sorted(found.items()))

    def takeovers(self) -> dict[str, tuple[int, int]]:
        """Return store → (times that it changed hands, runs in which it did)."""
        found: dict[str, tuple[int, int]] = {}
        for result in self.results:
            stores = [one.store for one in result.takeovers]
            for store in set(stores):
                times, runs = found.get(store, (0, 0))
                found[store] = (times + stores.count(store), runs + 1)
        return dict(sorted(found.items()))

    def messages(self, *classes: str) -> int:
        """Return how many messages of these classes its runs saw; all classes where none is named."""
        return sum(result.count(*classes) for result in self.results)

    @property
    def as_expected(self) -> bool:
        return bool(self.results) and all(result.as_expected for result in self.results)


def places(found: Sequence[CellOutcome]) -> list[OutcomeGroup]:
    """Return the places of outcomes, in the order in which they first come."""
    grouped: dict[tuple[str, ...], list[CellOutcome]] = {}
    for one in found:
        grouped.setdefault(tuple(one.cell.labels.values()), []).append(one)
    return [OutcomeGroup(members[0].cell.labels, tuple(members)) for members in grouped.values()]


def place_json(place: OutcomeGroup) -> dict[str, Any]:
    """Return what is known of a place: runs, violations and failover quantiles (ms), each with its exact interval."""
    times = place.times
    return {
        "labels": dict(place.labels),
        "verdict": place.word,
        "runs": [
            {
                "repeat": one.cell.repeat,
                "seed": one.cell.seed,
                "state": one.word,
                "run_dir": one.ended.run_dir if one.ended else None,
                "error": one.ended.error if one.ended else None,
                "as_expected": one.result.as_expected if one.result else None,
            }
            for one in place.outcomes
        ],
        "violations": {
            "runs": place.violations[0],
            "judged": place.violations[1],
            "rate": to_json(rate_interval(*place.violations)),
            "promises": place.broken(),
        },
        "failover_ms": {
            "count": len(times),
            "never": place.never,
            "p50": to_json(quantile_interval(times, 0.5)),
            "p95": to_json(quantile_interval(times, 0.95)),
            "max": max(times, default=None),
        },
        "takeovers": {store: {"count": count, "runs": runs} for store, (count, runs) in place.takeovers().items()},
        "messages": {
            "all": place.messages(),
            "lost": place.messages("lost"),
            "duplicated": place.messages("duplicated"),
        },
    }


@dataclass(frozen=True)
class Comparison:
    """Two places: how their failover times stand to each other, and their rates of violation; `p` values are also there
    adjusted for all comparisons of the page (Holm)."""

    first: OutcomeGroup
    second: OutcomeGroup
    times: Shift | None
    times_p: float | None
    rates_p: float | None
    adjusted_times_p: float | None = None
    adjusted_rates_p: float | None = None

    @property
    def significant(self) -> bool:
        return self.adjusted_times_p is not None and self.adjusted_times_p <= ALPHA

    @property
    def could_show(self) -> bool:
        """Whether so many times could show a difference at all."""
        return self.times is not None and 2 * smallest_p(self.times.count_a, self.times.count_b) <= ALPHA

    def to_json(self) -> dict[str, Any]:
        return {
            "first": dict(self.first.labels),
            "second": dict(self.second.labels),
            "failover": to_json(self.times),
            "failover_p_adjusted": self.adjusted_times_p,
            "violations_p": self.rates_p,
            "violations_p_adjusted": self.adjusted_rates_p,
            "significant": self.significant,
        }


def compared(found: Sequence[OutcomeGroup]) -> list[Comparison]:
    """Compare every two places, or each with the first where that are more than `MOST_PAIRS`; p values are adjusted
    over all comparisons of times, and over all of rates."""
    pairs = list(combinations(found, 2))
    if len(pairs) > MOST_PAIRS:
        pairs = [(found[0], other) for other in found[1:]]
    made = []
    for first, second in pairs:
        times = compare_times(first.times, second.times)
        rates = compare_rates(first.violations, second.violations)
        made.append(Comparison(first, second, times, times.p if times else None, rates.p if rates else None))
    times_p = holm([one.times_p for one in made if one.times_p is not None])
    rates_p = holm([one.rates_p for one in made if one.rates_p is not None])
    adjusted = []
    for one in made:
        adjusted.append(
            Comparison(
                one.first, one.second, one.times, one.times_p, one.rates_p,
                times_p.pop(0) if one.times_p is not None else None,
                rates_p.pop(0) if one.rates_p is not None else None,
            )
        )  # fmt: skip
    return adjusted
