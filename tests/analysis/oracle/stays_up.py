"""stays_up: no process ends but by a fault or an operation."""

from __future__ import annotations

from collections.abc import Sequence

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.facts import Facts, load_phases, phase
from tests.analysis.oracle.faults import heal_uncertainty, healed_at
from tests.analysis.oracle.logs import log_tells_all, logs_read, read_with
from tests.analysis.oracle.rows import NEVER, Row, detail, entry

CRASHES = ("ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP", "132", "133", "134", "135", "136", "139", "159")
ORDERLY = ("0", "129", "130", "137", "143", "HUP", "INT", "KILL", "TERM")

Span = tuple[Row, Row | None]


def stays_up(facts: Facts, spec: PromiseSpec) -> Row:
    """ "an `ended` breaks it, unless a fault … is in effect … or an operation is under way" """
    spans = playbooks(facts)
    faults = sorted(
        (event for event in facts.events if event["kind"] == "fault"),
        key=lambda e: (e["t_ns"], *(e.get(word) or "" for word in ("name", "instance", "target"))),
    )
    spent: set[int] = set()
    broken, excused, open_ones = [], 0, 0
    ends = [event for event in facts.events if event["kind"] == "ended"]
    for one in sorted(ends, key=lambda e: (e["t_ns"], e.get("instance") or "")):
        if one.get("instance") is None:
            continue
        within = {one["instance"], *str(detail(one, "with") or "").split("\n")}
        explained = maybe = False
        if not crash(one):
            explained = by_fault(facts, one, within, faults, spent)
            if not explained:
                explained, maybe = by_playbook(one, within, spans)
        if explained:
            excused += 1
        elif maybe:
            open_ones += 1
        else:
            broken.append({"instance": one["instance"], "at": one["t_ns"]})
    open_ones += restarts(facts, spans)
    verdict = "fail" if broken else "pass" if all_read(facts) and not open_ones else "unknown"
    return entry(spec, verdict, len(broken), excused=excused, witnesses=broken)


def playbooks(facts: Facts) -> list[Span]:
    """The begin of each operation, and its end."""
    notes = [event for event in facts.events if event["kind"] == "note"]
    spans: list[Span] = []
    for begin in notes:
        if detail(begin, "operation") == "begin":
            ends = [
                note
                for note in notes
                if detail(note, "operation") == "end"
                and note.get("name") == begin.get("name")
                and note["t_ns"] >= begin["t_ns"]
            ]
            spans.append((begin, ends[0] if ends else None))
    return spans


def covers(begin: Row, end: Row | None, one: Row) -> bool:
    """ "All uncertainties speak for the excuse": each span is widened by them."""
    at, u = one["t_ns"], one["uncertainty_ns"]
    widened = begin["uncertainty_ns"] if begin["kind"] == "fault" else 0
    return bool(begin["t_ns"] - widened <= at + u and (end is None or at - u <= end["t_ns"]))


def crash(one: Row) -> bool:
    """ "a crash is explained by nothing" """
    how, status = one.get("value"), detail(one, "status")
    return how in ("dumped", "killed for memory") or status in CRASHES or (how == "out of memory" and status != "KILL")


def by_fault(facts: Facts, one: Row, within: set[str], faults: Sequence[Row], spent: set[int]) -> bool:
    """Whether a fault explains the end; `spent`: those of `faults` that have explained all that they could."""
    able = []
    for place, fault in enumerate(faults):
        own = fault.get("instance") in within
        if not own and not (fault.get("instance") is None and fault.get("target") == one.get("target")):
            continue
        heal = healed_at(facts, fault)
        # "all uncertainties speak for it"
        if not covers(fault, None if heal is None else {"t_ns": heal + heal_uncertainty(facts, fault)}, one):
            continue
        # "a kill and a stop end a process once"
        if place not in spent:
            able.append((place, fault.get("name") in ("kill", "stop"), NEVER if heal is None else heal))
    # "of several that explain one each the one that is healed first"
    if able and able[0][1]:
        spent.add(min((heal, place) for place, once, heal in able if once)[1])
    return bool(able)


def by_playbook(one: Row, within: set[str], spans: Sequence[Span]) -> tuple[bool, bool]:
    """Whether an operation explains the end, and whether one may."""
    status = detail(one, "status")
    explained = maybe = False
    for begin, end in spans:
        if not covers(begin, end, one):
            continue
        works_on = detail(begin, "instances")
        if works_on is not None:
            explained |= bool(set(works_on.split("\n")) & within)
        elif status is None or status in ORDERLY:
            explained = True
        else:
            maybe = True
    return explained, maybe


def all_read(facts: Facts) -> bool:
    """Whether the logs tell of "each instance that may serve a store, has a role or was hit" """
    loads = load_phases(facts)
    over = phase(facts, "drain", "end")
    if over is None and loads:
        over = loads[-1][1]  # "to the drain's end, without one to the load's"
    notes = logs_read(facts)
    whole = {
        one
        for one in {name for note in notes for name in read_with(note)}
        if log_tells_all(facts, one, loads[0][0] if loads else None, over)
    }
    named = {instance for instances in facts.run.stores.values() for instance in instances}
    named |= {e["instance"] for e in facts.events if e["kind"] in ("role", "fault") and e.get("instance")}
    return bool(notes) and named <= whole


def restarts(facts: Facts, playbooks: Sequence[Span]) -> int:
    """How often a host of instances was started anew by nobody's doing: "a `restart_host` there explains one, a
    playbook any while it runs"."""
    hosts = {event.get("target") for event in facts.events if event.get("instance")} - {None}
    causes = {
        (event.get("target"), event["t_ns"] - event["uncertainty_ns"])
        for event in facts.events
        if (event["kind"], event.get("name")) == ("fault", "restart_host")
    }
    found = 0
    for event in facts.events:
        if (event["kind"], event.get("value")) != ("health", "restarted"):
            continue
        of = [
            one for one in causes if one[0] == event.get("target") and one[1] <= event["t_ns"] + event["uncertainty_ns"]
        ]
        if of:
            causes.remove(min(of))
            continue
        running = any(
            begin["t_ns"] <= event["t_ns"] and (end is None or event["t_ns"] <= end["t_ns"]) for begin, end in playbooks
        )
        found += event.get("target") in hosts and not running
    return found
