"""single_active: at most one instance serves a store."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.epochs import Epoch
from tests.analysis.oracle.facts import Facts, between, load_phases, store_of
from tests.analysis.oracle.faults import heal_uncertainty, healed_at, healed_by_itself
from tests.analysis.oracle.logs import log_tells_all
from tests.analysis.oracle.rows import NEVER, Row, detail, ended, entry


def single_active(facts: Facts, spec: PromiseSpec) -> Row:
    """At most one instance serves a store."""
    sends = [{**op, "served": store_of(facts, op)} for op in facts.of("send") if op["outcome"] == "ok"]
    witnesses, open_ones = intruders(facts, sends)
    # "two instances' certain active intervals (epochs shrunk by their uncertainty) on one store overlap"
    spans = [(sooner, (sooner + later) / 2) for sooner, later in pairwise(changes(facts))]
    for one, other in combinations(facts.epochs, 2):
        if one.store != other.store or one.instance == other.instance:
            continue
        certain = [begin for begin, at in spans if active(facts, one, at, 1) and active(facts, other, at, 1)]
        if certain:
            both = sorted({one.instance, other.instance})
            witnesses.append({"store": one.store, "instances": both, "at": certain[0]})
        # "widened by them they do: they may"
        elif any(active(facts, one, at, -1) and active(facts, other, at, -1) for _, at in spans):
            open_ones += 1
    open_ones += sum(unseen_beside_another(facts, *span) for span in not_watched(facts))
    # "a null broker where one is needed"
    blind = not facts.epochs or any(send["served"] is None for send in sends)
    # "of several that may serve a store nobody knew any role"
    told = {event.get("instance") for event in facts.events if event["kind"] == "role"}
    blind |= any(len(set(named)) > 1 and not told & set(named) for named in facts.run.stores.values())
    verdict = "fail" if witnesses else "unknown" if blind or open_ones else "pass"
    return entry(spec, verdict, len(witnesses), witnesses=witnesses)


def intruders(facts: Facts, sends: Sequence[Row]) -> tuple[list[Row], int]:
    """Return a witness of each, and how many more there may be: "an ok send served by Y lies wholly between two ok
    sends served by X for the same store within one epoch of X" """
    witnesses: list[Row] = []
    open_ones = 0
    for y in sends:
        if y["served"] is None:
            continue
        for epoch in facts.epochs:
            if epoch.store != y["served"] or epoch.instance == y["instance"]:
                continue
            until = facts.end if epoch.end is None else epoch.end
            of_x = [x for x in sends if x.get("instance") == epoch.instance and x["served"] == epoch.store]
            of_x = [x for x in of_x if epoch.begin <= x["start_ns"] and ended(x) <= until]
            off = {id(x): between(facts, x, y) for x in of_x}
            if any(ended(x) + off[id(x)] < y["start_ns"] for x in of_x) and any(
                ended(y) + off[id(x)] < x["start_ns"] for x in of_x
            ):
                intruder = {"message_id": y.get("message_id"), "address": y.get("address"), "store": epoch.store}
                witnesses.append({**intruder, "at": y["start_ns"]})
                break
            if any(ended(x) - off[id(x)] < y["start_ns"] for x in of_x) and any(
                ended(y) - off[id(x)] < x["start_ns"] for x in of_x
            ):
                open_ones += 1  # "if the clocks were off, it may be one"
    return witnesses, open_ones


def active(facts: Facts, epoch: Epoch, at: float, sign: int) -> bool:
    """Whether the epoch's instance was active at that moment: for certain (sign 1), or perhaps (-1)."""
    until = facts.end if epoch.end is None else epoch.end
    if sign > 0 and not epoch.begin + epoch.begin_uncertainty < at < until - epoch.end_uncertainty:
        return False
    # "while nobody knew its role it was not active for certain"
    if sign > 0 and any(
        one == epoch.instance and begin < at < end
        for one, begin, end in not_watched(facts)
        if not told_by_its_log(facts, one, begin, end)
    ):
        return False
    if sign < 0 and not epoch.earliest < at < min(epoch.latest, facts.end if epoch.end is None else NEVER):
        return False
    # "while a kill, a stop or a pause on it is in effect an instance is not active"
    for fault in facts.events:
        if fault["kind"] == "fault" and fault.get("name") in ("kill", "stop", "pause"):
            # "give or take the fault's uncertainty at its begin, and its heal's at its end"
            heal, off = healed_at(facts, fault), sign * fault["uncertainty_ns"]
            late = sign * heal_uncertainty(facts, fault)
            if sign < 0 and healed_by_itself(facts, fault):
                heal, late = fault["t_ns"], 0
            halted = fault["t_ns"] - off <= at and (heal is None or at <= heal + late)
            # "an epoch that began after it is of a process that was started anew"
            anew = epoch.begin - epoch.begin_uncertainty > fault["t_ns"] + fault["uncertainty_ns"]
            if halted and not anew and fault.get("instance") == epoch.instance:
                return False
    return True


