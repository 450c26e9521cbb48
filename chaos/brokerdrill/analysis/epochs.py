"""Who was active on which store, from when to when, as roles tell; and where two were at once. Plain Python.

Rules are those of the ledger's specification ("Words", `single_active`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations, dropwhile, takewhile

from brokerdrill.analysis.events import NEVER, Epoch, Event, Fault, Overlap, Unwatched, in_order
from brokerdrill.analysis.watching import without
from brokerdrill.ledger.coverage import HALTS
from brokerdrill.ledger.evidence import BY_LOG
from brokerdrill.ledger.verdict import Takeover


def role_changes(events: Sequence[Event], home: Mapping[str, str | None]) -> list[Event]:
    """Return the role events that change their instance's value or store, by time. An event without a store keeps the
    instance's only one, else the one that it named last."""
    changes = []
    last: dict[str, tuple[str | None, str | None]] = {}
    for event in sorted((e for e in events if e.kind == "role" and e.instance), key=in_order):
        assert event.instance is not None
        known = last.get(event.instance, (None, None))
        store = event.store or home.get(event.instance) or known[1]
        if (event.value, store) != known:
            changes.append(
                Event("role", event.at, event.u, event.target, event.instance, store, event.name, event.value)
            )
        last[event.instance] = (event.value, store)
    return changes


def epochs(
    events: Sequence[Event], changes: Sequence[Event], run_end: int, blind: Sequence[Unwatched] = ()
) -> tuple[Epoch, ...]:
    """Return the epochs that `role_changes` of `events` make, by start. An epoch begins after any change before it, not
    before the line of its log that says so where that can be, and is over by any other role that is recorded before the
    instance is active again: of those the surest bounds it. What is first seen when nobody had known the instance's
    role (`blind`) may have begun at that time's begin."""
    roles: dict[str, list[Event]] = defaultdict(list)
    for event in sorted((e for e in events if e.kind == "role" and e.instance), key=in_order):
        roles[event.instance or ""].append(event)
    by_instance: dict[str, list[Event]] = defaultdict(list)
    for change in changes:
        by_instance[change.instance or ""].append(change)
    found = []
    for instance, own in by_instance.items():
        earliest = -NEVER
        for begun, end in zip(own, [*own[1:], None], strict=True):
            before, earliest = earliest, max(earliest, begun.at - begun.u)
            if begun.value != "active" or begun.store is None:
                continue
            line = _said_by_its_log(begun, roles[instance])
            earliest = earliest if line is None else max(earliest, line)
            soonest = max(before, _unseen_since(begun, blind), -NEVER if line is None else line)
            if end is None:
                found.append(Epoch(begun.store, instance, begun.at, begun.u, run_end, 0, True, soonest, run_end))
                continue
            since = dropwhile(lambda e, end=end: (e.at, e.value, e.u) != (end.at, end.value, end.u), roles[instance])  # type: ignore[misc]
            others = takewhile(lambda e: e.value != "active", since)
            latest = min([end.at + end.u, *(one.at + one.u for one in others)])
            found.append(Epoch(begun.store, instance, begun.at, begun.u, end.at, end.u, False, soonest, latest))
    return tuple(sorted(found, key=lambda e: (e.start, e.instance, e.store)))


def _said_by_its_log(begun: Event, roles: Sequence[Event]) -> int | None:
    """Return before when the instance was not active by the line of its log that says it is, where the poll that found
    it active (`begun`) may have come after that line; None: there is none. `roles`: its own in their order."""
    since = dropwhile(lambda e: (e.at, e.value, e.u) != (begun.at, begun.value, begun.u), roles)
    lines = (e for e in takewhile(lambda e: e.value == "active", since) if e.name == BY_LOG)
    line = next(lines, None)
    return None if line is None or line.at - line.u > begun.at + begun.u else line.at - line.u


def _unseen_since(begun: Event, blind: Sequence[Unwatched]) -> int:
    """Return since when at the earliest an instance may have had the role that `begun` says."""
    seen = [
        one.start
        for one in blind
        if one.instance == begun.instance and one.start <= begun.at + begun.u and begun.at - begun.u <= one.end
    ]
    return min([begun.at - begun.u, *seen])


def overlaps(
    epoch: Sequence[Epoch], halting: Sequence[Fault] = (), blind: Sequence[Unwatched] = ()
) -> tuple[Overlap, ...]:
    """Return the pairs of epochs of two instances on one store that overlap: for certain where each is shrunk by its
    uncertainties; where only they overlap when each is widened, they may. While one of the faults `halting` that halt a
    process is in effect its instance is not active, whatever its last word was; while nobody knew its role (`blind`) it
    is not for certain."""
    by_store: dict[str, list[Epoch]] = defaultdict(list)
    for one in epoch:
        by_store[one.store].append(one)
    found = []
    for same in by_store.values():
        for a, b in combinations(same, 2):
            if a.instance == b.instance:
                continue
            for certain in (True, False):
                both = [
                    (max(start, other_start), min(end, other_end))
                    for start, end in active_times(a, halting, blind, certain)
                    for other_start, other_end in active_times(b, halting, blind, certain)
                ]
                if both := [(start, end) for start, end in both if start < end]:
                    start, end = min(both)
                    found.append(Overlap(a, b, start, end, certain))
                    break
    return tuple(found)


def active_times(
    epoch: Epoch, halting: Sequence[Fault], blind: Sequence[Unwatched], certain: bool
) -> list[tuple[int, int]]:
    """Return the times of an epoch in which its instance was active for certain, or may have been."""
    surely = (epoch.start + epoch.start_u, epoch.end - epoch.end_u)
    over = [(one.start, one.end) for one in blind if certain and one.instance == epoch.instance]
    for fault in halting:
        # Who became active after it was halted was started anew.
        if (
            fault.name in HALTS
            and fault.instance == epoch.instance
            and epoch.start - epoch.start_u <= fault.at + fault.u
        ):
            over.append(halted(fault, perhaps=certain))
    return without(surely if certain else (epoch.earliest, epoch.latest), over)


def halted(fault: Fault, *, perhaps: bool) -> tuple[int, int]:
    """Return from when to when a fault that halts a process did so for certain, or `perhaps`: its begin is as uncertain
    as it is, its end as its heal. Where its host healed it, and it is not said after how long, that may have been at
    any time since."""
    sign = 1 if perhaps else -1
    if fault.healed_at is None:
        return fault.at - sign * fault.u, NEVER
    until = fault.at if fault.vague and not perhaps else fault.healed_at + sign * fault.healed_u
    return fault.at - sign * fault.u, until


def takeovers(epoch: Sequence[Epoch]) -> tuple[Takeover, ...]:
    """Return how often a store changed hands, by time, from the epochs by start; whether a fault led to it or none."""
    found = []
    last: dict[str, str] = {}
    for one in epoch:
        before = last.setdefault(one.store, one.instance)
        if before != one.instance:
            found.append(Takeover(one.store, one.instance, before, one.start))
        last[one.store] = one.instance
    return tuple(found)
