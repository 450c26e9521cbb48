"""Where a clock's times lie in run time: its offset, as run.json has it and as it was read through the run,
interpolated, and how uncertain that is. Plain Python: a run has few clocks, and a reading of each every few seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from brokerdrill.analysis.events import NEVER
from brokerdrill.ledger.contract import Clock

# A quartz is off by less than this part of the time (100 in a million).
_DRIFT = 10_000
# So many stretches at most: each row is placed by the one in which it began.
MOST_STRETCHES = 16


class Reading(NamedTuple):
    """When a clock itself said `at` (ns) it was `offset` ns behind run time, give or take `u`."""

    at: int
    u: int
    offset: int


class Stretch(NamedTuple):
    """From `at` on (ns, by the clock itself; the first: always) it was `offset` ns behind run time, and `slope` ns more
    each ns."""

    at: int
    offset: int
    slope: float


@dataclass(frozen=True)
class Placed:
    """One clock: its `stretches` by time, and by how much (ns) its times may be off."""

    host: str = ""
    stretches: tuple[Stretch, ...] = (Stretch(0, 0, 0.0),)
    u: int = 0

    def spans(self) -> Iterator[tuple[int, int, int, int, float]]:
        """Yield of each stretch its begin and end, by the clock, then `at`, `offset` and `slope`."""
        begins = [-NEVER, *(one.at for one in self.stretches[1:]), NEVER]
        for (begin, end), stretch in zip(pairwise(begins), self.stretches, strict=True):
            yield begin, end, *stretch

    def offset(self, at: int) -> int:
        """Return what is to be added to the times of a row that began at `at` by this clock."""
        return _offset(self.stretches, at)


@dataclass
class Readings:
    """What a run's events say of its clocks: readings by the clock's name, and the last event's time (run time)."""

    of: dict[str, list[Reading]] = field(default_factory=dict)
    last: int = 0

    def add(self, name: str, at: int, offset: int, u: int) -> None:
        """Take note that at `at`, run time, the clock `name` had this offset, give or take `u` (ns)."""
        self.of.setdefault(name, []).append(Reading(at - offset, u, offset))


def placed(clocks: Mapping[str, Clock], readings: Readings) -> dict[str, Placed]:
    """Return the clocks of run.json, by name."""
    return {name: _placed(clock, readings.of.get(name, ()), readings.last) for name, clock in clocks.items()}


def _placed(clock: Clock, readings: Iterable[Reading], last: int) -> Placed:
    first = Reading(-clock.offset_ns, clock.uncertainty_ns, clock.offset_ns)
    corners = _corners(sorted({first, *readings}))
    step = max(1, math.ceil((len(corners) - 1) / MOST_STRETCHES))
    used = [*corners[:-1:step], corners[-1]]
    stretches = _stretches(used)
    u = max(_off_line(one, stretches) + one.u for one in corners)
    for place, (one, other) in enumerate(pairwise(used)):
        if not _even(used, place):
            u = max(u, abs(other.offset - one.offset) + max(one.u, other.u))
    newest = used[-1]
    # A clock that is certain without having been read is the run's own.
    if len(used) > 1 or newest.u:
        u = max(u, newest.u + max(0, last - newest.at - newest.offset) // _DRIFT)
    return Placed(clock.host, stretches, u)


def _corners(readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings without those that say less than what the one before them still says: that by its uncertainty
    and what the clock may have drifted since."""
    found = [readings[0]]
    for one in readings[1:]:
        before = found[-1]
        known = before.u + (one.at - before.at) // _DRIFT
        if one.at > before.at and (one.u <= known or abs(one.offset - before.offset) > one.u + known):
            found.append(one)
    return found


def _stretches(used: Sequence[Reading]) -> tuple[Stretch, ...]:
    """Return the stretches between readings: before the first and after the last the clock is as it was then."""
    first, last = used[0], used[-1]
    if len(used) == 1:
        return (Stretch(first.at, first.offset, 0.0),)
    found = (
        Stretch(one.at, one.offset, (other.offset - one.offset) / (other.at - one.at)) for one, other in pairwise(used)
    )
    return (Stretch(first.at, first.offset, 0.0), *found, Stretch(last.at, last.offset, 0.0))


def _offset(stretches: Sequence[Stretch], at: int) -> int:
    since, offset, slope = max((one for one in stretches[1:] if one.at <= at), key=lambda s: s.at, default=stretches[0])
    return offset + math.floor((at - since) * slope)


def _off_line(one: Reading, stretches: Sequence[Stretch]) -> int:
    return abs(one.offset - _offset(stretches, one.at))


def _even(used: Sequence[Reading], place: int) -> bool:
    """Whether a clock went evenly between a reading and the next one: it drifted no more than a quartz does, or just as
    in the stretch before or after."""
    one, other = used[place], used[place + 1]
    if abs(other.offset - one.offset) <= (other.at - one.at) // _DRIFT + one.u + other.u:
        return True
    before = used[place - 1] if place else None
    after = used[place + 2] if place + 2 < len(used) else None
    return (before is not None and _on_line(before, one, other)) or (after is not None and _on_line(one, other, after))


def _on_line(a: Reading, b: Reading, c: Reading) -> bool:
    """Whether the middle one of three readings lies between the others, give or take their uncertainties."""
    between = a.offset + math.floor((b.at - a.at) * ((c.offset - a.offset) / (c.at - a.at)))
    return abs(b.offset - between) <= a.u + b.u + c.u
