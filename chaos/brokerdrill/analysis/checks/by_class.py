"""The promises that go by class: units of the breaking classes break; what could have broken is evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from brokerdrill.analysis.checks.finding import Finding
from brokerdrill.promises.definition import Promise


class JudgedUnits(NamedTuple):
    """The units of an address: how many, how many of them were seen (delivered, or found dead), were processed for
    certain, may not be lost, and were taken though they are not durable (`messages.JUDGED`)."""

    address: str
    units: int = 0
    seen: int = 0
    processed: int = 0
    owed: int = 0
    passing: int = 0


@dataclass(frozen=True)
class ClassRule:
    """A promise that goes by class: each unit of a class in `breaking` breaks it, each of one in `doubtful` makes a
    pass unknown, with `why`, a clause with their `{count}`. `could_break`: how many units of an address could have
    broken it."""

    name: str
    breaking: tuple[str, ...]
    doubtful: tuple[str, ...]
    why: str
    could_break: Callable[[JudgedUnits], int]


def rule(promise: Promise, could_break: Callable[[JudgedUnits], int]) -> ClassRule:
    """Return the rule of a promise."""
    return ClassRule(promise.name, promise.breaking, promise.doubtful, promise.words.doubtful, could_break)


def find(one: ClassRule, counts: Mapping[str, int], judged: Sequence[JudgedUnits]) -> Finding:
    """Return what a run's units of each class (`counts`) and of each address say of a rule."""
    could = {of.address: one.could_break(of) for of in judged if one.could_break(of)}
    found = Finding(
        n=sum(counts.get(name, 0) for name in one.breaking),
        evidence=bool(could),
        judged=sum(could.values()),
        judged_from={"messages": sum(could.values()), "addresses": sorted(could)},
    )
    if doubtful := sum(counts.get(name, 0) for name in one.doubtful):
        found.doubted(one.why.format(count=doubtful))
    return found
