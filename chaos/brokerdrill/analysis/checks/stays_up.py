"""stays_up: no process ends but by the drill's doing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from brokerdrill.analysis.checks.finding import Finding, worst
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.ledger.coverage import RESTART_HOST

NAME = "stays_up"


def find(times: Timeline, stores: Mapping[str, Sequence[str]]) -> Finding:
    """Return what a run's ends of processes say of the promise: one that neither a fault nor an operation explains
    breaks, one that an operation may explain casts doubt. Evidence are logs: each instance that may serve a store, has
    a role or was hit has to have been read, whole; the first ends are the worst, for later ones may follow from
    them."""
    unplanned = [one for one in times.endings if not one.meant and not one.doubted]
    named = {instance for instances in stores.values() for instance in instances}
    named |= {event.instance for event in times.roles if event.instance}
    named |= {fault.instance for fault in times.faults if fault.instance}
    begin = times.loads[0][0] if times.loads else None
    over = times.drain_end
    whole = {one for one in {log.instance for log in times.logs} if _whole(one, times, begin, over)}
    finding = Finding(
        n=len(unplanned),
        excused=sum(one.meant for one in times.endings),
        evidence=bool(times.logs),
        moments=[one.at for one in unplanned],
        judged_from={"logs": sorted(whole), "unread": sorted(named - whole)},
        witnesses=worst(
            {
                "weight": -one.at,
                "instance": one.instance,
                "at_ns": one.at,
                "how": one.how,
                "status": one.status,
                "last": one.last,
            }
            for one in unplanned
        ),
    )
    if unread := sorted(named - whole):
        finding.doubted(f"the log of {', '.join(unread)} was not read, or not whole")
    if any(one.doubted for one in times.endings):
        finding.doubted("a process ended while a playbook ran, and it is not said on which instances that worked")
    return finding


def _whole(instance: str, times: Timeline, begin: int | None, over: int | None) -> bool:
    """Return whether nothing was missed in what was read of the instance's log from `begin` to `over`. While its host
    is started anew, from the fault to its heal, there is nothing that has to be read."""
    logs = [log for log in times.logs if log.instance == instance]
    if any(log.lost for log in logs):
        return False
    spans = [
        (-math.inf if one.since is None else one.since, math.inf if one.until is None else one.until) for one in logs
    ]
    spans += [
        (one.at - one.u, one.healed_at)
        for one in times.faults
        if one.name == RESTART_HOST and one.instance == instance and one.healed_at is not None
    ]
    start = min(since for since, _ in spans) if begin is None else begin
    read_to, seen = start, False
    for since, until in sorted(spans):
        if since <= read_to and start <= until:
            read_to, seen = max(read_to, until), True
    return seen and (over is None or over <= read_to)
