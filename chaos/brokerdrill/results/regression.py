"""Has something got worse? Series of like runs, the newest against those before them, by stated tests.

A series is a scenario on a topology with the same settings. Its newest runs are compared with its baseline in two ways:

- failover: one-sided Mann-Whitney U on each run's slowest failover (a client that was never served is slower than any);
- violations: one-sided Fisher's exact test on runs that are not as expected (a promise broken that should be kept, or
  kept that the scenario must break; a run whose verdict is unknown is left out).

All tests of all series are adjusted together (Holm), so that with nothing changed the chance of any false alarm in one
look is at most alpha.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brokerdrill.base.errors import EXIT_BROKEN, EXIT_KEPT, EXIT_UNKNOWN
from brokerdrill.base.statistics import ALPHA, RateDifference, Shift, compare_rates, compare_times, holm, smallest_p
from brokerdrill.report import format as fmt
from brokerdrill.results.table import FAILOVER, PROMISE

RECENT = 5


@dataclass(frozen=True)
class RunPoint:
    """One run of a series: `slowest` ms of its failovers (None: it had none), `never` whether a client was never
    served, `violated` whether it is not as expected (None: unknown)."""

    run_id: str
    started: datetime.datetime
    versions: str
    slowest: float | None
    never: bool
    violated: bool | None
    broken: tuple[str, ...]
    bound: float | None
    verdict: str


@dataclass(frozen=True)
class RunSeries:
    """Like runs, oldest first."""

    scenario: str
    topology: str
    settings: str
    runs: tuple[RunPoint, ...]

    @property
    def name(self) -> str:
        return f"{self.scenario} on {self.topology}{f' with {self.settings}' if self.settings else ''}"


def versions_text(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def series_of(rows: Sequence[Mapping[str, Any]]) -> list[RunSeries]:
    """Return the series in the table's `rows`, each by the start of its runs."""
    by_run: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_run.setdefault(row["run_id"], []).append(row)
    grouped: dict[tuple[str, str, str], list[RunPoint]] = {}
    for own in by_run.values():
        first = own[0]
        settings = ", ".join(f"{name} {value}" for name, value in sorted(first["settings"].items()))
        grouped.setdefault((first["scenario"], first["topology"], settings), []).append(_point(own))
    return [
        RunSeries(*key, tuple(sorted(points, key=lambda point: (point.started, point.run_id))))
        for key, points in sorted(grouped.items())
    ]


def _point(rows: Sequence[Mapping[str, Any]]) -> RunPoint:
    first = rows[0]
    failovers = [row["measured"] for row in rows if row["kind"] == FAILOVER]
    promises = [row for row in rows if row["kind"] == PROMISE]
    unexpected = [row for row in promises if not row["as_expected"]]
    sure = any(row["verdict"] != "unknown" for row in unexpected)
    times = [value for value in failovers if value is not None]
    return RunPoint(
        run_id=first["run_id"],
        started=first["started_at"],
        versions=versions_text(first["versions"]),
        slowest=max(times, default=None),
        never=len(times) < len(failovers),
        violated=True if sure else None if unexpected else False,
        broken=tuple(sorted({row["name"] for row in unexpected if row["verdict"] != "unknown"})),
        bound=next((row["bound"] for row in promises if row["name"] == "failover_within"), None),
        verdict=first["run_verdict"],
    )


@dataclass(frozen=True)
class Test:
    """One comparison of the newest runs with the baseline: `what` failover or violations, p one-sided (None: too little
    data to reach alpha whatever the runs had shown), `adjusted` over all tests of the look."""

    what: str
    p: float | None
    adjusted: float | None = None
    times: Shift | None = None
    rates: RateDifference | None = None

    def regression(self, alpha: float) -> bool:
        return self.adjusted is not None and self.adjusted <= alpha

    def sentence(self, alpha: float) -> str:
        """Return what the test says, in words."""
        worse = self.regression(alpha)
        if self.p is None:
            return "too few runs to show a change"
        if self.times is not None:
            by = fmt.milliseconds(abs(self.times.shift.estimate))
            return f"failover became slower, by about {by}" if worse else "no slowdown is shown"
        if self.rates is None or not worse:
            return "no more violations are shown"
        rates = self.rates
        return (
            f"{rates.violations_b} of the {rates.trials_b} newest runs are not as expected, "
            f"{rates.violations_a} of {rates.trials_a} before"
        )


@dataclass(frozen=True)
class ComparedSeries:
    """A series with its split and tests."""

    series: RunSeries
    baseline: tuple[RunPoint, ...]
    recent: tuple[RunPoint, ...]
    tests: tuple[Test, ...]

    def regressions(self, alpha: float) -> list[Test]:
        return [test for test in self.tests if test.regression(alpha)]

    @property
    def tested(self) -> bool:
        return any(test.p is not None for test in self.tests)


def split(
    runs: Sequence[RunPoint], recent: int = RECENT, since: datetime.datetime | None = None
) -> tuple[tuple[RunPoint, ...], tuple[RunPoint, ...]]:
    """Return (baseline, newest): the last `recent` runs against all before; with `since`, what began then or later."""
    if since is not None:
        return tuple(run for run in runs if run.started < since), tuple(run for run in runs if run.started >= since)
    cut = max(0, len(runs) - recent)
    return tuple(runs[:cut]), tuple(runs[cut:])


def _slowest(runs: Sequence[RunPoint], never: float) -> list[float]:
    return [never if run.never else run.slowest for run in runs if run.never or run.slowest is not None]  # type: ignore[misc]


def _tests(baseline: Sequence[RunPoint], recent: Sequence[RunPoint], alpha: float) -> tuple[Test, Test]:
    never = 2 * max((run.slowest or 0 for run in (*baseline, *recent)), default=0) + 1
    a, b = _slowest(baseline, never), _slowest(recent, never)
    times = compare_times(a, b, "greater")
    known = [[run.violated for run in runs if run.violated is not None] for runs in (baseline, recent)]
    (bad_a, all_a), (bad_b, all_b) = ((sum(one), len(one)) for one in known)
    rates = compare_rates((bad_a, all_a), (bad_b, all_b), "greater")
    # The most that so many runs can show: every new run slower than every old one; every new run violated, no old one.
    most = compare_rates((0, all_a), (all_b, all_b), "greater")
    return (
        Test("failover", times.p if times and smallest_p(len(a), len(b)) <= alpha else None, times=times),
        Test("violations", rates.p if rates and most and most.p <= alpha else None, rates=rates),
    )


def judged(
    series: Sequence[RunSeries], alpha: float = ALPHA, recent: int = RECENT, since: datetime.datetime | None = None
) -> list[ComparedSeries]:
    """Test every series; p values are adjusted over all tests that can be made."""
    found = []
    for one in series:
        baseline, newest = split(one.runs, recent, since)
        found.append((one, baseline, newest, _tests(baseline, newest, alpha)))
    adjusted = holm([test.p for _, _, _, tests in found for test in tests if test.p is not None])
    return [
        ComparedSeries(
            one,
            baseline,
            newest,
            tuple(
                Test(test.what, test.p, adjusted.pop(0) if test.p is not None else None, test.times, test.rates)
                for test in tests
            ),
        )
        for one, baseline, newest, tests in found
    ]


def exit_status(found: Sequence[ComparedSeries], alpha: float = ALPHA) -> int:
    """Return 1 where something got worse, 2 where no series has runs enough for any test, else 0."""
    if any(one.regressions(alpha) for one in found):
        return EXIT_BROKEN
    return EXIT_KEPT if any(one.tested for one in found) else EXIT_UNKNOWN
