"""What was seen: which state of the cluster together with which faults in effect and which operation of a client; and
how new a schedule is beside what was tried. Pure."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from brokerdrill.explore.schedule import Schedule

# Between the parts of what was seen.
SEPARATOR = " | "
NO_FAULT = "-"
OK = "ok"
# How long a fault lasts, s: shorter than most time-outs, as long as they are, longer.
SHORT_S, LONG_S = 1.5, 4.0


class Situation(NamedTuple):
    """The roles of each store's instances, the faults in effect, and a client's operation with its outcome."""

    state: str
    faults: str
    operation: str

    def __str__(self) -> str:
        return SEPARATOR.join(self)


def parse(text: str) -> Situation:
    """Return what `str` made of it."""
    return Situation(*text.split(SEPARATOR))


class FaultWindow(NamedTuple):
    """A fault in effect: its words, from when to when (run time, ns)."""

    what: str
    begin: int
    end: int


class Role(NamedTuple):
    """From `at` (run time, ns) on, `instance` of `store` has this role."""

    at: int
    store: str
    instance: str
    role: str


def observed(
    roles: Iterable[Role], faults: Sequence[FaultWindow], operations: Iterable[tuple[int, str]]
) -> frozenset[Situation]:
    """Return what a run saw: for each operation (when it began, its kind with its outcome) the state then and the
    faults in effect."""
    changes: list[tuple[int, str]] = []
    now: dict[tuple[str, str], str] = {}
    for one in sorted(roles):
        now[one.store, one.instance] = one.role
        changes.append((one.at, _state(now)))
    states = [at for at, _ in changes]
    edges = sorted({edge for span in faults for edge in (span.begin, span.end)})
    effect = ["", *(_effect(faults, edge) for edge in edges)]
    found: set[Situation] = set()
    for at, operation in operations:
        place = bisect.bisect_right(states, at)
        if place:
            found.add(Situation(changes[place - 1][1], effect[bisect.bisect_right(edges, at)] or NO_FAULT, operation))
    return frozenset(found)


def _state(now: Mapping[tuple[str, str], str]) -> str:
    """The roles of each store's instances, whoever has which; several stores in the same state count once."""
    by_store: dict[str, list[str]] = {}
    for (store, _), role in now.items():
        by_store.setdefault(store, []).append(role)
    return ", ".join(sorted({"+".join(sorted(members)) for members in by_store.values()}))


def _effect(faults: Sequence[FaultWindow], at: int) -> str:
    return ", ".join(sorted({span.what for span in faults if span.begin <= at < span.end}))


def planned(schedule: Schedule) -> frozenset[str]:
    """Return what a schedule tries, before it is run: each hit at its moment, under its load, and beside what else."""
    return frozenset(_planned(schedule))


def _planned(schedule: Schedule) -> Iterator[str]:
    before = None
    for hit in schedule.hits:
        yield hit.what
        yield f"{hit.what} {hit.strength}"
        yield f"{hit.what} under {schedule.load}"
        yield f"{hit.what} for {'short' if hit.hold_s < SHORT_S else 'middling' if hit.hold_s < LONG_S else 'long'}"
        if before is not None:
            yield f"{hit.what} once {hit.wait}"
            yield f"{hit.what} {'while' if before.overlaps else 'after'} {before.what}"
        before = hit


@dataclass
class Coverage:
    """What was tried and seen so far, and which schedules have shown something new: those are worth changing."""

    tried: Counter[str] = field(default_factory=Counter)
    seen: Counter[Situation] = field(default_factory=Counter)
    fruitful: list[tuple[Schedule, int]] = field(default_factory=list)

    def add(self, schedule: Schedule, seen: Iterable[Situation]) -> int:
        """Take a run's coverage in; return how much of it was new."""
        self.tried.update(planned(schedule))
        seen = frozenset(seen)
        new = sum(one not in self.seen for one in seen)
        self.seen.update(seen)
        if new:
            self.fruitful.append((schedule, new))
        return new

    def novelty(self, schedule: Schedule) -> float:
        """Return how much a schedule would try that was tried seldom, for the time that it takes: not in proportion, or
        nothing would last long."""
        return sum(1 / (1 + self.tried[one]) ** 2 for one in planned(schedule)) / math.sqrt(schedule.seconds)


def to_json(seen: Iterable[Situation]) -> list[str]:
    """Return what was seen as it is kept."""
    return sorted(str(one) for one in seen)


def of_events(
    events: Iterable[Mapping[str, Any]], left_out: Iterable[str] = ("arm",)
) -> tuple[list[Role], list[FaultWindow]]:
    """Return the roles and the faults in a run's events; faults called as `left_out` disturb nothing."""
    roles: list[Role] = []
    begun: dict[tuple[str, str], tuple[int, str]] = {}
    spans: list[FaultWindow] = []
    for event in sorted(events, key=lambda one: one.get("t_ns", 0)):
        kind, at = event.get("kind"), event.get("t_ns", 0)
        if kind == "role" and event.get("store"):
            roles.append(Role(at, event["store"], event.get("instance") or "", event.get("value") or ""))
        if kind not in ("fault", "heal") or event.get("name") in {*left_out}:
            continue
        key = (str(event.get("name")), str(event.get("target")))
        if kind == "fault":
            asked = (event.get("detail") or {}).get("asked") or event.get("target")
            begun.setdefault(key, (at, f"{event.get('name')} {asked}"))
        elif key in begun:
            since, what = begun.pop(key)
            spans.append(FaultWindow(what, since, at))
    end = 1 << 62
    return roles, [*spans, *(FaultWindow(what, since, end) for since, what in begun.values())]
