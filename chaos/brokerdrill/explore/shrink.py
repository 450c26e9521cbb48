"""Making a schedule that broke a promise smaller: fewer hits, then simpler moments, weaker parameters, shorter times,
fewer clients, each tried until an interval says whether it still breaks. Pure: `next` asks for a run, `record` says
what came of it.

A run that breaks the promise proves that its schedule can: it is taken at once. One that does not proves little, so a
smaller schedule is given up only when the upper end of its rate's interval is below the rate at which what is there
breaks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from brokerdrill.base.statistics import Interval, rate_interval, upper_bound
from brokerdrill.explore.schedule import AT_ONCE, BACKLOG, DRAINING, IN_SYNC, LARGE, PLAIN, SERVED, Schedule, valid

# Further runs that one defect may cost.
BUDGET = 30
# Of them, so many at the most for seeing it once more; the rest of a quarter is kept for its rate at the end.
CONFIRM = 9
MEASURE = 6
# A smaller schedule is given up at the first confidence while there are others to try, at the second in the end, and
# after so many runs in any case.
CONFIDENCES = (0.8, 0.95)
# What was taken is put back at this confidence that it breaks more seldom.
PUT_BACK = 0.9
MOST_TRIES = 6
# A rate so low would not be distinguished from none with what there is.
_LEAST_RATE = 0.2
_SHORTEST_S = 0.5


@dataclass
class Tally:
    """How often a schedule broke the promise, of so many runs."""

    broken: int = 0
    runs: int = 0

    @property
    def rate(self) -> Interval | None:
        """The rate with its exact 95 % interval; None without a run."""
        return rate_interval(self.broken, self.runs)


@dataclass
class Shrinker:
    """Shrinks `found`; `suspects`: the kinds of faults under which it broke, the likeliest first."""

    found: Schedule
    suspects: Sequence[str] = ()
    budget: int = BUDGET
    tallies: dict[Schedule, Tally] = field(default_factory=dict)
    # What was taken after what was found, each smaller than the one before.
    taken: list[Schedule] = field(default_factory=list)
    spent: int = 0

    @property
    def current(self) -> Schedule:
        """What is left."""
        return self.taken[-1] if self.taken else self.found

    @property
    def chain(self) -> Tally:
        """All further runs of what was found and of what was taken: what the rate is guessed from."""
        return self._runs_of((self.found, *self.taken))

    def _runs_of(self, schedules: Sequence[Schedule]) -> Tally:
        found = [self.tallies.get(one, Tally()) for one in schedules]
        return Tally(sum(one.broken for one in found), sum(one.runs for one in found))

    @property
    def confirmed(self) -> bool:
        """Whether it broke again, in any form, after it was found."""
        return self.chain.broken > 0

    @property
    def tally(self) -> Tally:
        """The further runs of what is left."""
        return self.tallies.get(self.current, Tally())

    def next(self) -> Schedule | None:
        """Return the schedule to run next; None: nothing is left to try, or the budget is spent."""
        if self.spent >= self.budget:
            return None
        if not self.confirmed:
            return self.found if self.chain.runs < CONFIRM else None
        if self._on_trial():
            return self.current
        if (smaller := self._candidate()) is not None:
            return smaller
        return self.current if self.tally.runs < MEASURE + CONFIRM else None

    def record(self, tried: Schedule, broke: bool | None) -> None:
        """Take in what came of a run of `tried`: whether the promise broke; None: that is not known."""
        self.spent += 1
        if broke is None:
            return
        tally = self.tallies.setdefault(tried, Tally())
        tally.runs += 1
        tally.broken += broke
        if broke and size(tried) < size(self.current):
            self.taken.append(tried)
        elif tried == self.current and self.taken and self._rarer(tally):
            self.taken.pop()

    def _rarer(self, tally: Tally) -> bool:
        """Whether what was taken last breaks more seldom than what was there before, by its further runs: then it was
        taken by chance, or is not all that it needs."""
        before = self._runs_of((self.found, *self.taken[:-1]))
        bound = upper_bound(tally.broken, tally.runs, PUT_BACK)
        return bound is not None and bound < (before.broken + 1) / (before.runs + 2)

    def _on_trial(self) -> bool:
        """Whether what was taken last has fewer hits than what was before, and has not broken it twice: without a hit
        it may be another, rarer way."""
        before = [self.found, *self.taken][-2:][0]
        return len(self.current.hits) < len(before.hits) and self.tally.broken < 2

    def _candidate(self) -> Schedule | None:
        """The next smaller schedule; None: none is left, or what is left of the budget is for the rate. What was given
        up is tried again when all others are, and when the rate turns out to be lower than it seemed."""
        if self.budget - self.spent <= MEASURE:
            return None
        for confidence in CONFIDENCES:
            for one in smaller(self.current, self.suspects):
                if not self._does_not(self.tallies.get(one, Tally()), confidence):
                    return one
        return None

    def _does_not(self, tally: Tally, confidence: float) -> bool:
        """Whether a schedule that has not broken it yet, in so many runs, is given up."""
        # Laplace's rule: a single run that broke it is no rate of 100 %.
        rate = max(_LEAST_RATE, (self.chain.broken + 1) / (self.chain.runs + 2))
        bound = upper_bound(tally.broken, tally.runs, confidence)
        return tally.runs >= MOST_TRIES or (bound is not None and bound < rate)


def size(schedule: Schedule) -> tuple[float, ...]:
    """Return how large a schedule is: of two the one with the lower value is the smaller, whatever led to it."""
    hits = schedule.hits
    waits = sum({AT_ONCE: 0, SERVED: 1}.get(hit.wait, 2) + hit.overlaps for hit in hits)
    times = round(sum(hit.pause_s + hit.hold_s for hit in hits), 2)
    load = {PLAIN: 0, BACKLOG: 1}.get(schedule.load, 2)
    strengths = sum(hit.strength for hit in hits)
    return len(hits), waits, strengths, schedule.resyncs, times, load, schedule.clients


def smaller(schedule: Schedule, suspects: Collection[str] = ()) -> Iterator[Schedule]:
    """Yield what a schedule can be made of it, each once: the biggest steps first."""
    seen = {schedule}
    for one in _smaller(schedule, suspects):
        if one not in seen and valid(one):
            seen.add(one)
            yield one


def _smaller(schedule: Schedule, suspects: Collection[str]) -> Iterator[Schedule]:
    hits, order = schedule.hits, [*suspects]

    def likely(place: int) -> int:
        fault = hits[place].fault
        return order.index(fault) if fault in order else len(order)

    places = sorted(range(len(hits)), key=likely)
    if len(hits) > 1:
        yield from (_kept(schedule, [place]) for place in places)
    if len(hits) > 2:
        yield from (_kept(schedule, [other for other in range(len(hits)) if other != place]) for place in places[::-1])
    for place, hit in enumerate(hits):
        if hit.overlaps:
            yield from _with(schedule, place, overlaps=False)
        if hit.wait != AT_ONCE:
            yield from _with(schedule, place, wait=AT_ONCE)
        if hit.wait == IN_SYNC:
            yield from _with(schedule, place, wait=SERVED)
    for place, hit in enumerate(hits):
        for strength in range(hit.strength):
            yield from _with(schedule, place, strength=strength)
    if schedule.resyncs:
        yield replace(schedule, resyncs=False)
    for place, hit in enumerate(hits):
        if hit.pause_s:
            yield from _with(schedule, place, pause_s=0.0)
        if hit.hold_s > _SHORTEST_S:
            yield from _with(schedule, place, hold_s=max(_SHORTEST_S, round(hit.hold_s / 2, 1)))
    # A backlog keeps what may be lost in one place: it is simpler to look at than a plain load only for machines.
    simpler = {DRAINING: (PLAIN, BACKLOG), LARGE: (PLAIN,)}.get(schedule.load, (PLAIN,))
    if schedule.load != PLAIN:
        yield from (replace(schedule, load=load) for load in simpler)
    if schedule.clients > 1:
        yield from (replace(schedule, clients=clients) for clients in (1, schedule.clients // 2) if clients)


def _kept(schedule: Schedule, places: Sequence[int]) -> Schedule:
    """The schedule with only the hits at `places`."""
    hits = [schedule.hits[place] for place in places]
    hits[0] = replace(hits[0], wait=AT_ONCE)
    hits[-1] = replace(hits[-1], overlaps=False)
    return replace(schedule, hits=tuple(hits))


def _with(schedule: Schedule, place: int, **changes: object) -> Iterator[Schedule]:
    hits = [*schedule.hits]
    hits[place] = replace(hits[place], **changes)  # type: ignore[arg-type]
    yield replace(schedule, hits=tuple(hits))
