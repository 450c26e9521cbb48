"""delivered_within: from a fault until what waited at the broker that it hit is delivered."""

from __future__ import annotations

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.facts import Facts, acknowledged_sends, busy, uncertain
from tests.analysis.oracle.faults import hits_on_active
from tests.analysis.oracle.rows import MS, NEVER, Row, ended, entry, in_ms
from tests.analysis.oracle.units import classify


def delivered_within(facts: Facts, spec: PromiseSpec) -> Row:
    """ "What a broker had acknowledged and not delivered when a fault hit it" """
    bound = NEVER if spec.bound_ms is None else round(spec.bound_ms * MS)
    acked = acknowledged_sends(facts)
    longest: list[float] = []
    witnesses: list[Row] = []
    doubt = False
    for fault, hit in hits_on_active(facts):
        t, own = fault["t_ns"], fault["uncertainty_ns"]
        there = {
            (send["address"], send["message_id"])
            for send in acked
            if (send.get("instance") or send.get("broker")) == hit.instance
            if send["acked_ns"] < t - own - uncertain(facts, send["clock"])  # "acknowledged before for certain"
        }
        late, waits = [], []
        for unit in facts.units:
            if unit.key[:2] not in there:
                continue
            durable = any(a.get("durable") is not False for a in unit.attempts)
            if not durable or all(a.get("expires_ns") is not None for a in unit.attempts):
                continue
            first = min(unit.deliveries, key=lambda d: (ended(d), d["client"], d["op_id"]), default=None)
            if first is None and classify(facts, unit) not in ("lost", "unseen"):
                continue
            took = (facts.end if first is None else ended(first)) - t
            if took <= 0:
                continue
            off = own + (0 if first is None else uncertain(facts, first["clock"]))
            waits.append(took)
            if took - off > bound:
                late.append({"message_id": unit.key[1], "at": t})
            elif first is None or took + off > bound:
                doubt = True
        longest += waits
        # "of a fault the longest wait decides whether busy hosts explain"
        if late and busy(facts, t, max(waits), bound):
            doubt = True
        else:
            witnesses += late
    measured = in_ms(max(longest)) if longest else None
    verdict = "fail" if witnesses else "unknown" if doubt or not longest else "pass"
    return entry(spec, verdict, len(witnesses), measured=measured, witnesses=witnesses)
