"""Statistics: against definitions, published figures and scipy, and their promises by simulation with fixed seeds."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from brokerdrill.base.statistics import (
    Interval,
    compare_rates,
    compare_times,
    evenness,
    holm,
    percentile,
    quantile_interval,
    rate_interval,
    smallest_p,
    upper_bound,
)


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


# --- rate -----------------------------------------------------------------------------------------------------------


# Two-sided 95 % limits, Newcombe, Statistics in Medicine 17 (1998), table I, method 5.
@pytest.mark.parametrize(
    ("violations", "trials", "low", "high"),
    [(81, 263, 0.2527, 0.3676), (15, 148, 0.0578, 0.1617), (0, 20, 0.0, 0.1684), (1, 29, 0.0009, 0.1776)],
)
def test_published_intervals_of_a_rate(violations: int, trials: int, low: float, high: float) -> None:
    found = rate_interval(violations, trials)
    assert found is not None and found.low is not None and found.high is not None
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(1, 300).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_the_interval_of_a_rate_is_scipys(case: tuple[int, int]) -> None:
    found, theirs = rate_interval(*case), stats.binomtest(*case).proportion_ci(0.95, "exact")
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(theirs.low, abs=1e-9), pytest.approx(theirs.high, abs=1e-9))


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.5])
@pytest.mark.parametrize("trials", [5, 20, 60])
def test_the_interval_of_a_rate_covers_it(rate: float, trials: int) -> None:
    """Exactly, over all outcomes: no simulation is needed where there are only trials + 1 of them."""
    covered = 0.0
    for violations in range(trials + 1):
        found = rate_interval(violations, trials)
        assert found is not None and found.low is not None and found.high is not None
        covered += (found.low <= rate <= found.high) * float(stats.binom.pmf(violations, trials, rate))
    assert covered >= 0.95


# --- quantiles ------------------------------------------------------------------------------------------------------


# Ranks of the 95 % interval of the median, as tables for the sign test have them.
@pytest.mark.parametrize(
    ("count", "low", "high"), [(6, 1, 6), (8, 1, 8), (10, 2, 9), (15, 4, 12), (20, 6, 15), (25, 8, 18)]
)
def test_ranks_of_the_medians_interval(count: int, low: int, high: int) -> None:
    assert quantile_interval(range(1, count + 1), 0.5) == Interval((count + 1) // 2, low, high)


def test_too_few_values_leave_an_end_open() -> None:
    assert quantile_interval([3, 1, 2], 0.5) == Interval(2, None, None)
    # 1 - 0.95^72 is the first to reach 97.5 %.
    assert quantile_interval(range(71), 0.95).high is None  # type: ignore[union-attr]
    assert quantile_interval(range(72), 0.95).high == 71  # type: ignore[union-attr]
    assert quantile_interval([], 0.5) is None


@pytest.mark.parametrize("share", [0.5, 0.95])
@pytest.mark.parametrize("count", [12, 40, 120])
def test_the_interval_of_a_quantile_covers_it(share: float, count: int) -> None:
    rng = np.random.default_rng(20261121)
    true, rounds, missed_low, missed_high = float(stats.lognorm.ppf(share, 0.5)), 2000, 0, 0
    for values in stats.lognorm.rvs(0.5, size=(rounds, count), random_state=rng):
        found = quantile_interval(values.tolist(), share)
        assert found is not None
        missed_low += found.low is not None and found.low > true
        missed_high += found.high is not None and found.high < true
    # 0.025 at most, give or take three standard errors of the simulation.
    limit = (0.025 + 3 * math.sqrt(0.025 * 0.975 / rounds)) * rounds
    assert missed_low <= limit and missed_high <= limit


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=150), st.sampled_from([0.5, 0.9, 0.95]))
def test_a_quantiles_ends_are_observed_and_hold_it(values: list[float], share: float) -> None:
    found = quantile_interval(values, share)
    assert found is not None and found.estimate == percentile(values, share)
    assert found.low is None or (found.low in values and found.low <= found.estimate)
    assert found.high is None or (found.high in values and found.high >= found.estimate)


# --- two settings ---------------------------------------------------------------------------------------------------

# Permeability of the human chorioamnion at term and at 12 to 26 weeks: Hollander & Wolfe, Nonparametric Statistical
# Methods, table 4.1. Their figures: W = 30, shift 0.305; R's wilcox.test gives p = 0.2544 and (-0.15, 0.76).
TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLY = [1.15, 0.88, 0.90, 0.74, 1.21]


def test_published_comparison_of_times() -> None:
    found = compare_times(EARLY, TERM)
    assert found is not None and found.method == "exact"
    assert found.p == pytest.approx(0.2544, abs=5e-5)
    assert found.shift.estimate == pytest.approx(0.305)
    assert (found.shift.low, found.shift.high) == (pytest.approx(-0.15), pytest.approx(0.76))
    # U = 35 of the 50 pairs.
    assert found.delta == pytest.approx((35 - 15) / 50)
    larger = compare_times(EARLY, TERM, "greater")
    assert larger is not None and larger.p == pytest.approx(0.1272, abs=5e-5)


def test_the_shifts_interval_holds_what_the_test_does_not_refuse() -> None:
    """The interval's definition: the shifts d for which b - d and a are not told apart at 5 %."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        a, b = rng.normal(size=rng.integers(4, 9)).tolist(), rng.normal(1, 1, size=rng.integers(4, 9)).tolist()
        found = compare_times(a, b)
        assert found is not None and found.shift.low is not None and found.shift.high is not None
        for d, inside in ((found.shift.low, 1e-9), (found.shift.high, -1e-9)):
            for step, kept in ((inside, True), (-inside, False)):
                p = stats.mannwhitneyu([value - d - step for value in b], a, method="exact").pvalue
                assert (p > 0.05) == kept


