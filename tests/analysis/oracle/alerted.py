"""alerted_within: an alert fires for each fault, and is over after its heal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.facts import Facts, waited
from tests.analysis.oracle.faults import first_heal, healed_at, healed_by_itself
from tests.analysis.oracle.rows import MS, NEVER, Row, entry, in_ms


@dataclass
class Heard:
    """What was said of alerts, in its order, and when somebody listened (notes `alerts watched`)."""

    alerts: list[Row]
    marks: list[Row]
    run_end: int

    def firing(self, alert: Row, at: float) -> bool:
        """Whether the last that was said of this alert up to `at` is that it fires."""
        said = [e for e in self.alerts if same(e, alert) and e["t_ns"] <= at]
        return bool(said) and said[-1]["value"] == "firing"

    def begins(self, alert: Row) -> bool:
        """Whether it did not fire yet just before that was said; what says so at the same time is not before."""
        said = [e for e in self.alerts[: self.alerts.index(alert)] if same(e, alert)]
        said = [e for e in said if (e["t_ns"], e["value"]) != (alert["t_ns"], alert["value"])]
        return alert["value"] == "firing" and not (said and said[-1]["value"] == "firing")

    def ends(self, alert: Row) -> float:
        """When it did not fire any more."""
        return self.end_of(alert)[0]

    def end_of(self, alert: Row) -> tuple[float, int]:
        """When it did not fire any more, and how uncertain that is."""
        of_same = [e for e in self.alerts if same(e, alert)]
        later = of_same[of_same.index(alert) + 1 :]
        return min(((e["t_ns"], e["uncertainty_ns"]) for e in later if e["value"] != "firing"), default=(NEVER, 0))

    def watched(self, begin: float, end: float) -> bool:
        for place, mark in enumerate(self.marks):
            until = self.marks[place + 1]["t_ns"] if place + 1 < len(self.marks) else self.run_end
            if mark.get("value") == "begin" and mark["t_ns"] <= begin and end <= until:
                return True
        return False


def same(one: Row, other: Row) -> bool:
    """Whether two events are of one alert."""
    return all(one.get(name) == other.get(name) for name in ("name", "instance", "store"))


def alerted_within(facts: Facts, spec: PromiseSpec) -> Row:
    """ "from each fault until the alert fires, and from its heal until no such alert does" """
    bound = 0 if spec.bound_ms is None else round(spec.bound_ms * MS)
    events = sorted(facts.events, key=lambda e: (e["t_ns"], e.get("value") or ""))
    alerts = [event for event in events if event["kind"] == "alert"]
    marks = [event for event in events if event["kind"] == "note" and event.get("name") == "alerts watched"]
    heard = Heard(alerts, marks, facts.end)
    judged, doubt, times, broken = 0, False, [], []
    for fault in events:
        if fault["kind"] != "fault" or fault.get("name") == "arm":
            continue
        told = alerted(facts, heard, fault, spec.alert, bound)
        if told is None:
            doubt = True
            continue
        judged += 1
        times += told[0]
        if told[1]:
            at, instance = fault["t_ns"], fault.get("instance")
            broken.append({"fault": fault.get("name"), "instance": instance, "at": at})
    verdict = "fail" if broken else "pass" if judged and not doubt else "unknown"
    return entry(spec, verdict, len(broken), measured=max(times, default=None), witnesses=broken)


def not_known_when_over(facts: Facts, fault: Row, took: float, bound: int, ends: Sequence[tuple[float, int]]) -> bool:
    """ "clocks, busy hosts": whether alerts, which ended so, were over within the bound after the heal."""
    heal = first_heal(facts, fault)
    healed = healed_at(facts, fault)
    assert heal is not None and healed is not None
    off = heal["uncertainty_ns"] + max((u for at, u in ends if at == healed + took), default=0)
    if took - off <= bound < took + off:
        return True
    return took > bound and waited(facts, healed, int(healed + took)) >= took - bound


def alerted(facts: Facts, heard: Heard, fault: Row, name: str | None, bound: int) -> tuple[list[float], bool] | None:
    """The times in ms that it took to fire and to be over, and whether that is too long; None: nobody can tell."""
    at = fault["t_ns"]
    mine = [
        alert
        for alert in heard.alerts
        if alert.get("name") == name
        and all(alert.get(n) is None or fault.get(n) is None or alert[n] == fault[n] for n in ("instance", "store"))
    ]
    raised = [alert for alert in mine if heard.begins(alert)]
    earlier = [a for a in raised if a["t_ns"] + a["uncertainty_ns"] < at - fault["uncertainty_ns"]]
    # "perhaps by the clocks"
    if any(sum(heard.end_of(alert)) >= at - fault["uncertainty_ns"] for alert in earlier):
        return None
    still = [alert for alert in raised if heard.ends(alert) >= at]
    fired = min((max(alert["t_ns"] - at, 0) for alert in still), default=None)
    if fired is not None:
        first = min(alert["t_ns"] for alert in still)
        off = fault["uncertainty_ns"] + max(a["uncertainty_ns"] for a in still if a["t_ns"] == first)
        # "whatever the clocks were off by", "busy hosts"
        if fired - off <= bound < fired + off or (bound < fired and waited(facts, at, at + fired) >= fired - bound):
            return None
    times = [] if fired is None else [in_ms(fired)]
    healed = healed_at(facts, fault)
    if fired is None or fired > bound:
        if (healed is not None and healed < at + bound) or not heard.watched(at, at + bound):
            return None
        return times, True
    # it may have fired before the fault; of a heal that the host made by itself "nobody knows when"
    if not heard.watched(at, at) or healed_by_itself(facts, fault):
        return None
    if healed is None:
        return times, False
    moments = sorted({healed, *(e["t_ns"] for e in mine if e["t_ns"] > healed)})
    quiet = [t for t in moments if not any(heard.firing(alert, t) for alert in mine)]
    took = min(quiet) - healed if quiet else None
    late = took is None or took > bound
    if took and not_known_when_over(facts, fault, took, bound, [heard.end_of(alert) for alert in raised]):
        return None
    if not heard.watched(healed, healed + (bound if took is None or late else took)):
        return None
    return times + ([] if took is None else [in_ms(took)]), late
