"""available: no address is without a success for longer than the bound."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.facts import Facts, acknowledged_sends, load_phases, uncertain, waited
from tests.analysis.oracle.faults import fault_over
from tests.analysis.oracle.rows import MS, NEVER, Row, ended, entry, in_ms


def available(facts: Facts, spec: PromiseSpec) -> tuple[Row, list[Row]]:
    """Return the promise's entry and its rows of `outages`."""
    bound = NEVER if spec.bound_ms is None else round(spec.bound_ms * MS)
    side = spec.side or "send"
    loads = load_phases(facts)
    off = 2 * max((uncertain(facts, clock) for clock in facts.run.clocks), default=0)
    successes: dict[str, list[int]] = defaultdict(list)
    if side == "send":
        for send in acknowledged_sends(facts):
            successes[send["address"]].append(send["acked_ns"])
    else:
        for (address, _), deliveries in facts.deliveries.items():
            successes[address] += [ended(delivery) for delivery in deliveries]
    dead = set(facts.run.dead_letters.values()) if side == "receive" else set()
    faults = [event for event in facts.events if event["kind"] == "fault" and event.get("name") != "arm"]
    doubt, seen = False, False
    spans, outages = [], []
    # "a load that stops and goes on is several"
    for begin, end in loads:
        # "a send (or receive) was under way there in the load: one that never returned still is"
        tried = {
            op["address"]
            for op in facts.of(side)
            if op.get("address") and op["start_ns"] <= end and (op.get("end_ns") is None or begin <= op["end_ns"])
        } - dead
        doubt |= bool({*facts.run.addresses, *facts.run.drained} - tried)
        for address in sorted(tried):
            # "no span between the ends of successive acknowledged sends"
            inside = sorted(at for at in successes[address] if begin <= at <= end)
            seen |= bool(inside)
            marks = [begin, *inside, end]
            for sooner, later in pairwise(marks):
                spans.append(later - sooner)
                if later - sooner > bound + off:
                    if waited(facts, sooner, later) >= later - sooner - bound:
                        doubt = True
                        continue
                    fault = fault_over(facts, sooner, later)
                    one = {"start_ns": sooner, "end_ns": later, "fault": fault, "address": address, "side": side}
                    outages.append(one)
                elif off and later - sooner > bound - off:
                    doubt = True
            # "what began with a fault was cut off by the load's end"
            cut = end - marks[-2] <= bound + off
            # "perhaps by the clocks"
            doubt |= cut and any(
                marks[-2] - fault["uncertainty_ns"] - off // 2 <= fault["t_ns"] < end + fault["uncertainty_ns"]
                for fault in faults
            )
    verdict = "fail" if outages else "pass" if seen and not doubt else "unknown"
    measured = in_ms(max(spans)) if spans else None
    return entry(
        spec, verdict, len(outages), measured=measured, witnesses=[{**row, "at": row["start_ns"]} for row in outages]
    ), outages
