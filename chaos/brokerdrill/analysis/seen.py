"""What the driver knows of how much was seen in each run, and what follows for its promises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import duckdb

from brokerdrill.analysis.checks.finding import Finding, worst
from brokerdrill.analysis.completeness import Numbered, lacking
from brokerdrill.analysis.coverage import Counts
from brokerdrill.analysis.expectation import Asked, Moves, not_met
from brokerdrill.analysis.verdict import DOUBTED_BY_MISSING
from brokerdrill.ledger.contract import PromiseSpec, RunInfo
from brokerdrill.promises.catalogue import PROMISES
from brokerdrill.promises.definition import ALL


class Seen:
    """What partial results (tables of the driver) say of how much of each run was seen."""

    def __init__(self, base: duckdb.DuckDBPyConnection, runs: Mapping[int, RunInfo]) -> None:
        self._runs = runs
        self._numbered: dict[int, list[Numbered]] = defaultdict(list)
        for run, *of in base.execute(
            "SELECT run, client, sum(n)::BIGINT, min(first), max(last) FROM numbered GROUP BY run, client"
        ).fetchall():
            self._numbered[run].append(Numbered(*of))
        self._ticking: dict[int, set[int]] = defaultdict(set)
        for run, tick in base.execute("SELECT DISTINCT run, tick FROM ticking").fetchall():
            self._ticking[run].add(tick)
        self.met: dict[int, dict[int, Counts]] = defaultdict(dict)
        for run, fault, *counts in base.execute(
            "SELECT run, fault, sum(clients)::BIGINT, sum(in_flight)::BIGINT, sum(operations)::BIGINT FROM met "
            "GROUP BY run, fault"
        ).fetchall():
            self.met[run][fault] = Counts(*counts)
        self._moved: dict[tuple[int, int], list[Moves]] = defaultdict(list)
        for run, spec, *of in base.execute(
            "SELECT run, spec, from_store, to_store, sum(n)::BIGINT, min(first) FROM moved GROUP BY ALL"
        ).fetchall():
            self._moved[run, spec].append(Moves(*of))

    def lacking(self, run: int, recorded: Iterable[str] = ()) -> list[str]:
        """Return why rows of a run are missing, a sentence each; `recorded` are the clocks of its events."""
        info = self._runs[run]
        names = sorted(info.clocks)
        ticked = {names[tick] for tick in self._ticking[run]}
        return lacking(self._numbered[run], info.clocks, {*ticked, *recorded})

    def not_met(
        self,
        run: int,
        specs: Sequence[PromiseSpec],
        findings: Sequence[Finding],
        verdicts: Sequence[str],
        targets: Mapping[str, int],
    ) -> dict[str, str]:
        """Return why promises are not as the run's drill asks for ("": their verdict says it), by name. One that is
        listed twice (two scopes, two sides) is held against what is asked as one."""
        info = self._runs[run]
        found = {}
        for name in dict.fromkeys(spec.name for spec in specs):
            places = [place for place, spec in enumerate(specs) if spec.name == name]
            known = {number: one for number, one in enumerate(info.known) if one.promise == name}
            asked = Asked(info.expect.get(name, "kept"), known, info.only.get(name))
            moved = [row for place in places for row in self._moved[run, place]]
            own = [verdicts[place] for place in places], [findings[place] for place in places]
            if (why := not_met(*own, asked, moved, targets)) is not None:
                found[name] = why
        return found


def apply_doubts(
    specs: Sequence[PromiseSpec],
    findings: Sequence[Finding],
    counts: Iterable[tuple[str, bool, bool, int]],
    doubted: Collection[str],
    missing: Sequence[str],
    vacuous: Sequence[str],
) -> None:
    """Say in `findings` what forbids that promises pass: `doubted` (names), operations that are `missing` (why), a run
    that is `vacuous` (why). What only seems broken because of what is missing is not."""
    of_class: dict[str, int] = defaultdict(int)
    for name, *_, n in counts:
        of_class[name] += n
    for spec, finding in zip(specs, findings, strict=True):
        promise = PROMISES[spec.name]
        if spec.name in doubted:
            finding.doubt = True
        if missing and spec.name in DOUBTED_BY_MISSING:
            finding.doubted("; ".join(missing))
            if promise.by_absence == ALL:
                finding.n, finding.witnesses, finding.moments = 0, [], []
                finding.rows, finding.otherwise = [], {}
            elif promise.by_absence:
                finding.n = sum(of_class[name] for name in promise.breaking if name not in promise.by_absence)
                left = (row for row in finding.witnesses if row.get("class") not in promise.by_absence)
                finding.witnesses = worst({"weight": 0, **row} for row in left)
                finding.otherwise = {key: n for key, n in finding.otherwise.items() if key[0] not in promise.by_absence}
        if vacuous:
            finding.doubted("the load did not meet what the drill is about")
