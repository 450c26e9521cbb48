"""failback_within: an instance that lost its role to a fault is active again within the bound after the fault is
healed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokerdrill.analysis.checks.available import Slice, spans
from brokerdrill.analysis.checks.finding import Finding, milliseconds, worst
from brokerdrill.analysis.timeline import NEVER, Timeline

NAME = "failback_within"


def find(times: Timeline, acked: Mapping[int, Sequence[Slice]], bound: int) -> Finding:
    """Return what a run's failbacks say of the promise: one later than the bound (ns) breaks, and one that did not
    come by the run's end. `acked` has the acknowledged sends between heal and epoch, by the failback's number: "the
    client gap is the longest span in it without an acknowledged send"."""
    finding = Finding()
    broken = []
    for number, back in enumerate(times.failbacks):
        until = times.run_end if back.back_at is None else back.back_at
        took = until - back.healed_at
        finding.evidence = True
        if back.back_at is not None:
            finding.measured = max(finding.measured or 0.0, took / 1e6)
        if back.back_at is None or took > bound:
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
    finding.witnesses = worst(broken)
    return finding
