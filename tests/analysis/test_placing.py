"""Where a clock's times lie in run time, by what was read of it: the rules of docs/ledger.md, one by one."""

from __future__ import annotations

import pytest

from brokerdrill.analysis.placing import MOST_STRETCHES, Placed, Reading, Readings, placed
from brokerdrill.ledger.contract import Clock

MS = 1_000_000
S = 1_000 * MS


def clock(
    *readings: tuple[float, float, float], offset: float = 0, u: float = 0.1, last: float = 0, host: str = "h"
) -> Placed:
    """The clock of which (s of run time, offset in ms, uncertainty in ms) was read, in a run whose last event was at
    `last` s."""
    found = Readings(last=round(last * S))
    for at, off, by in readings:
        found.add("c", round(at * S), round(off * MS), round(by * MS))
    return placed({"c": Clock(host, round(offset * MS), round(u * MS))}, found)["c"]


def offsets(one: Placed, *at_s: float) -> list[float]:
    return [one.offset(round(at * S)) / MS for at in at_s]


def test_a_clock_that_was_never_read_is_as_run_json_says() -> None:
    one = clock(offset=40, u=3)
    assert offsets(one, -5, 0, 100) == [40, 40, 40]
    assert (one.u, one.host) == (3 * MS, "h")


def test_a_reading_is_placed_by_its_own_offset() -> None:
    found = Readings()
    found.add("c", 10, 4, 1)
    assert found.of == {"c": [Reading(6, 1, 4)]}


@pytest.mark.parametrize(("u", "by"), [(0, 0), (0.1, 0.1 + 10)])
def test_who_was_not_read_may_have_drifted_to_the_runs_end(u: float, by: float) -> None:
    """100 s by 100 in a million; a clock that is certain is the run's own."""
    assert clock(u=u, last=100).u == round(by * MS)


def test_between_two_readings_a_clock_went_evenly() -> None:
    # In its own time the reading was at 99.990 s, when it had lost 10 ms.
    one = clock((100, 10, 0.1), last=100)
    assert offsets(one, -1, 0, 99.990, 120) == [0, 0, 10, 10]
    assert offsets(one, 99.990 / 2) == [5]
    assert one.u == 100_000


def test_it_is_uncertain_by_its_vaguest_reading() -> None:
    assert clock((5, 0, 0.3), (10, 0, 0.2), last=10).u == 300_000


def test_after_the_last_reading_it_may_have_drifted() -> None:
    assert clock((10, 0, 0.1), last=40).u == 100_000 + 3 * MS


def test_a_reading_that_says_less_than_the_one_before_does_not_count() -> None:
    """A machine that was busy while its clock was read makes no other reading worse."""
    busy = (20, 15, 15.7)
    assert clock((10, 0, 0.1), busy, (30, 0, 0.1), last=30).u == 100_000
    assert clock((10, 0, 0.1), busy, last=20).u == 100_000 + MS
    assert clock((10, 0, 0.1), (20, 0, 1.1)).u == 1_100_000
    assert clock((10, 0, 0.1), (20, 0, 1.101)).u == 100_000
    # As vague as it may have drifted meanwhile, which is known no better.
    assert clock((10, 0, 0.1), (20, 0, 1.1), last=20).u == 1_100_000
    assert clock((10, 0, 0.1), (20, 0, 1.101), last=20).u == 1_100_000


def test_a_vague_reading_that_contradicts_the_one_before_counts() -> None:
    one = clock((10, 0, 0.1), (20, 300, 15), last=20)
    assert offsets(one, 19.7) == [300]
    assert one.u == 315 * MS


def test_a_clock_that_was_set_is_uncertain_by_as_much() -> None:
    """Nobody knows when it was, between the two readings: 500 ms before the one, or after the other."""
    assert clock((10, 0, 0.1), (15, 500, 0.2), (20, 500, 0.1), last=20).u == round(500.2 * MS)


@pytest.mark.parametrize(
    ("drift_ms", "u"),
    [
        # 100 in a million of 10 s and both uncertainties: that is no more than a drift.
        (1.2, 100_000),
        (1.3, 1_400_000),
    ],
)
def test_a_quartz_drifts_so_much(drift_ms: float, u: int) -> None:
    one = clock((10 + drift_ms / 1e3, drift_ms, 0.1), last=10)
    assert abs(one.u - u) < 1_000


def test_a_clock_that_goes_wrong_evenly_is_known_as_well() -> None:
    """One in a hundred: no quartz, but three readings on one line say so."""
    assert clock((10, 100, 0.1), (20, 200, 0.1), (30, 300, 0.1), last=30).u == 100_000
    # The middle one is off the line by more than the three allow.
    assert clock((10, 100, 0.1), (20, 199, 0.1), last=20).u > 98 * MS


@pytest.mark.parametrize("last_off", [0, 2])
def test_of_very_many_readings_some_are_used_and_the_others_held_against_them(last_off: float) -> None:
    readings = [(5.0 * n, 0.0, 0.1) for n in range(1, 161)]
    readings[78] = (5.0 * 79, last_off, 0.1)
    one = clock(*readings, last=800)
    # Each tenth and the last.
    assert len(one.stretches) == MOST_STRETCHES + 2
    assert [stretch.at for stretch in one.stretches[1:4]] == [0, 50 * S, 100 * S]
    assert one.stretches[-1].at == 800 * S
    assert one.u == round((0.1 + last_off) * MS)


def test_the_last_reading_is_used_whatever_their_number() -> None:
    one = clock(*((5.0 * n, 0.0, 0.1) for n in range(1, 19)), last=90)
    assert [stretch.at // S for stretch in one.stretches[1:]] == [*range(0, 90, 10), 90]


def test_the_spans_of_a_clock_are_all_time() -> None:
    spans = list(clock((10, 1, 0.1)).spans())
    assert [span[1] for span in spans[:-1]] == [span[0] for span in spans[1:]]
    assert (spans[0][0], spans[-1][1]) == (-(1 << 62), 1 << 62)
    assert len(list(clock().spans())) == 1
