"""The explorer without hosts: it finds what a made-up system hides, makes it small and knows it again, and goes on from
its journal as if it had never stopped."""

from __future__ import annotations

import json
import random
import statistics
from typing import Any

from brokerdrill.explore.coverage import Situation
from brokerdrill.explore.defects import BrokenPromise, Signature, breaks, signature, suspects, unexplained
from brokerdrill.explore.explorer import (
    HUNT,
    SHRINK,
    Explorer,
    Find,
    Trial,
    TrialResult,
    asked,
    replay,
    result_from_json,
)
from brokerdrill.explore.shrink import Shrinker
from brokerdrill.ledger.verdict import FAIL, Attribution, PromiseVerdict, RunVerdict
from brokerdrill.ledger.witness import Witness

from .places import TOPOLOGY, drawn_on

SPACE = drawn_on()
LOSS = BrokenPromise("no_loss", "lost")
BAD = "kill majority of zookeeper"


def judge(trial: Trial, rng: random.Random, rate: float = 0.5) -> TrialResult:
    """What a made-up system does: a majority that is away long enough loses messages, at a rate."""
    bad = any(hit.what == BAD and hit.hold_s >= 2 for hit in trial.schedule.hits)
    seen = frozenset(Situation("active+passive", hit.what, "send") for hit in trial.schedule.hits)
    broke = (LOSS,) if bad and rng.random() < rate else ()
    return TrialResult(broke, frozenset({"no_loss"}), seen, ("kill",) if broke else (), f"run{trial.number}", 30.0)


def explored(explorer: Explorer, trials: int, seed: int = 1, rate: float = 0.5) -> list[dict[str, Any]]:
    """Explore before the made-up system; return the journal's entries."""
    entries = []
    for _ in range(trials):
        trial = explorer.next()
        came = judge(trial, random.Random(f"{seed}/{trial.number}"), rate)
        entries.append(json.loads(json.dumps({**trial.to_json(), **came.to_json()})))
        explorer.record(trial, came)
    return entries


def test_it_finds_what_is_hidden_and_makes_it_small_once() -> None:
    explorer = Explorer(SPACE, 3)
    explored(explorer, 300)
    (find,) = explorer.finds
    assert find.broke == LOSS and find.ended
    assert find.signature.faults == {BAD}
    assert find.shrinker.spent <= 30
    assert explorer.trials == 300 == explorer.hunted + find.shrinker.spent
    assert explorer.again.get(find.signature, 0) == sum(explorer.again.values())


def test_it_goes_on_from_its_journal_wherever_it_was_stopped() -> None:
    whole = Explorer(SPACE, 3)
    entries = explored(whole, 120, rate=1.0)
    assert {entry["purpose"] for entry in entries} == {HUNT, SHRINK}
    for stopped in range(0, 120, 7):
        again = Explorer(SPACE, 3)
        replay(again, entries[:stopped])
        for entry in entries[stopped : stopped + 3]:
            trial = again.next()
            assert trial == asked(entry)
            again.record(trial, result_from_json(entry))


def test_what_is_known_is_not_found_again() -> None:
    known = Signature(LOSS, frozenset({BAD}), TOPOLOGY)
    explorer = Explorer(SPACE, 3, known=(known,))
    explored(explorer, 150)
    assert explorer.finds == []
    other = Explorer(SPACE, 3, known=(Signature(LOSS, frozenset({BAD}), "elsewhere"),), shrinks=False)
    explored(other, 150)
    # What is not made smaller is known by all its faults, so that it may be found beside others again.
    assert other.finds and all(one.ended for one in other.finds)


def test_coverage_sees_more_than_chance_in_the_same_number_of_runs() -> None:
    def seen(uniform: bool) -> float:
        counts = []
        for seed in range(5):
            explorer = Explorer(SPACE, seed, uniform=uniform)
            explored(explorer, 50, rate=0.0)
            counts.append(len(explorer.coverage.seen))
        return statistics.median(counts)

    assert seen(uniform=False) > seen(uniform=True)


def test_what_goes_too_far_is_not_drawn() -> None:
    explorer = Explorer(SPACE, 3, allows=lambda one: len(one.hits) == 1)
    assert all(len(explorer.next().schedule.hits) == 1 for _ in range(3))


def test_a_defect_is_known_by_what_broke_and_its_faults() -> None:
    known = Signature(LOSS, frozenset({BAD}), TOPOLOGY)
    assert signature(known.to_json()) == known
    double = BrokenPromise("no_duplicates", "duplicated")
    both = Signature(LOSS, frozenset({BAD}), TOPOLOGY, frozenset({double}))
    assert signature(json.loads(json.dumps(both.to_json()))) == both
    assert unexplained([double], {BAD}, TOPOLOGY, [both]) is None
    assert unexplained([double], {BAD}, TOPOLOGY, [known]) == double
    assert unexplained([LOSS], {BAD, "pause active"}, TOPOLOGY, [known]) is None
    assert unexplained([LOSS], {"pause active"}, TOPOLOGY, [known]) == LOSS
    assert unexplained([LOSS], {BAD}, "elsewhere", [known]) == LOSS
    other = BrokenPromise("single_active", "store")
    assert unexplained([other], {BAD}, TOPOLOGY, [known]) == other
    # One cause breaks several promises.
    assert unexplained([other, LOSS], {BAD}, TOPOLOGY, [known]) is None
    assert unexplained([], {BAD}, TOPOLOGY, []) is None


def test_a_verdict_says_what_broke_gravest_first_and_under_which_faults() -> None:
    result = RunVerdict(
        promises=(
            PromiseVerdict("no_duplicates", FAIL, witnesses=(Witness({"class": "duplicated"}),)),
            PromiseVerdict("no_loss", FAIL, witnesses=(Witness({"class": "lost"}),)),
            PromiseVerdict("single_active", FAIL, witnesses=(Witness({"store": "pair1"}),)),
            PromiseVerdict("ordered", "pass"),
        ),
        attribution=(Attribution("lost", "pause", count=1), Attribution("lost", "kill", count=5)),
    )
    assert breaks(result) == (
        LOSS,
        BrokenPromise("single_active", "store"),
        BrokenPromise("no_duplicates", "duplicated"),
    )
    assert suspects(result) == ("kill", "pause")


def test_a_further_run_breaks_the_same_when_it_breaks_any_of_it() -> None:
    """A stale copy that takes over loses messages, or has those again that were consumed meanwhile, or both."""
    double = BrokenPromise("no_duplicates", "duplicated")
    schedule = Explorer(SPACE, 1).next().schedule
    find = Find(1, LOSS, (double,), schedule, 1, None, 1.0, TOPOLOGY, Shrinker(schedule))
    both = frozenset({"no_loss", "no_duplicates"})
    assert find.again(TrialResult((double,), both)) is True
    assert find.again(TrialResult((double,), frozenset({"no_duplicates"}))) is True
    assert find.again(TrialResult((BrokenPromise("ordered"),), both)) is False
    assert find.again(TrialResult((), frozenset({"no_duplicates"}))) is None


def test_what_was_begun_and_is_not_told_is_made_first_when_it_goes_on() -> None:
    whole = Explorer(SPACE, 3)
    entries = explored(whole, 5)
    begun = [whole.next().to_json(), whole.next(1).to_json()]
    again = Explorer(SPACE, 3)
    left = replay(again, [*(one for entry in entries for one in (asked(entry).to_json(), entry)), *begun])
    assert [trial.number for trial in left] == [6, 7]
    assert [trial.to_json() for trial in left] == begun
    assert again.trials == 5
