"""failover_within: from a fault on an active instance until each of its clients is served again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.delivered import next_fault
from tests.analysis.oracle.epochs import Epoch
from tests.analysis.oracle.facts import Facts, acknowledged_sends, busy, deaths, epoch_of, store_of, uncertain
from tests.analysis.oracle.faults import healed_at, hits_on_active
from tests.analysis.oracle.rows import MS, NEVER, Row, ended, entry, in_ms


@dataclass
class Takeover:
    """A fault on an instance that was active, and what came after it."""

    fault: Row
    hit: Epoch
    following: list[Epoch]
    acked: list[Row]
    # Sends that were acknowledged, and "began after the fault plus its uncertainty"
    begun: list[Row]

    @property
    def successor(self) -> Epoch | None:
        """ "the next epoch on that store" """
        return min(self.following, key=lambda epoch: epoch.begin, default=None)


@dataclass
class Told:
    """What is told of all failovers so far."""

    parts: list[Row] = field(default_factory=list)
    witnesses: list[Row] = field(default_factory=list)
    blind: bool = False
    doubt: bool = False


def failover_within(facts: Facts, spec: PromiseSpec) -> tuple[Row, list[Row]]:
    """Return the promise's entry and the rows of `failover`."""
    acked = acknowledged_sends(facts)
    bound = NEVER if spec.bound_ms is None else round(spec.bound_ms * MS)
    told = Told()
    hits = hits_on_active(facts)
    for fault, hit in hits:
        t = fault["t_ns"]
        following = [e for e in facts.epochs if e.store == hit.store and e.begin > t]
        begun = [send for send in acked if send["start_ns"] > t + fault["uncertainty_ns"]]
        takeover = Takeover(fault, hit, following, acked, begun)
        if served_on(facts, takeover, hits):
            continue
        clients = sorted({op["client"] for op in facts.of("send")})
        tried = [judge_client(facts, takeover, client, bound, told) for client in clients]
        told.doubt |= not any(tried)  # "a fault after which nobody tried to send"
    # "measured is the worst client's"
    measured = max((part["first_send_ms"] for part in told.parts), default=None)
    # "no failover happened"
    unknown = told.blind or told.doubt or not told.parts
    verdict = "fail" if told.witnesses else "unknown" if unknown else "pass"
    return entry(spec, verdict, len(told.witnesses), measured=measured, witnesses=told.witnesses), told.parts


def served_on(facts: Facts, takeover: Takeover, hits: Sequence[tuple[Row, Epoch]]) -> bool:
    """Whether who was hit served on: "no failover happened" """
    t, hit, successor = takeover.fault["t_ns"], takeover.hit, takeover.successor
    until = NEVER if successor is None else successor.begin
    again = any(other is not takeover.fault and epoch is hit and t < other["t_ns"] < until for other, epoch in hits)
    after_all = any(epoch_of(facts, send) is hit for send in takeover.begun)
    return after_all and (again or (hit.end is None and successor is None))


def outlasted(facts: Facts, takeover: Takeover) -> bool:
    """ "an epoch that outlasted the fault and its heal, before the next one began: something else may have ended
    it" """
    heal, hit, successor = healed_at(facts, takeover.fault), takeover.hit, takeover.successor
    return (
        heal is not None
        and successor is not None
        and hit.end is not None
        and heal < hit.end - hit.end_uncertainty
        and heal < successor.begin - successor.begin_uncertainty
    )


