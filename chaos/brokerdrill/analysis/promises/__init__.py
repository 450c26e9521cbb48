"""The promises, one module each: a `RULE` for those that go by class, else `NAME` and `check(frames) -> marks`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import reduce

from pyspark.sql import DataFrame

from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.promises import (
    atomic,
    available,
    failback_within,
    failover_within,
    no_dead_letters,
    no_duplicates,
    no_loss,
    no_phantoms,
    ordered,
    single_active,
    sticky,
)
from brokerdrill.analysis.promises.by_class import check_classes

RULES = (no_phantoms.RULE, no_loss.RULE, no_duplicates.RULE, no_dead_letters.RULE)

CHECKS: dict[str, Callable[[Frames], DataFrame]] = {
    module.NAME: module.check
    for module in (atomic, ordered, sticky, single_active, failover_within, failback_within, available)
}


def check_all(frames: Frames, names: Collection[str]) -> DataFrame:
    """Return the marks of the promises in `names` (at least one), for all runs that list them."""
    rules = [rule for rule in RULES if rule.name in names]
    found = [check_classes(frames, rules)] if rules else []
    found += [check(frames) for name, check in CHECKS.items() if name in names]
    return reduce(DataFrame.unionByName, found)


def apart(names: Collection[str]) -> list[set[str]]:
    """Return `names` in sets that are each checked at once: those that go by class, and each of the others."""
    by_class = {rule.name for rule in RULES} & set(names)
    return [some for some in (by_class, *({name} for name in CHECKS if name in names)) if some]
