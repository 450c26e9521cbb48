"""A schedule: what a generated drill does, as plain values that can be drawn, compared, made smaller and kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# The moments that a hit waits for before its pause: none; messages are acknowledged; the other broker of a store that
# the hit before took away is active; a copy is being made; all copies are there (whoever takes its role back begins).
AT_ONCE, SERVED, FAILED_OVER, SYNCING, IN_SYNC = "at_once", "served", "failed_over", "syncing", "in_sync"
WAITS = (AT_ONCE, SERVED, FAILED_OVER, SYNCING, IN_SYNC)
# Loads, by what differs from that of all drills.
PLAIN, SINGLE, LARGE, BACKLOG, DRAINING = "plain", "single", "large", "backlog", "draining"
CLIENTS = 4
# Words that mean an instance only while somebody has that role.
_LIVE = re.compile(r"\b(active|passive)\b")
# Faults that need what they hit for themselves, or take its whole host away: nothing else goes with them.
_ALONE = frozenset({"restart_host", "clock", "cut", "replace", "hold", "drift", "switchover"})


@dataclass(frozen=True)
class ScheduledFault:
    """One fault: its kind, its target's words, which of the kind's `drawn` parameters (from 0, the mildest); what it
    waits for, for how many seconds more, and how long it lasts (s); `overlaps`: the next one comes while it lasts."""

    fault: str
    target: str
    strength: int = 0
    wait: str = AT_ONCE
    pause_s: float = 1.0
    hold_s: float = 5.0
    overlaps: bool = False

    @property
    def what(self) -> str:
        """The fault and what it hits, in words: with the promise, what a defect is known by."""
        return f"{self.fault} {self.target}"


@dataclass(frozen=True)
class Schedule:
    """The hits in order, the load, how many producers and as many consumers, and whether the drill waits at its end
    until all copies are there again (else until messages are acknowledged)."""

    hits: tuple[ScheduledFault, ...]
    load: str = PLAIN
    clients: int = CLIENTS
    resyncs: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `from_json` reads."""
        return asdict(self)

    @property
    def faults(self) -> frozenset[str]:
        """The kinds of its hits with what they hit."""
        return frozenset(hit.what for hit in self.hits)

    @property
    def seconds(self) -> float:
        """About how long a run of it takes, in s: for weighing schedules against each other, no more."""
        waits = {AT_ONCE: 0.0, SERVED: 3.0, FAILED_OVER: 6.0, SYNCING: 6.0, IN_SYNC: 10.0}
        return 15.0 + sum(waits[hit.wait] + hit.pause_s + hit.hold_s for hit in self.hits)


def from_json(value: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a JSON object."""
    return Schedule(**{**value, "hits": tuple(ScheduledFault(**hit) for hit in value["hits"])})


def is_live(target: str) -> bool:
    """Whether a target's words mean who has a role at that moment."""
    return _LIVE.search(target) is not None


def valid(schedule: Schedule) -> bool:
    """Whether each hit finds what it hits, as far as that can be known beforehand, and none is in another's way."""
    before: ScheduledFault | None = None
    for place, hit in enumerate(schedule.hits):
        if before is None:
            if hit.wait != AT_ONCE:
                return False
        elif not _follows(before, hit):
            return False
        if hit.overlaps and place + 1 == len(schedule.hits):
            return False
        before = hit
    return bool(schedule.hits)


def _follows(before: ScheduledFault, hit: ScheduledFault) -> bool:
    """Whether `hit` may come after `before`."""
    if hit.wait == FAILED_OVER and (before.target.startswith("link ") or not before.overlaps):
        return False
    if before.overlaps:
        if hit.wait in (SYNCING, IN_SYNC) or {before.fault, hit.fault} & _ALONE or before.what == hit.what:
            return False
        # Nobody may have the role while the other fault lasts.
        return not is_live(hit.target) or (hit.wait == FAILED_OVER and "passive" not in hit.target)
    if "passive" in hit.target:
        return hit.wait == IN_SYNC
    return not is_live(hit.target) or hit.wait in (SERVED, IN_SYNC)