def changes(facts: Facts) -> list[float]:
    """The moments at which it may change who is active, in order; between two of them nothing does."""
    return sorted(
        {
            time + sign * off
            for epoch in facts.epochs
            for time, off in (
                (epoch.begin, epoch.begin_uncertainty),
                (facts.end if epoch.end is None else epoch.end, epoch.end_uncertainty),
            )
            for sign in (1, -1)
        }
        | {time for _, *span in not_watched(facts) for time in span}
        | {time for epoch in facts.epochs for time in (epoch.earliest, epoch.latest) if abs(time) < NEVER}
        | {
            time + sign * off
            for fault in facts.events
            if fault["kind"] == "fault"
            for time, off in (
                (fault["t_ns"], fault["uncertainty_ns"]),
                (fault["t_ns"], 0),
                (healed_at(facts, fault), heal_uncertainty(facts, fault)),
            )
            if time is not None
            for sign in (1, -1)
        }
    )


def silent(facts: Facts) -> list[tuple[str, int, int]]:
    """ "from `silent` to `answers`, and the gaps of polls" """
    spans: list[tuple[str, int, int]] = []
    for instance in sorted({e["instance"] for e in facts.events if e.get("instance") is not None}):
        since = None
        for event in facts.events:
            if event.get("instance") != instance:
                continue
            if event["kind"] == "health" and event.get("value") == "silent" and since is None:
                since = event["t_ns"]
            elif event["kind"] == "health" and event.get("value") == "answers" and since is not None:
                spans.append((instance, since, event["t_ns"]))
                since = None
            elif event["kind"] == "polls" and detail(event, "gaps"):
                for gap in str(detail(event, "gaps")).split(", "):
                    begin, end = gap.split("-")
                    spans.append((instance, int(begin), int(end)))
        if since is not None:
            spans.append((instance, since, facts.end))
    return [span for span in spans if span[1] < span[2]]


def not_watched(facts: Facts) -> list[tuple[str, int, int]]:
    """Also "in the load before the first role that is told of it"."""
    spans = silent(facts)
    # "in the load before the first role that is told of it"
    begin = min((begin for begin, _ in load_phases(facts)), default=None)
    for instance in sorted({one for named in facts.run.stores.values() if len(set(named)) > 1 for one in named}):
        roles = [e for e in facts.events if e["kind"] == "role" and e.get("instance") == instance]
        first = min((role["t_ns"] - role["uncertainty_ns"] for role in roles), default=facts.end)
        if begin is not None:
            spans.append((instance, begin, first))
    return [span for span in spans if span[1] < span[2]]


def unseen_beside_another(facts: Facts, instance: str, begin: int, end: int) -> bool:
    """Whether nobody can tell that the instance was not active as another one of its store was."""
    own = {store for store, named in facts.run.stores.items() if instance in named}
    own |= {epoch.store for epoch in facts.epochs if epoch.instance == instance}
    others = [epoch for epoch in facts.epochs if epoch.store in own and epoch.instance != instance]
    # "or may have been": at some moment of that time
    marks = sorted({begin, end, *(at for at in changes(facts) if begin < at < end)})
    if not any(
        (epoch.begin < end and begin < (facts.end if epoch.end is None else epoch.end))
        or any(active(facts, epoch, (sooner + later) / 2, -1) for sooner, later in pairwise(marks))
        for epoch in others
    ):
        return False
    # "a process that a fault has halted serves nobody": it was halted, for certain, at each moment
    halts = []
    for fault in facts.events:
        if fault["kind"] != "fault" or fault.get("instance") != instance or healed_by_itself(facts, fault):
            continue
        if fault.get("name") in ("kill", "stop", "pause"):
            heal = healed_at(facts, fault)
            until = None if heal is None else heal - heal_uncertainty(facts, fault)
            halts.append((fault["t_ns"] + fault["uncertainty_ns"], until))
    moments = {begin, end, *(at for halt in halts for at in halt if at is not None and begin < at < end)}
    middles = [(sooner + later) / 2 for sooner, later in pairwise(sorted(moments))]
    if all(any(since <= at and (heal is None or at <= heal) for since, heal in halts) for at in middles):
        return False
    return not told_by_its_log(facts, instance, begin, end)


def begun_unseen(facts: Facts) -> None:
    """ "What is first seen when nobody had known its role may have begun at that time's begin": but for what `earliest`
    has learned of earlier roles, and of its log."""
    silences = [one for one in silent(facts) if not told_by_its_log(facts, *one)]
    for epoch in facts.epochs:
        off = epoch.begin_uncertainty
        begins = [
            begin
            for one, begin, end in silences
            if one == epoch.instance and begin <= epoch.begin + off and epoch.begin - off <= end
        ]
        if not begins or epoch.bounded > epoch.begin - off:
            continue
        epoch.earliest = max(epoch.bounded, min(epoch.begin - off, *begins))


def told_by_its_log(facts: Facts, instance: str, begin: int, end: int) -> bool:
    """ "its log tells its roles, and was read of that time, whole" """
    told = any(e["kind"] == "role" and e.get("instance") == instance and e.get("name") == "log" for e in facts.events)
    return told and log_tells_all(facts, instance, begin, end)
