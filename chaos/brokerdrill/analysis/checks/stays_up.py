"""stays_up: no process ends but by the drill's doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokerdrill.analysis.checks.finding import Finding
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.analysis.watching import read_whole

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
    over = times.loads[-1][1] if times.drain_end is None and times.loads else times.drain_end
    whole = {
        one for one in {log.instance for log in times.logs} if read_whole(one, times.logs, times.faults, begin, over)
    }
    finding = Finding(
        n=len(unplanned),
        excused=sum(one.meant for one in times.endings),
        evidence=bool(times.logs),
        moments=[one.at for one in unplanned],
        judged_from={"logs": sorted(whole), "unread": sorted(named - whole)},
    )
    finding.broken_by(
        {
            "weight": -one.at,
            "instance": one.instance,
            "at_ns": one.at,
            "how": one.how,
            "status": one.status,
            "last": one.last,
        }
        for one in unplanned
    )
    if unread := sorted(named - whole):
        finding.doubted(f"the log of {', '.join(unread)} was not read, or not whole")
    for one in times.restarts:
        finding.doubted(f"{one.target} was started anew, and nothing explains it")
    if any(one.doubted for one in times.endings):
        finding.doubted("a process ended while a playbook ran, and it is not said on which instances that worked")
    return finding
