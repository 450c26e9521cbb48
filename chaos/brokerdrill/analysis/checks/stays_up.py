"""stays_up: no process ends but by the drill's doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokerdrill.analysis.checks.finding import Finding, worst
from brokerdrill.analysis.timeline import Timeline

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
    whole = {
        log.instance
        for log in times.logs
        if not log.lost
        and (log.since is None or begin is None or log.since <= begin)
        and (log.until is None or over is None or over <= log.until)
    }
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
