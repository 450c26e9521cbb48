"""The rounds of a method that is repeated, side by side: what happened in each, and what broke there. Plain values."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from brokerdrill.analysis.checks.failover_within import DueFailover
from brokerdrill.analysis.checks.finding import Finding, milliseconds
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.ledger.contract import PREPARATIONS, PromiseSpec
from brokerdrill.ledger.verdict import Outage, Round


def place(times: Timeline, at: int) -> int | None:
    """Return the place of the round that a time is of; None: it is before the first one, or there is none."""
    found = bisect_right([one.start for one in times.rounds], at) - 1
    return found if found >= 0 else None


def broken(
    times: Timeline,
    specs: Sequence[PromiseSpec],
    findings: Sequence[Finding],
    counted: Iterable[tuple[str, int, int]],
) -> dict[int, dict[str, int]]:
    """Return how often each of the promises `specs` broke in each round, by its place: what `findings` have, and what
    the stages `counted` (promise, round, n). Promises that are kept there are left out."""
    asked = {spec.name for spec in specs}
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for promise, of, n in counted:
        if promise in asked:
            found[of][promise] += n
    for spec, finding in zip(specs, findings, strict=True):
        for at in finding.moments:
            if (of_event := place(times, at)) is not None:
                found[of_event][spec.name] += 1
    return {of: dict(sorted(counts.items())) for of, counts in found.items()}


def rounds_of(
    times: Timeline,
    failovers: Iterable[DueFailover],
    outages: Iterable[Outage],
    breaks: Mapping[int, Mapping[str, int]],
) -> list[Round]:
    """Return the rounds by time: their faults, the failover of the client that waited longest, the slowest failback,
    how many of the `outages` began in each, and how often each promise broke there (`breaks`)."""
    faults = Counter(place(times, one.at) for one in times.faults if one.name not in PREPARATIONS)
    over: dict[int | None, list[int]] = defaultdict(list)
    for one in failovers:
        if one.took is not None and not one.elsewhere:
            over[place(times, one.hit.fault.at)].append(one.took)
    back: dict[int | None, list[int]] = defaultdict(list)
    for due in times.failbacks:
        if due.back_at is not None:
            back[place(times, due.healed_at)].append(max(0, due.back_at - due.healed_at))
    out = Counter(place(times, outage.start_ns) for outage in outages)
    return [
        Round(
            round=one.name,
            start_ns=one.start,
            end_ns=one.end,
            faults=faults[number],
            failover_ms=milliseconds(max(over[number], default=None)),
            failback_ms=milliseconds(max(back[number], default=None)),
            outages=out[number],
            broken=breaks.get(number, {}),
        )
        for number, one in enumerate(times.rounds)
    ]
