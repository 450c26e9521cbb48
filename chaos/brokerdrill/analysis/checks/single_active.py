"""single_active: at no time do two instances serve one store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from brokerdrill.analysis.checks.finding import Finding, worst
from brokerdrill.analysis.epochs import active_times, halted
from brokerdrill.analysis.events import Unwatched
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.analysis.watching import without
from brokerdrill.ledger.coverage import HALTS

NAME = "single_active"


class Sends(NamedTuple):
    """What the sends show: how many one instance served wholly between two of another's one epoch for certain, whether
    some may have been (`perhaps`), and whether the store of some is not known (`homeless`)."""

    intruders: int = 0
    perhaps: bool = False
    homeless: bool = False


def find(
    times: Timeline, sends: Sends, stores: Mapping[str, Sequence[str]], witnesses: Iterable[Mapping[str, Any]]
) -> Finding:
    """Return what was found: a send served by one instance wholly between two sends of another's one epoch breaks, and
    so does an overlap of two instances' certain active intervals. An epoch is evidence. What clocks and polls leave
    open casts doubt: a send or an overlap that may be one, and a time in which nobody knew the role of one instance
    while another one of its store was active."""
    certain = [one for one in times.overlaps if one.certain]
    overlaps = [
        {
            "weight": one.end - one.start,
            "store": one.one.store,
            "instance": one.one.instance,
            "other_instance": one.other.instance,
            "start_ns": one.start,
            "end_ns": one.end,
        }
        for one in certain
    ]
    blind = [one for one in times.unwatched if _matters(one, times, stores)]
    finding = Finding(
        n=sends.intruders + len(overlaps),
        evidence=bool(times.epochs),
        moments=[one.start for one in certain],
        # Those that partitions find are not all here.
        witnesses=worst([*witnesses, *overlaps]),
        rows=[*overlaps],
        judged_from={
            "epochs": len(times.epochs),
            "unwatched_ms": max((one.end - one.start for one in blind), default=0) / 1e6,
        },
    )
    if sends.homeless:
        finding.doubted("of some sends it is not known which store served them")
    if sends.perhaps or len(certain) < len(times.overlaps):
        finding.doubted("the times are not known well enough to tell who was active first")
    shown = {event.instance for event in times.roles}
    for store, instances in sorted(stores.items()):
        if len({*instances}) > 1 and not shown & {*instances}:
            finding.doubted(f"nobody knew who was active on {store}")
    for one in blind:
        finding.doubted(
            f"nobody knew what {one.instance} was doing for {(one.end - one.start) / 1e9:.1f} s, while another one was "
            "active"
        )
    return finding


def _matters(blind: Unwatched, times: Timeline, stores: Mapping[str, Sequence[str]]) -> bool:
    """Whether an instance may have been active, unseen, while another one of its store was."""
    own = {store for store, instances in stores.items() if blind.instance in instances}
    own |= {epoch.store for epoch in times.epochs if epoch.instance == blind.instance}
    others = any(
        start < blind.end and blind.start < end
        for epoch in times.epochs
        if epoch.store in own and epoch.instance != blind.instance
        for start, end in ((epoch.start, epoch.end), *active_times(epoch, times.faults, (), certain=False))
    )
    still = [
        halted(fault, perhaps=False)
        for fault in times.faults
        if fault.instance == blind.instance and fault.name in HALTS
    ]
    return others and bool(without((blind.start, blind.end), still))