@pytest.mark.parametrize(("m", "n"), [(5, 9), (20, 20), (60, 45)])
def test_the_comparison_keeps_its_level_and_its_interval_covers(m: int, n: int) -> None:
    rng = np.random.default_rng(m * 100 + n)
    rounds, alarms, covered = 600, 0, 0
    for _ in range(rounds):
        found = compare_times(rng.exponential(size=m).tolist(), (rng.exponential(size=n) + 0.4).tolist())
        assert found is not None
        low, high = found.shift.low, found.shift.high
        covered += (low is None or low <= 0.4) and (high is None or high >= 0.4)
        null = compare_times(rng.exponential(size=m).tolist(), rng.exponential(size=n).tolist(), "greater")
        assert null is not None
        alarms += null.p <= 0.05
    error = 3 * math.sqrt(0.05 * 0.95 / rounds)
    assert covered / rounds >= 0.95 - error
    assert alarms / rounds <= 0.05 + error


def test_ties_and_equal_values_are_no_difference() -> None:
    same = compare_times([5, 5, 5], [5, 5])
    assert same is not None and (same.p, same.delta, same.shift.estimate) == (1.0, 0.0, 0.0)
    assert compare_times([], [1.0]) is None
    few = compare_times([1.0, 2.0], [3.0, 4.0])
    assert few is not None and (few.shift.low, few.shift.high) == (None, None)


def test_published_comparison_of_rates() -> None:
    # Fisher's lady tasting tea: 3 of 4 against 1 of 4.
    tea = compare_rates((1, 4), (3, 4), "greater")
    assert tea is not None and tea.p == pytest.approx(17 / 70)
    two = compare_rates((1, 4), (3, 4))
    assert two is not None and two.p == pytest.approx(34 / 70)
    assert compare_rates((0, 0), (1, 3)) is None
    with pytest.raises(ValueError, match="4 violations in 3 trials"):
        compare_rates((4, 3), (1, 3))


def test_holm() -> None:
    # By hand: 4 * 0.005, 3 * 0.01, 2 * 0.03, and 0.04 raised to its predecessor's 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_order_and_never_lowers(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert all(p <= q <= 1 for p, q in zip(ps, adjusted, strict=True))
    assert all(adjusted[i] <= adjusted[j] for i, j in combinations(sorted(range(len(ps)), key=ps.__getitem__), 2))


def test_the_smallest_p_is_reached_by_what_does_not_overlap() -> None:
    for m, n in ((1, 1), (3, 3), (4, 7)):
        apart = compare_times(list(range(m)), list(range(100, 100 + n)), "greater")
        assert apart is not None and apart.p == pytest.approx(smallest_p(m, n))


def test_evenness() -> None:
    assert evenness([5]) is None and evenness([0, 0]) is None
    assert evenness([10, 10, 10]) == (0.0, 1.0)
    found = evenness([32, 8, 0])
    assert found is not None
    assert found[0] == pytest.approx(41.6)
    assert found[1] == pytest.approx(stats.chisquare([32, 8, 0]).pvalue)
