"""How well a run was watched: gaps in what is known of roles, logs that were read, pressure on hosts."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate

from brokerdrill.analysis.events import Event, Fault, LogRead, Pressure, Unwatched
from brokerdrill.ledger.contract import LOG_READ
from brokerdrill.ledger.coverage import RESTART_HOST
from brokerdrill.ledger.evidence import (
    ANSWERS,
    GAPS,
    INSTANCES,
    READ_FROM,
    READ_LOST,
    READ_UNTIL,
    SILENT,
    SINCE,
    STALLED,
)


def _whole(event: Event, name: str) -> int | None:
    """A whole number of the details; None: it is not there, or is none."""
    with suppress(ValueError):
        return int(dict(event.detail).get(name, ""))
    return None


def unwatched(events: Sequence[Event], run_end: int) -> tuple[Unwatched, ...]:
    """Return the times in which an instance's role was not known: from when it was silent until it answered, or its
    role was recorded, and the gaps of polls."""
    found = []
    silent: dict[str, int] = {}
    for event in sorted(events, key=lambda e: e.at):
        if event.instance is None:
            continue
        if event.kind == "health" and event.value == SILENT:
            silent.setdefault(event.instance, event.at)
        elif (event.kind, event.value) == ("health", ANSWERS):
            if (since := silent.pop(event.instance, None)) is not None:
                found.append(Unwatched(event.instance, since, event.at))
        elif event.kind == "polls":
            for gap in filter(None, dict(event.detail).get(GAPS, "").split(", ")):
                begin, _, end = gap.partition("-")
                with suppress(ValueError):
                    found.append(Unwatched(event.instance, int(begin), int(end)))
    found += [Unwatched(instance, since, run_end) for instance, since in silent.items()]
    return tuple(sorted(one for one in found if one.start < one.end))


def untold(events: Iterable[Event], stores: Mapping[str, Sequence[str]], run_end: int) -> list[Unwatched]:
    """Return the times of the load in which no role was known yet of instances that share a store with others."""
    told: dict[str, int] = {}
    begin = None
    for event in events:
        if event.kind == "role" and event.instance:
            told[event.instance] = min(told.get(event.instance, event.at - event.u), event.at - event.u)
        if (event.kind, event.name, event.value) == ("phase", "load", "begin"):
            begin = event.at if begin is None else min(begin, event.at)
    shared = {instance for instances in stores.values() if len({*instances}) > 1 for instance in instances}
    if begin is None:
        return []
    return [Unwatched(one, begin, told.get(one, run_end)) for one in sorted(shared) if begin < told.get(one, run_end)]


def logs_read(events: Iterable[Event]) -> tuple[LogRead, ...]:
    """Return the instances whose logs were read: that of each note, and all in its process."""
    found = []
    for event in events:
        if (event.kind, event.name) == ("note", LOG_READ) and event.instance:
            named = {event.instance, *dict(event.detail).get(INSTANCES, "").split("\n")} - {""}
            span = _whole(event, READ_FROM), _whole(event, READ_UNTIL)
            found += [LogRead(one, *span, _whole(event, READ_LOST) or 0) for one in sorted(named)]
    return tuple(found)


def read_whole(
    instance: str, logs: Iterable[LogRead], faults: Iterable[Fault], begin: int | None, over: int | None
) -> bool:
    """Return whether nothing was missed in what was read of the instance's log from `begin` (None: from its first line
    on) to `over` (None: it is not known). While its host is started anew, from the fault to its heal, there is nothing
    that has to be read."""
    own = [log for log in logs if log.instance == instance]
    if not own or any(log.lost for log in own):
        return False
    spans = [
        (-math.inf if one.since is None else one.since, math.inf if one.until is None else one.until) for one in own
    ]
    spans += [
        (one.at - one.u, one.healed_at)
        for one in faults
        if one.name == RESTART_HOST and one.instance == instance and one.healed_at is not None
    ]
    start = min(since for since, _ in spans) if begin is None else begin
    read_to, seen = start, False
    for since, until in sorted(spans):
        if since <= read_to and start <= until:
            read_to, seen = max(read_to, until), True
    return seen and (over is None or over <= read_to)


def told_by_log(blind: Unwatched, showing: Collection[str], logs: Sequence[LogRead], faults: Sequence[Fault]) -> bool:
    """Return whether the instance's log shows its roles, as those of `showing` do, and was read of all that time."""
    return blind.instance in showing and read_whole(blind.instance, logs, faults, blind.start, blind.end)


def pressures(events: Iterable[Event]) -> tuple[Pressure, ...]:
    """Return for how long something on a host had to wait, by time."""
    found = []
    for event in events:
        since, stalled = _whole(event, SINCE), _whole(event, STALLED)
        if event.kind == "pressure" and event.name and since is not None and stalled and since < event.at:
            found.append(Pressure(event.target or "", event.name, since, event.at, stalled))
    return tuple(sorted(found, key=lambda one: (one.start, one.end, one.host, one.name)))


def stalled(pressure: Iterable[Pressure], start: int, end: int) -> int:
    """Return for how long (ns) of the time from `start` to `end` something waited on the host where that was longest.
    What was waited for in a part of a time is taken for as much of it as fits into that part; a reading of less than
    half of its time is of a host at work, and does not count. A time of which two readings tell counts once: where the
    one that says more is counted, of the other as much as fits into the rest of its time."""
    by_host: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for one in pressure:
        since, until = max(one.start, start), min(one.end, end)
        if since < until and 2 * one.stalled >= one.end - one.start:
            by_host.setdefault((one.host, one.name), []).append((since, until, min(one.stalled, until - since)))
    return max(map(_once, by_host.values()), default=0)


def _once(readings: Sequence[tuple[int, int, int]]) -> int:
    """Return what readings (begin, end, time waited) add up to where no time counts twice."""
    ordered = sorted(readings)
    starts = [since for since, _, _ in ordered]
    reach = list(accumulate((until for _, until, _ in ordered), max))
    total = 0
    for place, (since, until, waited) in enumerate(ordered):
        near = range(bisect_right(reach, since), bisect_left(starts, until))
        more = [ordered[one][:2] for one in near if (-ordered[one][2], one) < (-waited, place)]
        total += min(waited, sum(end - begin for begin, end in without((since, until), more)))
    return total


def without(span: tuple[int, int], others: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a time (begin, end) that are in none of `others`."""
    left = [span]
    for begin, end in others:
        cut = [((since, min(until, begin)), (max(since, end), until)) for since, until in left]
        left = [(since, until) for both in cut for since, until in both if since < until]
    return left
