"""Bounds and percentiles: against their definitions, not against another implementation of ours."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerdrill.report.statistics import percentile, upper_bound


def tail(violations: int, trials: int, rate: float) -> float:
    return math.fsum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(violations + 1))


@pytest.mark.parametrize("trials", [1, 3, 20, 1000])
def test_without_a_violation_the_bound_is_the_closed_form(trials: int) -> None:
    assert upper_bound(0, trials) == pytest.approx(1 - 0.05 ** (1 / trials), rel=1e-12)


# Tabulated one-sided 95 % Clopper-Pearson bounds.
@pytest.mark.parametrize(
    ("violations", "trials", "bound"),
    [(0, 20, 0.1391), (1, 20, 0.2161), (2, 20, 0.2826), (5, 100, 0.1023), (1, 1, 1.0)],
)
def test_tabulated_bounds(violations: int, trials: int, bound: float) -> None:
    assert upper_bound(violations, trials) == pytest.approx(bound, abs=5e-5)


@given(st.integers(1, 200).flatmap(lambda trials: st.tuples(st.integers(0, trials - 1), st.just(trials))))
def test_at_the_bound_so_few_violations_have_five_percent(case: tuple[int, int]) -> None:
    bound = upper_bound(*case)
    assert bound is not None
    assert tail(*case, bound) == pytest.approx(0.05, abs=1e-9)


def test_no_trial_bounds_nothing() -> None:
    assert upper_bound(0, 0) is None
    for violations, trials in ((2, 1), (-1, 1)):
        with pytest.raises(ValueError, match="violations in"):
            upper_bound(violations, trials)


def test_percentiles_are_observed_values() -> None:
    values = [float(value) for value in range(1, 21)]
    assert percentile(values, 0.5) == 10
    assert percentile(values, 0.95) == 19
    assert percentile([7.0], 0.95) == 7
    assert percentile([], 0.5) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_percentile_is_the_least_value_that_covers_its_share(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert sum(value < found for value in values) < share * len(values)
