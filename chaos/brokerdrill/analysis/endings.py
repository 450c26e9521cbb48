"""Ends of processes, and what explains them: a fault that ends processes, a fault that may lead to it, a playbook."""

from __future__ import annotations

import math
import signal
from collections.abc import Collection, Sequence
from typing import NamedTuple

from brokerdrill.analysis.events import NEVER, Ending, Event, Fault
from brokerdrill.ledger.contract import OPERATION, WITH
from brokerdrill.ledger.coverage import ENDS, RESTART_HOST
from brokerdrill.ledger.evidence import INSTANCES, RESTARTED

# A process that one of these ends has met a defect of its own, whatever else is going on.
CRASHES = frozenset({"ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP"})
# What a shell says of a process that it had started and that ended so: 128 and the signal.
_CRASHED = CRASHES | {str(128 + signal.Signals[f"SIG{name}"]) for name in CRASHES}
_FOR_MEMORY = "killed for memory"
_OUT_OF_MEMORY = "out of memory"
# How a process ends that is stopped in order: by itself, or by one of systemd's signals; Java says 128 + the signal.
_ORDERLY = frozenset({"0", "129", "130", "137", "143", "HUP", "INT", "KILL", "TERM"})


class PlaybookRun(NamedTuple):
    """A playbook that ran as a step, from `begin` to `end` (NEVER: it did not come to its end), on `instances` (None:
    it is not said on which)."""

    begin: int
    end: int
    instances: frozenset[str] | None


def operations(events: Sequence[Event]) -> list[PlaybookRun]:
    """Return the playbooks that ran as steps."""
    marks = [(e.at, e.name, dict(e.detail)) for e in events if OPERATION in dict(e.detail)]
    found = []
    for at, name, detail in marks:
        if detail[OPERATION] != "begin":
            continue
        ends = [end for end, of, mark in marks if mark[OPERATION] == "end" and of == name and end >= at]
        of = detail.get(INSTANCES)
        found.append(PlaybookRun(at, min(ends, default=NEVER), None if of is None else frozenset(of.split("\n"))))
    return found


def crashed(how: str | None, status: str | None) -> bool:
    """Whether a process ended by a defect: by a signal that stands for one, or for want of memory. What was killed with
    SIGKILL had perhaps said before that memory was short."""
    return how in ("dumped", _FOR_MEMORY) or (status or "") in _CRASHED or (how == _OUT_OF_MEMORY and status != "KILL")


def _concerns(fault: Fault, event: Event, within: Collection[str]) -> bool:
    """Whether the fault is on one of the instances in the process that ended, or without an instance on its host, and
    was in effect; all uncertainties speak for that."""
    return (
        (fault.instance in within or (fault.instance is None and fault.target == event.target))
        and fault.at - fault.u <= event.at + event.u
        and (fault.healed_at is None or event.at - event.u <= fault.healed_at + fault.healed_u)
    )


def endings(events: Sequence[Event], faults: Sequence[Fault]) -> tuple[Ending, ...]:
    """Return the ends of the instances' processes, by time.

    A fault of a kind that ends a process explains so many ends of it as its kind says; a fault of another kind any that
    is no crash. A playbook explains ends in order of the instances that it works on; where it is not said on which
    those are, the end of one by itself may be its doing or not.
    """
    during = operations(events)
    used: dict[int, int] = {}
    found = []
    for event in sorted((e for e in events if e.kind == "ended" and e.instance), key=lambda e: (e.at, e.instance)):
        assert event.instance is not None
        detail = dict(event.detail)
        status = detail.get("status")
        within = {event.instance, *(detail.get(WITH) or "").split("\n")} - {""}
        meant = doubted = False
        if not crashed(event.value, status):
            meant = _by_fault(event, within, faults, used)
            if not meant:
                working = [one for one in during if one.begin <= event.at + event.u and event.at - event.u <= one.end]
                orderly = status is None or status in _ORDERLY
                meant = any(bool(one.instances & within) if one.instances else orderly for one in working)
                doubted = not meant and any(one.instances is None for one in working)
        found.append(Ending(event.instance, event.at, event.value, status, detail.get("last"), meant, doubted))
    return tuple(found)


def restarted(events: Sequence[Event], faults: Sequence[Fault]) -> tuple[Event, ...]:
    """Return what tells that a host of instances was started anew, where nothing explains it: a fault that does so
    explains one, a playbook any while it runs."""
    hosts = {event.target for event in events if event.instance and event.target}
    meant = {(fault.target, fault.at - fault.u) for fault in faults if fault.name == RESTART_HOST}
    during = operations(events)
    found = []
    for event in sorted((e for e in events if (e.kind, e.value) == ("health", RESTARTED)), key=lambda e: e.at):
        causes = sorted(at for host, at in meant if host == event.target and at <= event.at + event.u)
        if causes:
            meant.remove((event.target, causes[0]))
        elif event.target in hosts and not any(one.begin <= event.at <= one.end for one in during):
            found.append(event)
    return tuple(found)


def _by_fault(event: Event, within: set[str], faults: Sequence[Fault], used: dict[int, int]) -> bool:
    """Whether a fault explains the end of a process; `used` counts how many ends each fault has explained. Of several
    that explain so many and no more it is the one that is healed first: the others may explain a later end."""
    able = [
        fault
        for fault in faults
        if _concerns(fault, event, within) and used.get(fault.number, 0) < ENDS.get(fault.name or "", math.inf)
    ]
    if able and able[0].name in ENDS:
        counted = (fault for fault in able if fault.name in ENDS)
        spent = min(counted, key=lambda fault: NEVER if fault.healed_at is None else fault.healed_at)
        used[spent.number] = used.get(spent.number, 0) + 1
    return bool(able)
