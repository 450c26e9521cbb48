"""delivered_within: from a fault until what waited at the broker that it hit is delivered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.coverage import hit_stores
from tests.analysis.oracle.epochs import Epoch
from tests.analysis.oracle.facts import Facts, Unit, acknowledged_sends, busy, store_of, uncertain
from tests.analysis.oracle.faults import healed_at, healed_by_itself, hits_on_active
from tests.analysis.oracle.rows import MS, NEVER, Row, ended, entry, in_ms
from tests.analysis.oracle.units import classify


def delivered_within(facts: Facts, spec: PromiseSpec) -> Row:
    """ "What a broker had acknowledged and not delivered when a fault hit it" """
    bound = NEVER if spec.bound_ms is None else round(spec.bound_ms * MS)
    sends: dict[tuple[str, str], list[Row]] = {}
    for send in acknowledged_sends(facts):
        sends.setdefault((send["address"], send["message_id"]), []).append(send)
    longest: list[float] = []
    witnesses: list[Row] = []
    doubt = False
    for fault, hit in hits_on_active(facts):
        at, own = fault["t_ns"], fault["uncertainty_ns"]
        late, took_late = [], []
        for unit in facts.units:
            durable = any(a.get("durable") is not False for a in unit.attempts)
            if not durable or all(a.get("expires_ns") is not None for a in unit.attempts):
                continue
            certain = waited_there(facts, sends.get(unit.key[:2], []), fault, hit.store)
            if certain is None:
                continue
            since, back, done = handed_out(facts, unit, fault, hit)
            first = min(since, key=lambda d: (ended(d), d["client"], d["op_id"]), default=None)
            if done or (first is None and classify(facts, unit) not in ("lost", "unseen", "dead_lettered")):
                continue
            off = 0 if first is None else uncertain(facts, first["clock"])
            until = facts.end if first is None else ended(first)
            certain = certain and unit.sure and not back
            if first is None:
                certain = certain and classify(facts, unit) != "dead_lettered"
            else:
                certain = certain and until - off > at + own
                nobody = (first.get("instance") or first.get("broker")) is None
                certain = certain and not (nobody and until < halted_until(facts, fault, hit))
            took = until - at
            if certain:
                longest.append(took)
                # "and for longer than that somebody asked for it", "until another step's fault hit that store"
                over = min(until - off, next_fault(facts, fault, hit.store))
                if asked(facts, unit, at + own, over) > bound:
                    late.append({"message_id": unit.key[1], "at": at})
                    took_late.append(took)
                    continue
            # "uncertainty speaks for unknown"
            if took + off + own > bound or (first is None and took - own <= bound):
                doubt = True
        # "of a fault the longest wait decides whether busy hosts explain"
        if late and busy(facts, at, max(took_late), bound):
            doubt = True
        else:
            witnesses += late
    measured = in_ms(max(longest)) if longest else None
    verdict = "fail" if witnesses else "unknown" if doubt or not longest else "pass"
    return entry(spec, verdict, len(witnesses), measured=measured, witnesses=witnesses)


def waited_there(facts: Facts, sends: Sequence[Row], fault: Row, store: str) -> bool | None:
    """Whether an attempt was acknowledged for the store before the fault, for certain; None: none was, perhaps."""
    found: bool | None = None
    for send in sends:
        u = fault["uncertainty_ns"] + uncertain(facts, send["clock"])
        where = store_of(facts, {**send, "instance": send.get("instance") or send.get("broker")})
        if where not in (None, store) or send["acked_ns"] >= fault["t_ns"] + u:
            continue
        found = bool(found) or (where == store and send["acked_ns"] < fault["t_ns"] - u)
    return found


def handed_out(facts: Facts, unit: Unit, fault: Row, hit: Epoch) -> tuple[list[Row], bool, bool]:
    """The unit's deliveries since the fault; whether some were before it, and whether one of these was its end."""
    since: list[Row] = []
    before: list[Row] = []
    for delivery in unit.deliveries:
        u = fault["uncertainty_ns"] + uncertain(facts, delivery["clock"])
        who = delivery.get("instance") or delivery.get("broker")
        # "What the halted instance served until then it had handed out before"
        buffered = who == hit.instance and ended(delivery) < halted_until(facts, fault, hit)
        (before if buffered or ended(delivery) <= fault["t_ns"] - u else since).append(delivery)
    return since, bool(before), any(d["result"] in ("processed", "possibly") for d in before)


def halted_until(facts: Facts, fault: Row, hit: Epoch) -> float:
    """ "While a `kill`, a `stop` or a `pause` on it is in effect", and before it is active anew."""
    if fault.get("name") not in ("kill", "stop", "pause") or healed_by_itself(facts, fault):
        return float(fault["t_ns"])
    heal = healed_at(facts, fault)
    again = [e.earliest for e in facts.epochs if e.instance == hit.instance and e.begin > fault["t_ns"]]
    return min([NEVER if heal is None else heal, *again])


def next_fault(facts: Facts, fault: Row, store: str) -> float:
    """When another step's fault hit that store, or what all brokers need."""
    times = [NEVER]
    for other in facts.events:
        if other["kind"] != "fault" or other.get("name") == "arm" or other["t_ns"] <= fault["t_ns"]:
            continue
        if other.get("value") is not None and other.get("value") == fault.get("value"):
            continue
        stores = hit_stores(facts, other)
        if not stores or store in stores:
            times.append(other["t_ns"] - other["uncertainty_ns"])
    return min(times)


def asked(facts: Facts, unit: Unit, begin: float, end: float) -> float:
    """For how long of a time somebody asked for what is on the unit's address, for its subscription."""
    address, _, subscription = unit.key
    clients = {
        op["client"]
        for op in facts.of("receive")
        if (op.get("address"), op.get("subscription")) == (address, subscription)
    }
    spans: list[tuple[float, float]] = []
    for client in clients:
        own = sorted((op for op in facts.ops if op["client"] == client), key=lambda op: op["op_id"])
        stretches: list[list[Row]] = [[]]
        for op in own:
            stretches[-1].append(op)
            if op["op"] == "close":
                stretches.append([])
        for stretch in filter(None, stretches):
            spans.append(
                (
                    min(op["start_ns"] + uncertain(facts, op["clock"]) for op in stretch),
                    max(asks_until(op, own[-1]) - uncertain(facts, op["clock"]) for op in stretch),
                )
            )
    # The time within begin and end that lies in some span: between its edges, each at a time
    edges = sorted({begin, end, *(edge for span in spans for edge in span)})
    return sum(
        max(0, min(until, end) - max(since, begin))
        for since, until in pairwise(edges)
        if any(a <= since and until <= b for a, b in spans)
    )


def asks_until(op: Row, last: Row) -> float:
    """ "until their close, or their last operation's end": a call that never returned lasts on if it is the last."""
    if op["op"] == "close":
        return float(op["start_ns"])
    if op.get("end_ns") is not None:
        return float(op["end_ns"])
    return NEVER if op is last else float(op["start_ns"])
