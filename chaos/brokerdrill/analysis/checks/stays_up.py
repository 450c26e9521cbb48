"""stays_up: no process ends but by the drill's doing."""

from __future__ import annotations

from brokerdrill.analysis.checks.finding import Finding, worst
from brokerdrill.analysis.timeline import Timeline

NAME = "stays_up"


def find(times: Timeline) -> Finding:
    """Return what a run's ends of processes say of the promise: one that neither a fault nor an operation explains
    breaks. Instances whose logs were read are evidence; the first ends are the worst, for later ones may follow from
    them."""
    unplanned = [one for one in times.endings if not one.meant]
    return Finding(
        n=len(unplanned),
        excused=len(times.endings) - len(unplanned),
        evidence=bool(times.logged),
        moments=[one.at for one in unplanned],
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