def judge_client(facts: Facts, takeover: Takeover, client: str, bound: float, told: Told) -> bool:
    """Tell of one client how long it waited to be served again; return whether it tried to be."""
    t, store = takeover.fault["t_ns"], takeover.hit.store
    clocks = {op["clock"] for op in facts.of("send", "connect", "prepare", "commit") if op["client"] == client}
    off = takeover.fault["uncertainty_ns"] + max(uncertain(facts, clock) for clock in clocks)
    before = served_before(facts, takeover, client)
    connects = [op["start_ns"] for op in facts.of("connect") if op["client"] == client]
    if not before and connects and min(connects) > t:
        return False
    own = [send for send in takeover.begun if send["client"] == client]
    served = [send for send in own if epoch_of(facts, send) in takeover.following]
    first = served[0] if served else None
    # "served by another store meanwhile, it does not wait for this one"
    away = [send for send in own if store_of(facts, send) not in (None, store)]
    elsewhere = bool(away) and (first is None or away[0]["acked_ns"] < first["acked_ns"])
    first = away[0] if elsewhere else first
    nameless = [send for send in own if store_of(facts, send) is None]
    if any(first is None or send["acked_ns"] < first["acked_ns"] for send in nameless):
        told.blind = True  # "a null broker where one is needed"
        return not elsewhere
    if elsewhere and not before:
        return False
    # "served for that store meanwhile by one of which it is not known that it took over after the fault"
    known = [takeover.hit, *takeover.following]
    strange = [send for send in own if store_of(facts, send) == store and epoch_of(facts, send) not in known]
    unseen = bool(strange) and (first is None or min(send["acked_ns"] for send in strange) < first["acked_ns"])
    # "another step's fault that hits that store, or what all brokers need, before the bound was over"
    within = t + takeover.fault["uncertainty_ns"] + bound
    may_be_others = outlasted(facts, takeover) or next_fault(facts, takeover.fault, store) <= within
    if first is None:
        # "… and tries on past the bound without success breaks it"
        in_vain = hanging_until(facts, client, t) - t
        if not before or in_vain <= off:
            told.doubt |= unseen
            return False
        if (
            in_vain + off <= bound
            or in_vain - off <= bound
            or unseen
            or may_be_others
            or busy(facts, t, in_vain, bound)
        ):
            told.doubt = True
        else:
            told.witnesses.append({"client": client, "at": t})
        return True
    took = first["acked_ns"] - t
    # "broken if it is longer whatever the clocks were off by, and busy hosts do not explain it"
    if took - off <= bound < took + off or (took > bound and (unseen or may_be_others or busy(facts, t, took, bound))):
        told.doubt = True
    elif took > bound:
        told.witnesses.append({"client": client, "at": t})
    if not elsewhere:
        told.parts.append(part(facts, takeover, client, took))
    return not elsewhere


def served_before(facts: Facts, takeover: Takeover, client: str) -> bool:
    """Whether it is "a client whom that store served last before the fault, as far as is known: a send was
    acknowledged, or a connect that was ok reached it" """
    joined = [op for op in facts.of("connect") if op["client"] == client and op["outcome"] == "ok"]
    reached = [(ended(op), store_of(facts, op)) for op in joined]
    reached += [(send["acked_ns"], store_of(facts, send)) for send in takeover.acked if send["client"] == client]
    known = [(at, store) for at, store in reached if store is not None and at <= takeover.fault["t_ns"]]
    return bool(known) and max(known)[1] == takeover.hit.store


def part(facts: Facts, takeover: Takeover, client: str, took: int) -> Row:
    """A row of `failover`: the parts of the time that it took."""
    t, successor = takeover.fault["t_ns"], takeover.successor
    deliveries = [
        ended(d)
        for received in facts.deliveries.values()
        for d in received
        if ended(d) > t + takeover.fault["uncertainty_ns"] and epoch_of(facts, d) in takeover.following
    ]
    seen = detected_at(facts, t, takeover.hit, successor)
    return {
        "fault": takeover.fault.get("name"),
        "t_ns": t,
        "client": client,
        "detection_ms": None if seen is None else in_ms(seen - t),
        "activation_ms": None if successor is None else in_ms(successor.begin - t),
        "first_send_ms": in_ms(took),
        "first_delivery_ms": in_ms(min(deliveries) - t) if deliveries else None,
    }


def hanging_until(facts: Facts, client: str, t: int) -> int:
    """Until when a client tried to be served by a broker; "a call that never returned lasts to the run's end, if it
    began after the fault or the client began nothing after it"."""
    own = [op for op in facts.of("send", "connect", "prepare", "commit") if op["client"] == client]
    newest = max(op["start_ns"] for op in own)
    # "in vain": what succeeded was not
    acked = {send["op_id"] for send in acknowledged_sends(facts) if send["client"] == client}
    lasts = [t]
    # "of a client that was killed to its death"
    dead = deaths(facts).get(client)
    for op in own:
        if op["op_id"] in acked if op["op"] == "send" else op["outcome"] == "ok":
            continue
        if dead is not None and op.get("end_ns") is None:
            lasts.append(dead)
            continue
            continue
        hanging = op.get("end_ns") is None and (op["start_ns"] > t or op["start_ns"] == newest)
        lasts.append(facts.end if hanging else ended(op))
    return max(lasts)


def detected_at(facts: Facts, t: int, hit: Epoch, successor: Epoch | None) -> int | None:
    """When the first sign says that the fault at `t` was noticed."""
    if successor is None:
        return None
    for event in facts.events:
        if not t <= event["t_ns"] <= successor.begin:
            continue
        there = event.get("store") == hit.store or event.get("instance") == successor.instance
        if event["kind"] in ("note", "health") and event.get("name") == "detected" and there:
            return event["t_ns"]
        if event["kind"] == "role" and event["value"] == "starting" and event["instance"] == successor.instance:
            return event["t_ns"]
    return max(t, hit.end) if hit.end is not None and hit.end <= successor.begin else None
