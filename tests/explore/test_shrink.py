"""The shrinker's logic against judges that are made up: what is left is what breaks, within the budget."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerdrill.explore.draw import fresh
from brokerdrill.explore.schedule import AT_ONCE, IN_SYNC, Schedule, ScheduledFault, valid
from brokerdrill.explore.shrink import BUDGET, CONFIRM, Shrinker, size, smaller

from .places import drawn_on

SPACE = drawn_on()
BAD = ScheduledFault("kill", "majority of zookeeper", 1, hold_s=9.0, pause_s=2.0)
FOUND = Schedule(
    (
        ScheduledFault("pause", "one of zookeeper"),
        BAD,
        ScheduledFault("partition", "link load→artemis", 1, IN_SYNC, 4.0, 10.0),
    ),
    "backlog",
    resyncs=True,
)


def shrunk(
    found: Schedule, rate: Callable[[Schedule], float], seed: int = 1, suspects: tuple[str, ...] = ()
) -> Shrinker:
    """Shrink `found` before a judge whose runs break the promise at the rate that `rate` gives a schedule."""
    rng = random.Random(seed)
    shrinker = Shrinker(found, suspects)
    while (one := shrinker.next()) is not None:
        assert valid(one)
        shrinker.record(one, rng.random() < rate(one))
    assert shrinker.spent <= BUDGET
    return shrinker


def has_bad(schedule: Schedule) -> bool:
    """Whether it kills a majority for longer than a session lasts."""
    return any(hit.fault == BAD.fault and hit.target == BAD.target and hit.hold_s >= 4 for hit in schedule.hits)


def test_what_always_breaks_becomes_as_small_as_it_can_be() -> None:
    left = shrunk(FOUND, lambda one: float(has_bad(one)))
    (hit,) = left.current.hits
    assert (hit.fault, hit.target, hit.wait, hit.pause_s) == (BAD.fault, BAD.target, AT_ONCE, 0.0)
    assert 4 <= hit.hold_s < 9
    assert hit.strength == 0 and left.current.load == "plain" and left.current.clients == 1
    assert not left.current.resyncs
    assert left.tally.broken == left.tally.runs > 0
    assert left.confirmed


@pytest.mark.parametrize(("rate", "most"), [(0.3, 0.65), (0.5, 0.85), (0.8, 0.95)])
def test_what_breaks_now_and_then_becomes_one_hit_most_times(rate: float, most: float) -> None:
    """Rates as low as that of the known loss on a real pair; what is left breaks at all in any case."""
    ends = [shrunk(FOUND, lambda one: rate * has_bad(one), seed, ("kill",)) for seed in range(40)]
    sure = [one for one in ends if one.confirmed]
    assert len(sure) >= 36
    assert all(has_bad(one.current) for one in sure)
    assert sum(len(one.current.hits) == 1 for one in sure) >= most * len(sure)


def test_what_needs_two_hits_keeps_two() -> None:
    both = lambda one: float(has_bad(one) and any(hit.fault == "partition" for hit in one.hits))  # noqa: E731
    left = shrunk(FOUND, both)
    assert {hit.fault for hit in left.current.hits} == {"kill", "partition"}


def test_what_breaks_more_seldom_for_being_smaller_is_put_back() -> None:
    """One hit alone breaks it once in a while, by chance within the tries; the two together most times."""

    def rate(one: Schedule) -> float:
        both = {hit.fault for hit in one.hits} >= {"kill", "partition"}
        return (0.9 if both else 0.1) * has_bad(one)

    ends = [shrunk(FOUND, rate, seed) for seed in range(60)]
    assert sum(len(one.current.hits) == 2 for one in ends) >= 50


def test_what_never_breaks_again_is_given_up_and_said() -> None:
    left = shrunk(FOUND, lambda _: 0.0)
    assert not left.confirmed and left.current == FOUND and left.spent == CONFIRM
    assert left.tally.broken == 0


def test_a_run_that_says_nothing_counts_for_the_budget_only() -> None:
    shrinker = Shrinker(FOUND)
    for _ in range(BUDGET):
        assert shrinker.next() == FOUND
        shrinker.record(FOUND, None)
    assert shrinker.next() is None
    assert shrinker.tally.runs == 0 and shrinker.tally.rate is None


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 32), st.floats(0, 1), st.floats(0, 1))
def test_it_always_ends_and_what_is_left_was_seen_to_break(seed: int, rate: float, none: float) -> None:
    rng = random.Random(seed)
    found = fresh(SPACE, rng)
    shrinker = Shrinker(found)
    broke: set[Schedule] = {found}
    runs = 0
    while (one := shrinker.next()) is not None:
        runs += 1
        came = None if rng.random() < none / 2 else rng.random() < rate
        if came:
            broke.add(one)
        shrinker.record(one, came)
    assert runs == shrinker.spent <= BUDGET
    assert shrinker.current in broke
    assert len(shrinker.current.hits) <= len(found.hits)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 32))
def test_smaller_is_smaller_and_ends(seed: int) -> None:
    one = fresh(SPACE, random.Random(seed))
    steps = 0
    while (following := next(smaller(one), None)) is not None:
        assert valid(following)
        assert all(size(each) < size(one) for each in smaller(one))
        one, steps = following, steps + 1
        assert steps < 60
    assert len(one.hits) == 1


def test_what_is_told_out_of_turn_makes_nothing_larger() -> None:
    """A journal that another version wrote tells of runs that this one would not have asked for."""
    shrinker = Shrinker(FOUND)
    shrinker.record(FOUND, True)
    alone = Schedule((BAD,))
    shrinker.record(alone, True)
    shrinker.record(Schedule(FOUND.hits[:2]), True)
    assert shrinker.current == alone and shrinker.tally.runs == 1
