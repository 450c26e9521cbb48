"""alerted_within: an alert fires within the bound of each fault, and clears within the bound of its heal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from brokerdrill.analysis.checks.finding import BUSY, CLOCKS, Finding, milliseconds
from brokerdrill.analysis.events import NEVER, Alert, Fault
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.analysis.watching import stalled
from brokerdrill.ledger.contract import PREPARATIONS

NAME = "alerted_within"


def find(times: Timeline, alert: str, bound: int) -> Finding:
    """Return what a run's alerts of the name `alert` say of the promise, `bound` in ns.

    A fault is not judged that the alert had fired before, or that was healed before the bound was over without the
    alert; nor is what would have come while nobody asked for alerts. Such a one forbids that the promise passes.
    """
    finding = Finding()
    broken: list[dict[str, Any]] = []
    for fault in times.faults:
        if fault.name in PREPARATIONS:
            continue
        about = [one for one in times.alerts if one.name == alert and one.concerns(fault)]
        answer = _answer(times, fault, about, bound)
        if isinstance(answer, str):
            finding.doubted(answer)
            continue
        took, cleared, late = answer
        finding.evidence = True
        known = [one for one in (took, cleared) if one is not None]
        if known:
            finding.measured = max(finding.measured or 0.0, max(known) / 1e6)
        if late:
            finding.n += 1
            finding.moments.append(fault.at)
            broken.append(
                {
                    # What never came is worst of all.
                    "weight": NEVER if cleared is None and (took is None or took <= bound) else max(known),
                    "alert": alert,
                    "fault": fault.name,
                    "instance": fault.instance,
                    "store": fault.store,
                    "t_ns": fault.at,
                    "fired_ms": milliseconds(took),
                    "cleared_ms": milliseconds(cleared),
                }
            )
    if all(fault.name in PREPARATIONS for fault in times.faults):
        finding.doubted("no fault was injected")
    finding.judged_from = {"watched": [list(span) for span in times.alerts_watched]}
    finding.broken_by(broken)
    return finding


class Answer(NamedTuple):
    """How an alert answered a fault: after what time it fired, and after what time it cleared once the fault was healed
    (ns; None: never, or there was nothing to wait for); `late`: one of these was beyond the bound."""

    took: int | None
    cleared: int | None
    late: bool


def _answer(times: Timeline, fault: Fault, about: Sequence[Alert], bound: int) -> Answer | str:
    """How the alerts `about` a fault answered it; why that is not known, in words."""
    if any(_was_firing(one, fault) for one in about):
        return "the alert fired already when the fault came"
    raised = min((one.at for one in about if not _is_over(one, fault)), default=None)
    if raised is None:
        return _missed(times, fault, None, bound)
    took = max(0, raised - fault.at)
    off = fault.u + max((one.at_u for one in about if one.at == raised), default=0)
    if took - off <= bound < took + off:
        return CLOCKS
    if bound < took and stalled(times.pressures, fault.at, fault.at + took) >= took - bound:
        return BUSY
    if took > bound:
        return _missed(times, fault, took, bound)
    if not _watched(times, fault.at, 0):
        return "nobody watched the alerts when the fault came"
    if fault.vague:
        return "it is not known when the fault was healed"
    if fault.healed_at is None:
        return Answer(took, None, False)
    until = _quiet_from(about, fault.healed_at)
    cleared = None if until is None else until - fault.healed_at
    late = cleared is None or cleared > bound
    if cleared and (why := _unsure(times, fault, about, cleared, bound)):
        return why
    if late and not _watched(times, fault.healed_at, bound):
        return "nobody watched the alerts for as long as the bound after the heal"
    if cleared is not None and not late and not _watched(times, fault.healed_at, cleared):
        return "nobody watched the alerts between the heal and the alert's end"
    return Answer(took, cleared, late)


def _unsure(times: Timeline, fault: Fault, about: Sequence[Alert], cleared: int, bound: int) -> str | None:
    """Why it is not known whether alerts were over within the bound after the heal; None: it is."""
    assert fault.healed_at is not None
    quiet = fault.healed_at + cleared
    off = fault.healed_u + max((one.cleared_u for one in about if one.cleared_at == quiet), default=0)
    if cleared - off <= bound < cleared + off:
        return CLOCKS
    busy = bound < cleared and stalled(times.pressures, fault.healed_at, quiet) >= cleared - bound
    return BUSY if busy else None


def _missed(times: Timeline, fault: Fault, took: int | None, bound: int) -> Answer | str:
    """The answer that no alert in time is, if one could have been seen."""
    lasted = fault.healed_at is None or fault.healed_at >= fault.at + bound
    if not lasted or not _watched(times, fault.at, bound):
        return "the fault was over before the bound, or nobody watched the alerts for so long"
    return Answer(took, None, True)


def _was_firing(one: Alert, fault: Fault) -> bool:
    """Whether the alert fired before the fault, for certain, and still did when it came, perhaps."""
    over = one.cleared_at is not None and one.cleared_at + one.cleared_u < fault.at - fault.u
    return one.at + (one.at_u if one.least_u is None else one.least_u) < fault.at - fault.u and not over


def _is_over(one: Alert, fault: Fault) -> bool:
    return one.cleared_at is not None and one.cleared_at < fault.at


def _quiet_from(alerts: Sequence[Alert], begin: int) -> int | None:
    """Return the first time from `begin` on at which none of `alerts` (by begin) fires; None: one fires to the end."""
    at = begin
    for one in alerts:
        if one.at <= at and (one.cleared_at is None or one.cleared_at > at):
            if one.cleared_at is None:
                return None
            at = one.cleared_at
    return at


def _watched(times: Timeline, begin: int, length: int) -> bool:
    """Whether it is known of all the time from `begin`, `length` ns long, which alerts fired."""
    return any(since <= begin and begin + length <= until for since, until in times.alerts_watched)
