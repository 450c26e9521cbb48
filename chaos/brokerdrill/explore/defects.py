"""Defects: what broke, by which it is known again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brokerdrill.ledger.verdict import FAIL, RunVerdict
from brokerdrill.ledger.witness import Witness

# A run that breaks several promises is about the first of these; any other comes after them, by name.
GRAVEST = ("no_loss", "atomic", "no_phantoms", "single_active", "no_duplicates", "ordered", "available", "stays_up")


@dataclass(frozen=True, order=True)
class BrokenPromise:
    """A promise that broke, and the kind of its worst witness."""

    promise: str
    witness: str = ""


@dataclass(frozen=True)
class Signature:
    """What a defect is known by: what broke first, the faults (with what they hit) without which it does not, where;
    `also`: what else breaks by it, with that or alone."""

    broke: BrokenPromise
    faults: frozenset[str]
    topology: str
    also: frozenset[BrokenPromise] = frozenset()

    def covers(self, broke: BrokenPromise, faults: Iterable[str], topology: str) -> bool:
        """Whether a run that broke this, with these faults, may have met nothing but this defect."""
        return topology == self.topology and broke in {self.broke, *self.also} and self.faults <= {*faults}

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `signature` reads."""
        return {
            "promise": self.broke.promise,
            "witness": self.broke.witness,
            "also": [[one.promise, one.witness] for one in sorted(self.also)],
            "faults": sorted(self.faults),
            "topology": self.topology,
        }


def signature(value: Mapping[str, Any]) -> Signature:
    """Return the signature of a JSON object."""
    return Signature(
        BrokenPromise(value["promise"], value.get("witness", "")),
        frozenset(value["faults"]),
        str(value["topology"]),
        frozenset(BrokenPromise(promise, witness) for promise, witness in value.get("also", ())),
    )


def breaks(result: RunVerdict) -> tuple[BrokenPromise, ...]:
    """Return what a run broke, the gravest first."""
    found = [BrokenPromise(one.name, _kind(one.witnesses)) for one in result.promises if one.verdict == FAIL]
    return tuple(sorted(found, key=lambda one: (_rank(one.promise), one)))


def suspects(result: RunVerdict) -> tuple[str, ...]:
    """Return the kinds of faults under which a run's messages broke, the one with the most first."""
    counts: dict[str, int] = {}
    for row in result.attribution:
        if row.fault:
            counts[row.fault] = counts.get(row.fault, 0) + row.count
    for out in result.outages:
        if out.fault:
            counts[out.fault] = counts.get(out.fault, 0) + 1
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


def unexplained(
    broke: Sequence[BrokenPromise], faults: Iterable[str], topology: str, known: Iterable[Signature]
) -> BrokenPromise | None:
    """Return the gravest of what a run broke, unless a known defect covers any of it: one cause may break several
    promises, and then the others say nothing of their own. None: nothing broke, or it is known."""
    faults, known = frozenset(faults), [*known]
    if any(one.covers(what, faults, topology) for one in known for what in broke):
        return None
    return broke[0] if broke else None


def _rank(promise: str) -> int:
    return GRAVEST.index(promise) if promise in GRAVEST else len(GRAVEST)


def _kind(witnesses: Sequence[Witness]) -> str:
    """The kind of a promise's witnesses: the class of the worst, or what it is about."""
    if not witnesses:
        return ""
    worst = witnesses[0].fields
    if worst.get("class"):
        return str(worst["class"])
    return next((name for name in ("message_id", "txn", "key", "address", "store") if worst.get(name)), "")
