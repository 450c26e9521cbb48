"""single_active: at no time do two instances serve one store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from brokerdrill.analysis.checks.finding import Finding, worst
from brokerdrill.analysis.timeline import Timeline

NAME = "single_active"


def find(times: Timeline, intruders: int, homeless: bool, witnesses: Iterable[Mapping[str, Any]]) -> Finding:
    """Return what was found: a send served by one instance wholly between two sends of another's one epoch breaks
    (`intruders` of them), and so does an overlap of two instances' certain active intervals. An epoch is evidence; a
    send whose store is not known (`homeless`) casts doubt."""
    overlaps = [
        {
            "weight": end - start,
            "store": a.store,
            "instance": a.instance,
            "other_instance": b.instance,
            "start_ns": start,
            "end_ns": end,
        }
        for a, b, start, end in times.overlaps
    ]
    return Finding(
        n=intruders + len(overlaps),
        evidence=bool(times.epochs),
        doubt=homeless,
        moments=[start for _, _, start, _ in times.overlaps],
        witnesses=worst([*witnesses, *overlaps]),
    )
