"""The exploration as a machine without hosts: `next` says which schedule to run, `record` takes in what came of it.

What it says depends on its seed and on what was recorded alone, so that it goes on where it was from its journal.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from brokerdrill.base.errors import UsageError
from brokerdrill.explore import schedule as schedules
from brokerdrill.explore.coverage import Coverage, Situation, parse
from brokerdrill.explore.defects import BrokenPromise, Signature, unexplained
from brokerdrill.explore.draw import changed, fresh
from brokerdrill.explore.schedule import Schedule
from brokerdrill.explore.shrink import Shrinker, Tally
from brokerdrill.explore.space import Space

HUNT, SHRINK = "hunt", "shrink"
# How many schedules are weighed against each other for one that is run, and the share of changed ones among them.
WEIGHED = 15
CHANGED = 0.4
# What is known takes time that something new may need: such a schedule is this much less worth.
_KNOWN_WORTH = 0.1


@dataclass(frozen=True)
class Trial:
    """One run that is asked for: its number from 1, its schedule, and what it is for: to hunt, or to shrink the find of
    the number `find`."""

    number: int
    schedule: Schedule
    purpose: str = HUNT
    find: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `asked` reads."""
        return {
            "trial": self.number,
            "purpose": self.purpose,
            "find": self.find,
            "schedule": self.schedule.to_json(),
        }


