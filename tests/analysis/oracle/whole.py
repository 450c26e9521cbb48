"""The whole: a run's verdict from those of its promises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

from brokerdrill.ledger.contract import CLASSES_SHOWN, PromiseSpec, RunInfo
from brokerdrill.promises.catalogue import NO_PHANTOMS
from tests.analysis.oracle.alerted import alerted_within
from tests.analysis.oracle.atomic import atomic
from tests.analysis.oracle.available import available
from tests.analysis.oracle.by_class import BREAKING, by_class
from tests.analysis.oracle.coverage import coverage, is_vacuous
from tests.analysis.oracle.delivered import delivered_within
from tests.analysis.oracle.facts import Facts
from tests.analysis.oracle.failback import failback_within, failbacks
from tests.analysis.oracle.failover import failover_within
from tests.analysis.oracle.gathering import gather
from tests.analysis.oracle.ordered import ordered
from tests.analysis.oracle.rows import NEVER, Row, in_ms, merge
from tests.analysis.oracle.single_active import single_active
from tests.analysis.oracle.stays_up import stays_up
from tests.analysis.oracle.sticky import sticky
from tests.analysis.oracle.transparent import transparent
from tests.analysis.oracle.units import classify

_BY_EVENTS = (
    "atomic",
    "sticky",
    "single_active",
    "failover_within",
    "delivered_within",
    "failback_within",
    "available",
    "no_loss",
    "no_nonpersistent_loss",
    "stays_up",
    "alerted_within",
)


_PROMISES: dict[str, Callable[[Facts, PromiseSpec], Row]] = {
    "alerted_within": alerted_within,
    "atomic": atomic,
    "delivered_within": delivered_within,
    "failback_within": failback_within,
    "ordered": ordered,
    "single_active": single_active,
    "stays_up": stays_up,
    "sticky": sticky,
    "transparent": transparent,
}


def judge(
    run: RunInfo,
    ops: Sequence[Row],
    events: Sequence[Row],
    promises: Sequence[PromiseSpec],
    torn: Collection[str] = (),
) -> dict[str, Any]:
    """Return the JSON object of the contract for one run.

    `ops` and `events` are the ledger's rows (dicts by column, absent keys null) in any order; `promises` those to check
    (no_phantoms is added where it is missing); `torn` names the files (`ops`, `events`) whose last line was torn.
    `witnesses` holds all, in no promised order. Raises ValueError for an operation that is both ok and fail.
    """
    facts = gather(run, ops, events)
    counts = dict.fromkeys(CLASSES_SHOWN, 0)
    for unit in facts.units:
        counts[classify(facts, unit)] += 1
    specs = list(promises)
    if all(spec.name != NO_PHANTOMS for spec in specs):
        specs.insert(0, PromiseSpec(NO_PHANTOMS))  # "no_phantoms is always checked."
    entries, failover, outages = [], [], []
    for spec in specs:
        if spec.name == "failover_within":
            one, rows = failover_within(facts, spec)
            failover += rows
        elif spec.name == "available":
            one, rows = available(facts, spec)
            outages += rows
        else:
            one = (by_class if spec.name in BREAKING else _PROMISES[spec.name])(facts, spec)
        entries.append(one)
    told = coverage(facts)
    vacuous = is_vacuous(facts, told)
    for one in entries:
        if facts.missing:
            without_the_missing(one)
        # "A torn last line … makes any pass that it could affect unknown.", "of a vacuous run none passes"
        torn_one = "ops" in torn or ("events" in torn and one["name"] in _BY_EVENTS)
        if one["verdict"] == "pass" and (torn_one or vacuous):
            one["verdict"] = "unknown"
    return {
        "run_id": run.run_id,
        "verdict": run_verdict(run, entries),
        "as_expected": as_expected(run, entries) and not vacuous,
        "messages": counts,
        "promises": entries,
        "failover": failover,
        "outages": outages,
        "rounds": rounds(facts, entries, failover, outages),
        "coverage": told,
    }


def without_the_missing(one: Row) -> None:
    """ "Where operations are missing, no promise passes that is judged from them, and none is broken by what is not
    there" """
    if one["name"] in ("failback_within", "stays_up", "alerted_within"):
        return
    if one["name"] in BREAKING:
        one["witnesses"] = [w for w in one["witnesses"] if w["class"] in ("corrupted", "duplicated")]
    elif one["name"] in ("atomic", "ordered", "failover_within", "available", "transparent", "delivered_within"):
        one["witnesses"] = []
    one["count"] = len(one["witnesses"])
    one["verdict"] = "fail" if one["count"] else "unknown"


def rounds(facts: Facts, entries: Sequence[Row], failover: Sequence[Row], outages: Sequence[Row]) -> list[Row]:
    """ "What happened from a round's begin to the next one's is of that round" """
    marks = []
    for event in facts.events:
        edge = (event.get("detail") or {}).get("round")
        if edge is not None:
            marks.append((event["t_ns"], event.get("name") or "", edge))
    begins = sorted((at, name) for at, name, edge in marks if edge == "begin")
    rows = []
    for place, (begin, name) in enumerate(begins):
        following = begins[place + 1][0] if place + 1 < len(begins) else NEVER
        ends = [at for at, of, edge in marks if edge == "end" and of == name and begin <= at <= following]

        def within(at: int | None, begin: int = begin, following: int = following) -> bool:
            return at is not None and begin <= at < following

        broken: dict[str, int] = defaultdict(int)
        for one in entries:
            for witness in one["witnesses"]:
                if within(witness["at"]):
                    broken[one["name"]] += 1
        backs = [
            in_ms(max(0, one.back - one.heal)) for one in failbacks(facts) if within(one.heal) and one.back is not None
        ]
        rows.append(
            {
                "round": name,
                "start_ns": begin,
                "end_ns": min([*ends, following, facts.end]),
                "faults": sum(
                    e["kind"] == "fault" and e.get("name") != "arm" and within(e["t_ns"]) for e in facts.events
                ),
                "failover_ms": max((row["first_send_ms"] for row in failover if within(row["t_ns"])), default=None),
                "failback_ms": max(backs, default=None),
                "outages": sum(within(row["start_ns"]) for row in outages),
                "broken": dict(broken),
            }
        )
    return rows


def run_verdict(run: RunInfo, entries: Sequence[Row]) -> str:
    """ "a run that did not complete passes never" """
    found = merge(one["verdict"] for one in entries)
    if found == "pass" and run.outcome != "completed":
        return "unknown"
    return found


def as_expected(run: RunInfo, entries: Sequence[Row]) -> bool:
    """ "as_expected holds it against expect"; `only` and `known` are tried by hand (test_expectation)"""
    if run.outcome != "completed" and run_verdict(run, entries) != "fail":
        return False
    for name in {one["name"] for one in entries}:
        verdict = merge(one["verdict"] for one in entries if one["name"] == name)
        expectation = run.expect.get(name, "kept")
        if verdict != {"kept": "pass", "violated": "fail"}[expectation]:
            return False
    return True
