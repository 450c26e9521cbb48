"""atomic: all or none of a transaction's messages are seen."""

from __future__ import annotations

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.facts import Facts
from tests.analysis.oracle.rows import Row, entry
from tests.analysis.oracle.units import settled


def atomic(facts: Facts, spec: PromiseSpec) -> Row:
    """ "all or none of a transaction's messages seen" """
    names = {
        a["txn"] for attempts in facts.attempts.values() for a in attempts if a["result"] != "fail" and a.get("txn")
    }
    witnesses: list[Row] = []
    judged, open_ones = 0, 0
    for name in sorted(names):
        seen, proving, missing, waiting = [], [], [], []
        begins: list[int] = []
        for unit in facts.units:
            effective = [a for a in unit.attempts if a["result"] != "fail"]
            if not any(a.get("txn") == name for a in effective):
                continue
            begins += [a["start_ns"] for a in effective]
            if unit.deliveries or unit.dead:
                seen.append(unit)
                if all(a.get("txn") == name for a in effective):
                    proving.append(unit)
                continue
            gone, drained = settled(facts, unit)
            if gone or all(a.get("durable") is False for a in unit.attempts):
                continue
            if drained:
                missing.append(unit)
            else:
                waiting.append(unit)
        if proving and missing:
            # "the first attempt of its messages that may have taken effect"
            witnesses.append({"txn": name, "seen": len(seen), "missing": len(missing), "at": min(begins)})
        if proving and waiting:
            open_ones += 1
        if len(seen) + len(missing) > 1:
            judged += 1
    verdict = "fail" if witnesses else "unknown" if open_ones or not judged else "pass"
    return entry(spec, verdict, len(witnesses), witnesses=witnesses)
