"""failback_within: from the heal of a fault until the original instance is active again."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.facts import Facts, acknowledged_sends, waited
from tests.analysis.oracle.faults import healed_at, of_one_step
from tests.analysis.oracle.rows import MS, NEVER, Row, detail, entry, in_ms


@dataclass
class Failback:
    """A heal "of a fault on the original instance": when it was as far as is known, its first and its last possible
    moment, and when "that instance's next epoch" began, give or take; None: never."""

    heal: int
    earliest: int
    latest: int
    back: int | None
    give_or_take: int
    sooner: float = 0
    # "Another fault in effect": from when, at the earliest, to when.
    others: list[tuple[float, float]] = field(default_factory=list)


def failbacks(facts: Facts) -> list[Failback]:
    originals: dict[str, str] = {}
    for epoch in facts.epochs:
        originals.setdefault(epoch.store, epoch.instance)
    found = []
    for heal in facts.events:
        if heal["kind"] != "heal" or heal.get("instance") not in originals.values() or heal.get("name") == "arm":
            continue
        faults = [
            fault
            for fault in facts.events
            if fault["kind"] == "fault"
            and (fault.get("name"), fault.get("instance")) == (heal.get("name"), heal["instance"])
            and fault["t_ns"] < heal["t_ns"]
            and of_one_step(fault, heal)
        ]
        own = [epoch for epoch in facts.epochs if epoch.instance == heal["instance"]]
        if not faults:
            continue
        last = max(faults, key=lambda fault: fault["t_ns"])
        at, off = heal["t_ns"], heal["uncertainty_ns"]
        there = [epoch for epoch in own if epoch.covers(at)]
        if any(epoch.begin <= last["t_ns"] for epoch in there):
            continue
        again = there or [epoch for epoch in own if epoch.begin > at]
        back = min(again, key=lambda epoch: epoch.begin, default=None)
        one = Failback(at, at - off, at + off, back and back.begin, back.begin_uncertainty if back else 0)
        # "what is first seen when nobody had known its role may have begun at that time's begin"
        one.sooner = max(one.give_or_take, back.begin - back.earliest) if back else 0
        # "A heal that the host made by itself was at some time since the fault, and so was one before which the
        # instance was already active again"
        if detail(heal, "by") == "time-to-live" or (back is not None and back.begin < at - off):
            due = healed_at(facts, last)
            if due is not None and due < at:
                one.heal, one.earliest, one.latest = due, due, due + off
            else:
                one.earliest = last["t_ns"]
        # "while another fault on it is in effect it need not be back"
        until = NEVER if back is None else back.begin
        for other in facts.events:
            if other["kind"] != "fault" or other is last or other.get("name") == "arm" or other["t_ns"] >= until:
                continue
            on_it = heal["instance"] in {other.get("instance"), *str(detail(other, "toward") or "").split(", ")}
            on_host = other.get("instance") is None and other.get("target") is not None
            if on_it or (on_host and other.get("target") == last.get("target")):
                over = healed_at(facts, other)
                if over is None or over > one.heal:
                    began = other["t_ns"] - other["uncertainty_ns"]
                    one.others.append((began, min(NEVER if over is None else over, until)))
        found.append(one)
    return found


def failback_within(facts: Facts, spec: PromiseSpec) -> Row:
    """ "From the heal of a fault on the original instance to that instance's next epoch" """
    acked = [send["acked_ns"] for send in acknowledged_sends(facts)]
    bound = NEVER if spec.bound_ms is None else round(spec.bound_ms * MS)
    times: list[float] = []
    witnesses: list[Row] = []
    judged, doubt = 0, False
    for one in failbacks(facts):
        judged += 1
        until = facts.end if one.back is None else one.back
        # "that began before the bound was over, from the heal or from the end of such a fault"
        free: float = one.latest
        while late := [over for began, over in one.others if began <= free + bound and over > free]:
            free = max(late)
        least = max(0, until - one.sooner - free)
        most = until + one.give_or_take - one.earliest
        if one.back is not None:
            times.append(in_ms(max(0, one.back - one.heal)))
        if least <= bound:
            # "not active again by the end of the run", when the bound was not over
            doubt |= one.back is None or most > bound
        elif waited(facts, one.heal, until) >= least - bound:
            doubt = True
        elif one.back is None:
            witnesses.append({"at": one.heal, "client_gap_ms": None})
        else:
            # "the client gap is the longest span in it without an acknowledged send"
            marks = [one.heal, *(at for at in acked if one.heal < at < until), until]
            gap = max(later - sooner for sooner, later in pairwise(marks))
            witnesses.append({"at": one.heal, "client_gap_ms": in_ms(gap)})
    verdict = "fail" if witnesses else "pass" if judged and not doubt else "unknown"
    return entry(spec, verdict, len(witnesses), measured=max(times, default=None), witnesses=witnesses)
