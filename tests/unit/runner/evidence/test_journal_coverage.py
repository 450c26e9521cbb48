"""Which part of a run a host's journal covers, from what it says of each start of the host."""

from __future__ import annotations

import json

import pytest

from brokerdrill.base.clock import ClockOffset
from brokerdrill.runner.evidence.journal_coverage import Boot, CoveredTime, covered_times, parse_boots

CLOCKS = {"b1": ClockOffset(1_000, 0), "b2": ClockOffset(5_000_000, 0)}


def entry(at_us: int) -> dict[str, str]:
    return {"__MONOTONIC_TIMESTAMP": str(at_us)}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            {"boot": "b1", "first": entry(2), "last": entry(9), "stop": entry(7)},
            Boot(3_000, 10_000, whole=False),
        ),
        ({"boot": "b1", "first": entry(2), "last": entry(9), "stop": entry(9)}, Boot(3_000, 10_000)),
        ({"boot": "b1", "first": entry(2), "last": entry(9), "stop": None}, Boot(3_000, 10_000, whole=False)),
        (
            {"boot": "b2", "first": entry(2), "last": entry(9), "stop": None},
            Boot(5_002_000, 5_009_000, whole=False, current=True),
        ),
        # Without a clock its entries have no place; without entries there is none to place.
        ({"boot": "b3", "first": entry(2), "last": entry(9), "stop": None}, None),
        ({"boot": "b3"}, None),
        ({"boot": "b1", "first": None, "last": entry(9), "stop": None}, None),
        ({"boot": "b1", "first": entry(2), "last": None, "stop": None}, None),
    ],
)
def test_a_boot_is_placed_by_its_own_clock(told: dict[str, object], expected: Boot | None) -> None:
    assert parse_boots(json.dumps(told), CLOCKS, "b2") == [expected]


@pytest.mark.parametrize(
    ("boots", "expected"),
    [
        ([Boot(10, 90)], [CoveredTime(20, 80, 1)]),
        ([Boot(30, 60)], [CoveredTime(30, 60, 1)]),
        # The one that goes on has been read up to the end.
        ([Boot(30, 60, whole=False, current=True)], [CoveredTime(30, 80, 1)]),
        # Nothing is missing between an orderly end and the next start; after any other end something may be.
        ([Boot(10, 40), Boot(50, 70)], [CoveredTime(20, 70, 2)]),
        ([Boot(10, 40, whole=False), Boot(50, 70)], [CoveredTime(20, 40, 1), CoveredTime(50, 70, 1)]),
        ([Boot(10, 40), None, Boot(50, 70)], [CoveredTime(20, 40, 1), CoveredTime(50, 70, 1)]),
        ([Boot(10, 40), Boot(40, 70)], [CoveredTime(20, 70, 2)]),
        # Before the span, and after it.
        ([Boot(1, 19), Boot(50, 70)], [CoveredTime(50, 70, 1)]),
        ([Boot(1, 20), Boot(81, 90)], []),
        ([Boot(10, 40), Boot(30, 70)], [CoveredTime(20, 40, 1), CoveredTime(30, 70, 1)]),
        ([], []),
    ],
)
def test_a_journal_covers_what_it_has_from_first_to_last(boots: list[Boot | None], expected: list[CoveredTime]) -> None:
    assert covered_times(boots, (20, 80)) == expected
