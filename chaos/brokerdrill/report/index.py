"""What the page of several runs says: a row a run, and for each scenario what its repeats prove and how fast it was."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from brokerdrill.base.errors import UsageError
from brokerdrill.base.statistics import percentile, upper_bound
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import FAIL, UNKNOWN, RunVerdict
from brokerdrill.report import format as fmt
from brokerdrill.report import words


@dataclass(frozen=True)
class PromiseBound:
    """What repeats say of one promise: in `violations` of `trials` failovers it was broken; `upper` is the 95 % upper
    bound of that rate (None without a trial), `unjudged` the failovers of runs that leave it unknown."""

    name: str
    trials: int
    violations: int
    unjudged: int
    upper: float | None


def repeat_bounds(results: Sequence[RunVerdict]) -> list[PromiseBound]:
    """Return the bounds for each promise over the failovers of `results`, the promise `all` first.

    A run's verdict does not say which of its failovers broke a promise, so all of them count as violations: the bound
    errs on the safe side. Runs that leave a promise unknown prove nothing about it and are left out of its trials.
    """
    names = dict.fromkeys(row.name for result in results for row in result.promises)
    bounds = []
    for name in ["all", *names]:
        trials = violations = unjudged = 0
        for result in results:
            failovers = len(result.failovers())
            verdicts = [row.verdict for row in result.promises if name in ("all", row.name)]
            if "fail" in verdicts:
                trials += failovers
                violations += failovers
            elif verdicts and all(verdict == "pass" for verdict in verdicts):
                trials += failovers
            else:
                unjudged += failovers
        bounds.append(PromiseBound(name, trials, violations, unjudged, upper_bound(violations, trials)))
    return bounds


def _run_of(run_dir: Path) -> contract.RunInfo | None:
    try:
        return contract.read_run(run_dir)
    except UsageError:
        return None


def _link(run_dir: Path, out: Path) -> str | None:
    """The relative URL of the run's report as seen from `out`; None where there is none."""
    folder = out.parent.absolute()
    for candidate in (folder / run_dir.name / "report.html", run_dir.absolute() / "report.html"):
        if candidate.is_file():
            return quote(os.path.relpath(candidate, folder))
    return None


def _count(result: RunVerdict, *classes: str) -> str:
    """The messages of these classes; a dash for a run that was not judged, which has none, not zero."""
    return fmt.number(result.count(*classes)) if result.messages else fmt.NOTHING


@dataclass(frozen=True)
class RunRow:
    """A run's row: what it was, its verdict, and its counts as text; `link` leads to its report, None: it has none."""

    id: str
    link: str | None
    scenario: str
    seed: str
    started: str
    word: str
    sign: str
    expected: str
    tone: str
    broken: str
    unknown: str
    error: str
    messages: str
    lost: str
    duplicated: str
    failovers: int
    slowest: str


def _row(run_dir: Path, result: RunVerdict, run: contract.RunInfo | None, out: Path) -> RunRow:
    times = result.failovers()
    slowest = (
        None if None in times.values() else max((value for value in times.values() if value is not None), default=None)
    )
    word, sign = words.VERDICT_WORDS[result.verdict]
    return RunRow(
        id=words.run_name(result if result.run_dir else replace(result, run_dir=str(run_dir))),
        link=_link(run_dir, out),
        scenario=run.scenario.name if run else "",
        seed="" if run is None or run.seed is None else str(run.seed),
        started=run.started_at if run else "",
        word=word,
        sign=sign,
        expected=words.AS_EXPECTED[result.as_expected],
        tone=words.tone(result),
        broken=", ".join(f"{row.name} ({fmt.number(row.count)})" for row in result.promises if row.verdict == FAIL),
        unknown=", ".join(row.name for row in result.promises if row.verdict == UNKNOWN),
        error=fmt.clean(result.error or ""),
        messages=_count(result, *contract.CLASSES),
        lost=_count(result, "lost"),
        duplicated=_count(result, "duplicated"),
        failovers=len(times),
        slowest=fmt.milliseconds(slowest) if slowest is not None else "never" if times else fmt.NOTHING,
    )


@dataclass(frozen=True)
class Dot:
    """One failover: its place in percent of the strip's width, a level where dots would meet, its time."""

    x: float
    level: int
    text: str


@dataclass(frozen=True)
class Tick:
    """A tick of the strip's scale, in percent of its width."""

    x: float
    text: str


@dataclass(frozen=True)
class Strip:
    """The strip of failover times; places are in percent of its width, `high` is the topmost level."""

    dots: list[Dot]
    high: int
    ticks: list[Tick]
    p50: float
    p95: float
    bound: float | None


