"""Faults: when each was healed, and whom it hit."""

from __future__ import annotations

from tests.analysis.oracle.epochs import Epoch
from tests.analysis.oracle.facts import Facts
from tests.analysis.oracle.rows import Row, detail


def first_heal(facts: Facts, fault: Row) -> Row | None:
    """The first later heal of what a fault was."""
    heals = [
        heal
        for heal in facts.events
        if heal["kind"] == "heal"
        and all((heal.get(name) or "") == (fault.get(name) or "") for name in ("name", "instance", "target"))
        and heal["t_ns"] > fault["t_ns"]
        and of_one_step(fault, heal)
    ]
    return min(heals, key=lambda heal: heal["t_ns"], default=None)


def of_one_step(fault: Row, heal: Row) -> bool:
    """ "of the same step, where both say of which" """
    return None in (fault.get("value"), heal.get("value")) or fault["value"] == heal["value"]


def healed_at(facts: Facts, fault: Row) -> int | None:
    """When a fault was healed: at its heal, or, where its host did that by itself, when that was due."""
    first = first_heal(facts, fault)
    if first is None:
        return None
    ttl = detail(fault, "ttl_s")
    if detail(first, "by") == "time-to-live" and ttl is not None:
        return int(min(first["t_ns"], fault["t_ns"] + round(float(ttl) * 1e9)))
    return int(first["t_ns"])


def healed_by_itself(facts: Facts, fault: Row) -> bool:
    """Whether its host healed a fault, and it is not said after how long."""
    first = first_heal(facts, fault)
    return first is not None and detail(first, "by") == "time-to-live" and detail(fault, "ttl_s") is None


def heal_uncertainty(facts: Facts, fault: Row) -> int:
    """How uncertain that is."""
    first = first_heal(facts, fault)
    return 0 if first is None else int(first["uncertainty_ns"])


def hits_on_active(facts: Facts) -> list[tuple[Row, Epoch]]:
    """ "each fault on an instance that is active", with the epoch that it hit."""
    hits = []
    for fault in facts.events:
        if fault["kind"] != "fault" or fault.get("instance") is None or fault.get("name") == "arm":
            continue
        own = [e for e in facts.epochs if e.instance == fault["instance"] and e.begin <= fault["t_ns"]]
        own = [e for e in own if fault.get("store") in (None, e.store)]
        during = [epoch for epoch in own if epoch.covers(fault["t_ns"])]
        # "Where an epoch ended before the fault, and not if times were off, it is the fault that ended it"
        just_over = [epoch for epoch in own[-1:] if fault["t_ns"] - fault["uncertainty_ns"] < epoch.latest]
        hits += [(fault, epoch) for epoch in during or just_over]
    return hits


def fault_over(facts: Facts, begin: int, end: int) -> str | None:
    """ "with the fault it falls under": the last one before the span's end that was not healed before its begin."""
    name = None
    # "What has the same time": faults by name, instance and target
    known = [(e["t_ns"], *(e.get(word) or "" for word in ("name", "instance", "target"))) for e in facts.events]
    for _, fault in sorted(zip(known, facts.events, strict=True), key=lambda pair: pair[0]):
        if fault["kind"] != "fault" or fault["t_ns"] > end:
            continue
        heal = healed_at(facts, fault)
        if heal is None or heal >= begin:
            name = fault.get("name")
    return name
