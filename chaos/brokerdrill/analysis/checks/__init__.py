"""How each promise is checked, from the partial results of the stages: by class (`RULE`), or in its own way (`find`).

ordered, sticky and atomic are decided within one partition (`groups`, `messages`); what the partitions found is added
up here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import duckdb

from brokerdrill.analysis.checks import (
    alerted_within,
    available,
    by_class,
    delivered_within,
    failback_within,
    failover_within,
    no_dead_letters,
    no_duplicates,
    no_loss,
    no_nonpersistent_loss,
    no_phantoms,
    single_active,
    stays_up,
    transparent,
)
from brokerdrill.analysis.checks.finding import Finding, worst
from brokerdrill.analysis.checks.rounds import broken, rounds_of
from brokerdrill.analysis.coverage import followed
from brokerdrill.analysis.tables import Specs, Times, ns
from brokerdrill.ledger.contract import RunInfo
from brokerdrill.ledger.verdict import Failover, Outage, Round
from brokerdrill.promises.catalogue import PROMISES
from brokerdrill.promises.definition import ALL

RULES = {
    rule.name: rule
    for rule in (
        no_phantoms.RULE,
        no_loss.RULE,
        no_nonpersistent_loss.RULE,
        no_duplicates.RULE,
        no_dead_letters.RULE,
    )
}


# What casts doubt on the promises that partitions judge.
_DOUBTS = {
    "ordered": "the clocks of two consumers are not known well enough to tell who was first",
    "sticky": "of some connects it is not known which store they reached, or, by their clocks, whether it was ready",
    "atomic": "some of a transaction's messages may still be on their queues",
}


class Findings:
    """What the driver's tables of partial results (`judge`) say of each run's promises."""

    def __init__(self, base: duckdb.DuckDBPyConnection, promises: Specs, times: Times) -> None:
        self._promises = promises
        self._times = times
        self._gaps: dict[int, list[tuple[str, available.Gap]]] = defaultdict(list)
        self._of_messages(base)
        self._of_partitions(base)
        self._of_clients(base)
        self._of_spans(base)

    def _of_messages(self, base: duckdb.DuckDBPyConnection) -> None:
        """What addresses had, for the promises that go by class."""
        self._judged: dict[int, list[by_class.JudgedUnits]] = defaultdict(list)
        for run, *of in base.execute(
            "SELECT run, address, sum(units)::BIGINT, sum(seen)::BIGINT, sum(processed)::BIGINT, sum(owed)::BIGINT, "
            "sum(passing)::BIGINT FROM judged GROUP BY run, address ORDER BY run, address"
        ).fetchall():
            self._judged[run].append(by_class.JudgedUnits(*of))
        self._live: dict[int, set[str]] = defaultdict(set)
        for run, address in base.execute("SELECT DISTINCT run, address FROM sent WHERE live").fetchall():
            self._live[run].add(address)
        self._looks: dict[int, list[no_dead_letters.DeadLetterLook]] = defaultdict(list)
        for run, *look in base.execute(
            "SELECT run, dead_letter, server, ok, tick, max(begun) FROM looks GROUP BY ALL"
        ).fetchall():
            self._looks[run].append(no_dead_letters.DeadLetterLook(*look))
        self._delivered: dict[int, list[no_dead_letters.LastDelivery]] = defaultdict(list)
        for run, *last in base.execute("SELECT run, address, tick, max(moment) FROM delivered GROUP BY ALL").fetchall():
            self._delivered[run].append(no_dead_letters.LastDelivery(*last))

    def _of_partitions(self, base: duckdb.DuckDBPyConnection) -> None:
        """What is decided within a partition, added up; and what broke in each round."""
        self._late = {*base.execute("SELECT DISTINCT run, spec FROM perhaps_late").fetchall()}
        self._added = {
            (run, spec): Finding(n, excused, evidence, doubt, judged=judged, judged_from={"judged": judged})
            for run, spec, n, excused, evidence, doubt, judged in base.execute(
                "SELECT run, spec, sum(n)::BIGINT, sum(excused)::BIGINT, bool_or(evidence), bool_or(doubt), "
                "sum(judged)::BIGINT FROM finding GROUP BY run, spec"
            ).fetchall()
        }
        self._held: dict[tuple[int, int], list[delivered_within.HeldUnits]] = defaultdict(list)
        for run, spec, *of in base.execute(
            "SELECT run, spec, fault, sum(n)::BIGINT, sum(late)::BIGINT, max(longest), max(latest), bool_or(cut_off), "
            "bool_or(clocks), bool_or(perhaps), bool_or(unasked) FROM held GROUP BY run, spec, fault "
            "ORDER BY run, spec, fault"
        ).fetchall():
            self._held[run, spec].append(delivered_within.HeldUnits(*of))
        self._otherwise: dict[int, list[tuple[str | None, int | None, int, int]]] = defaultdict(list)
        for run, *of in base.execute(
            "SELECT run, rule, spec, known, sum(n)::BIGINT FROM otherwise GROUP BY ALL"
        ).fetchall():
            self._otherwise[run].append((of[0], of[1], of[2], of[3]))
        self._by_round: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        for run, what, number, n in base.execute(
            "SELECT run, what, round, sum(n)::BIGINT FROM broken_in GROUP BY ALL"
        ).fetchall():
            self._by_round[run].append((what, number, n))

    def _of_clients(self, base: duckdb.DuckDBPyConnection) -> None:
        """What clients saw of epochs and failovers."""
        intruders = {
            run: (n, perhaps)
            for run, n, perhaps in base.execute(
                "SELECT run, sum(n)::BIGINT, bool_or(perhaps) FROM intruders GROUP BY run"
            ).fetchall()
        }
        homeless = {run for (run,) in base.execute("SELECT DISTINCT run FROM serving WHERE homeless").fetchall()}
        self._sends = {
            run: single_active.Sends(*intruders.get(run, (0, False)), run in homeless) for run in self._promises
        }
        clients: dict[int, list[failover_within.ClientAtFault]] = defaultdict(list)
        for run, *of in base.execute(
            "SELECT run, fault, client, joined, before, success, elsewhere, nameless, last_try, as_before, u, unseen "
            "FROM failover ORDER BY run, fault, client"
        ).fetchall():
            clients[run].append(failover_within.ClientAtFault(*of))
        self._failovers = {run: failover_within.failovers(found, self._times[run]) for run, found in clients.items()}
        self._calls: dict[int, int] = dict(
            base.execute("SELECT run, sum(n)::BIGINT FROM calls GROUP BY run").fetchall()
        )
        self._failed: dict[int, list[transparent.FailedCall]] = defaultdict(list)
        for run, *of in base.execute(
            "SELECT run, client, op, outcome, address, server, begun, ended FROM failed_call ORDER BY ALL"
        ).fetchall():
            self._failed[run].append(transparent.FailedCall(*of))
        self._untried = {
            run: failover_within.untried(found, self._failovers[run], self._times[run])
            for run, found in clients.items()
        }
        self._received: dict[int, dict[int, int]] = defaultdict(dict)
        for run, fault, at in base.execute("SELECT run, fault, min(received_at) FROM received GROUP BY ALL").fetchall():
            self._received[run][fault] = at

    def _of_spans(self, base: duckdb.DuckDBPyConnection) -> None:
        """What addresses went without, slice by slice."""
        self._slices: dict[tuple[int, str, int, str], list[available.Slice]] = defaultdict(list)
        for run, side, number, address, *of in base.execute(
            "SELECT run, side, number, address, slice, first, last, longest FROM slice"
        ).fetchall():
            self._slices[run, side, number, address].append(available.Slice(*of))
        self._used: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        for run, side, number, address in sorted(
            base.execute("SELECT DISTINCT run, side, place, address FROM used").fetchall()
        ):
            self._used[run, side].append((number, address))
        self._inner: dict[tuple[int, int, int, str], int] = {
            (run, spec, number, address): n
            for run, spec, number, address, n in base.execute(
                "SELECT run, spec, number, address, sum(n)::BIGINT FROM outages GROUP BY ALL"
            ).fetchall()
        }
        self._shown: dict[tuple[int, int, int, str], list[tuple[int, int]]] = defaultdict(list)
        for run, spec, number, address, *span in base.execute(
            "SELECT run, spec, number, address, gap_from, gap_to FROM outage"
        ).fetchall():
            self._shown[run, spec, number, address].append((span[0], span[1]))

    def of(
        self,
        run: int,
        info: RunInfo,
        counts: Iterable[tuple[str, bool, bool, int]],
        witnesses: Sequence[Mapping[str, Any]],
    ) -> list[Finding]:
        """Return the finding of each promise of the run, whose run.json is `info`, in their order; `counts` are (class,
        ..., n), `witnesses` those of the stages."""
        by_name: dict[str, int] = defaultdict(int)
        for name, *_, n in counts:
            by_name[name] += n
        by_rule: dict[str | int, list[Mapping[str, Any]]] = defaultdict(list)
        for row in witnesses:
            by_rule[row["rule"] if "rule" in row else row["spec"]].append(row)
        times = self._times[run]
        found = []
        for place, spec in enumerate(self._promises[run]):
            bound = ns(spec.bound_ms) or 0
            if spec.name in RULES:
                rule = RULES[spec.name]
                finding = by_class.find(rule, by_name, self._judged[run])
                if rule is no_dead_letters.RULE:
                    looked = self._looks[run], info.dead_letters, self._live[run]
                    no_dead_letters.look_at(finding, *looked, times, self._delivered[run])
                finding.witnesses = worst(row for name in rule.breaking for row in by_rule[name])
            elif spec.name == single_active.NAME:
                finding = single_active.find(times, self._sends[run], info.stores, by_rule[single_active.NAME])
            elif spec.name == transparent.NAME:
                finding = transparent.find(self._calls.get(run, 0), self._failed[run])
            elif spec.name == failover_within.NAME:
                others = followed(times, info.stores)
                finding = failover_within.find(
                    self._failovers.get(run, ()), bound, times.pressures, self._untried.get(run, ()), others
                )
            elif spec.name == delivered_within.NAME:
                finding = delivered_within.find(times, self._held[run, place], bound)
                finding.witnesses = worst(by_rule[place])
            elif spec.name == failback_within.NAME:
                acked = {number: self._slices[run, "failback", number, ""] for number in range(len(times.failbacks))}
                finding = failback_within.find(times, acked, bound)
            elif spec.name == stays_up.NAME:
                finding = stays_up.find(times, info.stores)
            elif spec.name == alerted_within.NAME:
                finding = alerted_within.find(times, spec.alert, bound)
            elif spec.name == available.NAME:
                named = {*info.addresses, *info.drained}
                finding = self._available(run, place, spec.side or "send", bound, named)
            else:
                finding = self._added.get((run, place), Finding())
                finding.witnesses = worst(by_rule[place])
                if finding.doubt or (run, place) in self._late:
                    finding.doubted(_DOUBTS[spec.name])
                elif spec.name == "sticky" and finding.judged and not finding.evidence and spec.moves != "some":
                    finding.doubted("each key came again when its router may have forgotten it")
            finding.otherwise = self._of_other_kinds(run, place, spec.name)
            found.append(finding)
        return found

    def _of_other_kinds(self, run: int, place: int, name: str) -> dict[tuple[str | None, int], int]:
        """How many witnesses of a promise are of another kind than each known defect's."""
        own = {name, *PROMISES[name].breaking}
        return {
            (rule, known): n
            for rule, of_place, known, n in self._otherwise[run]
            if of_place == place or (of_place is None and rule in own)
        }

    def _available(self, run: int, place: int, side: str, bound: int, named: Collection[str]) -> Finding:
        addressed = [
            available.Addressed(
                number,
                address,
                self._slices[run, side, number, address],
                self._inner.get((run, place, number, address), 0),
                self._shown[run, place, number, address],
            )
            for number, address in self._used[run, side]
        ]
        finding, gaps = available.find(self._times[run], addressed, bound, side, named)
        self._gaps[run] += [(side, one) for one in gaps]
        return finding

    def failover(self, run: int) -> tuple[Failover, ...]:
        """Return the ways of the run's clients over its failovers, by time and client."""
        return tuple(failover_within.split(self._failovers.get(run, ()), self._received[run]))

    def rounds(
        self, run: int, findings: Sequence[Finding], outages: Iterable[Outage], *, whole: bool
    ) -> tuple[Round, ...]:
        """Return the run's rounds, from what `of` and `outages` have returned; `whole`: no operation is
        missing, else what rests on what is not there is none."""
        times = self._times[run]
        of_class = {name: rule.name for rule in RULES.values() for name in rule.breaking}
        counted = [
            (of_class.get(what, what), number, n)
            for what, number, n in self._by_round[run]
            if whole or not _rests_on_absence(what)
        ]
        breaks = broken(times, self._promises[run], findings, counted)
        return tuple(rounds_of(times, self._failovers.get(run, ()), outages, breaks))

    def outages(self, run: int, who: Mapping[tuple[str, str, int], tuple[str, str | None]]) -> tuple[Outage, ...]:
        """Return the run's outages by time; `of` must have been called. `who` as `available.outages` has it."""
        rows = [row for side, one in self._gaps[run] for row in available.outages([one], side, who)]
        return tuple(sorted(rows, key=lambda row: (row.start_ns, row.address or "", row.side or "")))


def _rests_on_absence(what: str) -> bool:
    """Whether a break, of a class or of a promise, rests on what is not there."""
    return (what in PROMISES and PROMISES[what].by_absence == ALL) or any(
        what in promise.by_absence for promise in PROMISES.values()
    )
