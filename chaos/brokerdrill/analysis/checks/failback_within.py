"""failback_within: an instance that lost its role to a fault is active again within the bound after the fault is
healed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokerdrill.analysis.checks.available import Slice, spans
from brokerdrill.analysis.checks.finding import BUSY, Finding, milliseconds
from brokerdrill.analysis.events import NEVER, Failback
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.analysis.watching import stalled

NAME = "failback_within"


def hindered_until(back: Failback, bound: int) -> int:
    """Return from when on the bound (ns) runs at the latest: the heal, or the end of another fault that was in effect
    before the bound was over."""
    latest = back.latest
    for begun, over in back.others:
        if begun <= latest + bound:
            latest = max(latest, over)
    return latest


def find(times: Timeline, acked: Mapping[int, Sequence[Slice]], bound: int) -> Finding:
    """Return what a run's failbacks say of the promise. One later than the bound (ns) breaks, if it is that whenever
    the fault was healed; so does one that had not come by the run's end, when the bound was over. What is late only
    perhaps, or is explained by hosts that were busy, casts doubt. `acked` has the acknowledged sends between heal and
    epoch, by the failback's number: "the client gap is the longest span in it without an acknowledged send"."""
    finding = Finding()
    broken = []
    for number, back in enumerate(times.failbacks):
        until = times.run_end if back.back_at is None else back.back_at
        took = max(0, until - back.healed_at)
        latest = hindered_until(back, bound)
        least = max(0, until - max(back.back_u, back.unseen) - latest)
        finding.evidence = True
        if back.back_at is not None:
            finding.measured = max(finding.measured or 0.0, took / 1e6)
        if least <= bound < until + back.back_u - back.earliest or (back.back_at is None and least <= bound):
            finding.doubted(
                f"another fault on {back.instance} was still in effect when one was healed"
                if latest > back.latest
                else "it is not known well enough when the fault was healed, or when it was active again"
                if back.back_at is not None
                else "the run ended before the bound was over"
            )
        elif least > bound and stalled(times.pressures, back.healed_at, until) >= least - bound:
            finding.doubted(BUSY)
        elif least > bound:
            finding.n += 1
            finding.moments.append(back.healed_at)
            longest, _ = spans(acked.get(number, ()), back.healed_at, until, None)
            broken.append(
                {
                    # What never came back is worst of all.
                    "weight": NEVER if back.back_at is None else took,
                    "fault": back.name,
                    "instance": back.instance,
                    "store": back.store,
                    "healed_ns": back.healed_at,
                    "active_ns": back.back_at,
                    "client_gap_ms": milliseconds(longest),
                }
            )
    if not times.failbacks:
        finding.doubted("no fault on an instance that was active before it was healed")
    finding.judged_from = {"failbacks": len(times.failbacks)}
    finding.broken_by(broken)
    return finding
