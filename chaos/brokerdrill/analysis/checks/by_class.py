"""The promises that go by class: units of the breaking classes break, a message that was sent is evidence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from brokerdrill.analysis.checks.finding import Finding


@dataclass(frozen=True)
class ClassRule:
    """A promise that goes by class: each unit of a class in `breaking` breaks it, each of one in `doubtful` makes a
    pass unknown.

    Evidence is a message that was sent: with an attempt that may have taken effect, or `failed_too` one whose attempts
    all failed; `mapped`: only one on an address that has a dead-letter address.
    """

    name: str
    breaking: tuple[str, ...]
    doubtful: tuple[str, ...] = ()
    mapped: bool = False
    failed_too: bool = False


def find(rule: ClassRule, counts: Mapping[str, int], sent: Collection[str]) -> Finding:
    """Return what a run's units of each class (`counts`) say of `rule`; `sent` has what was sent: `tried` (a message
    was), `live` (it may have taken effect), `mapped` (so on an address with a dead-letter address)."""
    wanted = "mapped" if rule.mapped else "tried" if rule.failed_too else "live"
    return Finding(
        n=sum(counts.get(name, 0) for name in rule.breaking),
        evidence=wanted in sent,
        doubt=any(counts.get(name) for name in rule.doubtful),
    )