@dataclass(frozen=True)
class TrialResult:
    """What came of a trial: what broke, the gravest first; the promises on which there is a verdict; what it saw; under
    which faults its messages broke; its run, and how many seconds it took in all."""

    broke: tuple[BrokenPromise, ...] = ()
    judged: frozenset[str] = frozenset()
    seen: frozenset[Situation] = frozenset()
    suspects: tuple[str, ...] = ()
    run_dir: str | None = None
    seconds: float = 0.0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `result_from_json` reads."""
        return {
            "broke": [[one.promise, one.witness] for one in self.broke],
            "judged": sorted(self.judged),
            "seen": sorted(map(str, self.seen)),
            "suspects": list(self.suspects),
            "run_dir": self.run_dir,
            "seconds": round(self.seconds, 1),
            "error": self.error,
        }


def result_from_json(value: Mapping[str, Any]) -> TrialResult:
    """Return what a JSON object says of a trial."""
    return TrialResult(
        tuple(BrokenPromise(promise, witness) for promise, witness in value["broke"]),
        frozenset(value["judged"]),
        frozenset(map(parse, value["seen"])),
        tuple(value["suspects"]),
        value["run_dir"],
        value["seconds"],
        value.get("error"),
    )


@dataclass
class Find:
    """A defect that was found: its signature (of what is left when it was shrunk), the schedule that broke it first and
    what is left of that, how often that broke, and in which trial after how many runs it was found."""

    number: int
    broke: BrokenPromise
    also: tuple[BrokenPromise, ...]
    found: Schedule
    trial: int
    run_dir: str | None
    seconds: float
    topology: str
    shrinker: Shrinker
    ended: bool = False
    # Of each schedule's further runs, in how many each promise broke.
    broken: dict[Schedule, Counter[str]] = field(default_factory=dict)

    @property
    def minimal(self) -> Schedule:
        """What is left of the schedule."""
        return self.shrinker.current

    @property
    def tally(self) -> Tally:
        """How often what is left broke the promise, of how many further runs."""
        return self.shrinker.tally

    def again(self, came: TrialResult) -> bool | None:
        """Whether a further run broke what this one did, any of it: one cause breaks one promise or another as it
        happens. None: that is not known."""
        own = {self.broke.promise, *(one.promise for one in self.also)}
        if own & {one.promise for one in came.broke}:
            return True
        return False if own <= came.judged else None

    @property
    def signature(self) -> Signature:
        """What it is known by."""
        return Signature(self.broke, self.minimal.faults, self.topology, frozenset(self.also))


def _always(_: Schedule) -> bool:
    return True


@dataclass
class Explorer:
    """Explores `space` from `seed`; `known`: defects that are not to be found again; `uniform`: schedules are drawn by
    chance alone, as a control; `shrinks`: whether what is found is made smaller; `allows`: whether a schedule goes no
    further than it may."""

    space: Space
    seed: int
    known: tuple[Signature, ...] = ()
    uniform: bool = False
    shrinks: bool = True
    allows: Callable[[Schedule], bool] = _always
    coverage: Coverage = field(default_factory=Coverage)
    finds: list[Find] = field(default_factory=list)
    # How often a run broke what is known already.
    again: dict[Signature, int] = field(default_factory=dict)
    trials: int = 0
    hunted: int = 0
    seconds: float = 0.0
    # How much had been seen after each trial: (seconds, different things).
    curve: list[tuple[float, int]] = field(default_factory=list)

    @property
    def shrinking(self) -> Find | None:
        """The find that is being made smaller."""
        return next((one for one in self.finds if not one.ended), None)

    @property
    def signatures(self) -> list[Signature]:
        """All defects that are known now."""
        return [*self.known, *(one.signature for one in self.finds)]

    def next(self, ahead: int = 0) -> Trial:
        """Return the next run to make; `ahead`: how many asked for before it are not recorded yet."""
        number = self.trials + 1 + ahead
        while (find := self.shrinking) is not None:
            if self.shrinks and (smaller := find.shrinker.next()) is not None:
                return Trial(number, smaller, SHRINK, find.number)
            find.ended = True
        return Trial(number, self._drawn(number))

    def _drawn(self, number: int) -> Schedule:
        rng = random.Random(f"{self.seed}/{number}")
        drawn = [self._one(rng) for _ in range(WEIGHED)]
        if not self.uniform:
            drawn.sort(key=self._worth, reverse=True)
        if (first := next(filter(self.allows, drawn), None)) is None:
            raise UsageError(f"of {WEIGHED} schedules on {self.space.topology} each goes further than it may")
        return first

    def _one(self, rng: random.Random) -> Schedule:
        parents = self.coverage.fruitful
        if self.uniform or not parents or rng.random() >= CHANGED:
            return fresh(self.space, rng)
        ((parent, _),) = rng.choices(parents, weights=[new for _, new in parents])
        return changed(parent, self.space, rng)

    def _worth(self, schedule: Schedule) -> float:
        known = any(one.faults <= schedule.faults for one in self.signatures if one.topology == self.space.topology)
        return self.coverage.novelty(schedule) * (_KNOWN_WORTH if known else 1.0)

    def settle(self) -> None:
        """Mark what needs no further run as ended, so that it can be kept."""
        for one in self.finds:
            one.ended = one.ended or not self.shrinks or one.shrinker.next() is None

    def record(self, trial: Trial, came: TrialResult) -> Find | None:
        """Take in what came of a trial; return what it found, if that is new."""
        self.trials = trial.number
        self.seconds += came.seconds
        self.coverage.add(trial.schedule, came.seen)
        self.curve.append((self.seconds, len(self.coverage.seen)))
        if trial.purpose == SHRINK:
            find = self.finds[trial.find - 1]
            find.shrinker.record(trial.schedule, find.again(came))
            find.broken.setdefault(trial.schedule, Counter()).update(one.promise for one in came.broke)
            return None
        self.hunted += 1
        return self._hunted(trial, came)

    def _hunted(self, trial: Trial, came: TrialResult) -> Find | None:
        faults, where = trial.schedule.faults, self.space.topology
        what = unexplained(came.broke, faults, where, self.signatures)
        if what is None:
            for one in self.signatures:
                if any(one.covers(broke, faults, where) for broke in came.broke):
                    self.again[one] = self.again.get(one, 0) + 1
                    break
            return None
        also = tuple(one for one in came.broke if one != what)
        shrinker = Shrinker(trial.schedule, came.suspects)
        found = Find(
            len(self.finds) + 1, what, also, trial.schedule, trial.number, came.run_dir, self.seconds, where, shrinker
        )
        found.ended = not self.shrinks
        self.finds.append(found)
        return found


def asked(entry: Mapping[str, Any]) -> Trial:
    """Return the trial of a journal's entry."""
    return Trial(entry["trial"], schedules.from_json(entry["schedule"]), entry["purpose"], entry["find"])


def replay(explorer: Explorer, entries: Iterable[Mapping[str, Any]]) -> list[Trial]:
    """Record in `explorer` what its journal says, in its order; return the trials that were begun and not ended."""
    begun: dict[int, Trial] = {}
    for entry in entries:
        if "broke" not in entry:
            begun[entry["trial"]] = asked(entry)
            continue
        trial = asked(entry)
        begun.pop(trial.number, None)
        explorer.record(trial, result_from_json(entry))
    return [begun[number] for number in sorted(begun)]