def strip(times: Sequence[float], bound_ms: float | None, until: float = 0) -> Strip | None:
    """Return the strip of failover times (ms); None without a time. Strips that are given the same `until` (ms) have
    the same scale."""
    if not times:
        return None
    middle, slow = percentile(times, 0.5), percentile(times, 0.95)
    assert middle is not None and slow is not None
    end = max(max(times) * 1.08, (bound_ms or 0) * 1.04, until * 1.08, 1.0)
    step = next(size * 10**power for power in range(12) for size in (1, 2, 5) if end / (size * 10**power) <= 6)
    stacked: dict[int, int] = {}
    dots = []
    for value in sorted(times):
        x = value / end * 100
        column = round(x / 1.1)
        dots.append(Dot(round(x, 2), stacked.get(column, 0), fmt.milliseconds(value)))
        stacked[column] = stacked.get(column, 0) + 1
    return Strip(
        dots=dots,
        high=max(stacked.values()),
        ticks=[Tick(round(at / end * 100, 2), fmt.number(at)) for at in range(0, int(end) + 1, step)],
        p50=round(middle / end * 100, 2),
        p95=round(slow / end * 100, 2),
        bound=None if bound_ms is None else round(bound_ms / end * 100, 2),
    )


@dataclass(frozen=True)
class BoundRow:
    """What a scenario's repeats say of one promise, as text; `expected`: it is meant to be broken."""

    name: str
    trials: str
    violations: str
    unjudged: str
    upper: str
    broken: bool
    expected: bool


@dataclass(frozen=True)
class Group:
    """The runs of one scenario: what they prove, and their failover times (`count` of them, and `never` without an
    end)."""

    name: str
    runs: int
    sentence: str
    expected_broken: str
    bounds: list[BoundRow]
    count: int
    never: int
    p50: str
    p95: str
    max: str
    bound: str
    strip: Strip | None


def _group(name: str, members: Sequence[tuple[RunVerdict, contract.RunInfo | None]]) -> Group:
    results = [result for result, _ in members]
    found = [value for result in results for value in result.failovers().values()]
    times = [value for value in found if value is not None]
    never = len(found) - len(times)
    bounds = [
        row.bound
        for result in results
        for row in result.promises
        if row.name == "failover_within" and row.bound is not None
    ]
    bound_ms = float(bounds[0]) if bounds and len(set(bounds)) == 1 else None
    expected_broken = {
        promise for _, run in members if run for promise, word in run.expect.items() if word == "violated"
    }
    rows = repeat_bounds(results) if found else []
    whole = rows[0] if rows else None
    if whole is None:
        sentence = "No failover happened in these runs, so there is nothing to bound."
    elif whole.upper is None:
        sentence = f"No promise could be judged over these {len(found)} failovers, so there is nothing to bound."
    elif whole.violations == 0:
        sentence = (
            f"{whole.trials} failover{'' if whole.trials == 1 else 's'} without a violation: with 95 % confidence at "
            f"most {fmt.percent(whole.upper)} of failovers break a promise."
        )
    else:
        sentence = (
            f"{whole.violations} of {whole.trials} failovers are in runs that broke a promise: with 95 % confidence at "
            f"most {fmt.percent(whole.upper)} of failovers do."
        )
    return Group(
        name=fmt.clean(name or "runs without a scenario"),
        runs=len(results),
        sentence=sentence,
        expected_broken=", ".join(sorted(expected_broken)),
        bounds=[
            BoundRow(
                name="all promises together" if row.name == "all" else row.name,
                trials=fmt.number(row.trials),
                violations=fmt.number(row.violations),
                unjudged=fmt.number(row.unjudged),
                upper=fmt.percent(row.upper),
                broken=row.violations > 0,
                expected=row.name in expected_broken,
            )
            for row in rows
        ],
        count=len(times),
        never=never,
        p50=fmt.milliseconds(percentile(times, 0.5)),
        p95=fmt.milliseconds(percentile(times, 0.95)),
        max=fmt.milliseconds(max(times, default=None)),
        bound=fmt.milliseconds(bound_ms),
        strip=strip(times, bound_ms),
    )


def index_view(runs: Sequence[tuple[Path, RunVerdict]], out: Path) -> dict[str, Any]:
    """Return what the template of the index needs, for pairs of run directory and verdict; `out` is the page's path."""
    known = [(run_dir, result, _run_of(run_dir)) for run_dir, result in runs]
    groups: dict[str, list[tuple[RunVerdict, contract.RunInfo | None]]] = {}
    for _, result, run in known:
        if not result.error:
            groups.setdefault(f"{run.scenario.name} {run.topology}".strip() if run else "", []).append((result, run))
    as_expected = sum(result.as_expected for _, result, _ in known)
    everything = as_expected == len(known) and bool(known)
    wrong = any(words.tone(result) == "bad" for _, result, _ in known)
    return {
        "rows": [_row(run_dir, result, run, out) for run_dir, result, run in known],
        "groups": [_group(name, members) for name, members in groups.items()],
        "total": len(known),
        "as_expected": as_expected,
        "tone": "good" if everything else "bad" if wrong else "doubt",
        "sign": "✓" if everything else "✗" if wrong else "?",
    }
