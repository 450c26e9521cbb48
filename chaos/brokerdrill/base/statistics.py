"""What repeated runs allow to say: exact intervals of a rate and of quantiles, and whether two settings differ.

Everything is exact or distribution-free, so that ten failovers are enough to say something, and nothing is assumed of
how failover times are spread:

- rate of violation: Clopper & Pearson, Biometrika 26 (1934);
- quantile: order statistics, David & Nagaraja, Order Statistics, 3rd ed. (2003), section 7.1;
- two sets of times: Mann & Whitney, Ann. Math. Stat. 18 (1947), exact for small samples without ties, with Cliff's
  delta as effect size and the Hodges-Lehmann shift with its interval (Hollander, Wolfe & Chicken, section 4.3);
- two rates: Fisher's exact test; several tests at once: Holm, Scand. J. Stat. 6 (1979).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from scipy import special

CONFIDENCE = 0.95
ALPHA = 0.05
# Up to here the distribution of U is counted out where no values are tied; beyond, the normal one is as good.
EXACT_U = 50
Alternative = Literal["two-sided", "greater", "less"]


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval; an end is None where so few values cannot bound it."""

    estimate: float
    low: float | None
    high: float | None


def _check_rate(violations: int, trials: int, confidence: float) -> None:
    if not 0 <= violations <= trials or not 0 < confidence < 1:
        raise ValueError(f"{violations} violations in {trials} trials at confidence {confidence}")


def upper_bound(violations: int, trials: int, confidence: float = CONFIDENCE) -> float | None:
    """Return the one-sided exact (Clopper-Pearson) upper bound of the rate of violations, 0 to 1.

    It is the rate at which so few violations in so many trials would be seen with probability 1 - confidence only;
    without a violation that is 1 - (1 - confidence)^(1/trials). None without a trial. Raises ValueError where
    violations is not between 0 and trials, or confidence not between 0 and 1.
    """
    _check_rate(violations, trials, confidence)
    if trials == 0:
        return None
    if violations == trials:
        return 1.0
    return float(special.betaincinv(violations + 1, trials - violations, confidence))


def rate_interval(violations: int, trials: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Return the rate of violations with its two-sided exact (Clopper-Pearson) interval; None without a trial.

    Raises ValueError as `upper_bound`.
    """
    _check_rate(violations, trials, confidence)
    if trials == 0:
        return None
    tail = (1 - confidence) / 2
    low = 0.0 if violations == 0 else float(special.betaincinv(violations, trials - violations + 1, tail))
    return Interval(violations / trials, low, upper_bound(violations, trials, 1 - tail))


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile (`share` in (0, 1]): a value that was observed. None without values."""
    if not values:
        return None
    return sorted(values)[_rank(len(values), share) - 1]


def _rank(count: int, share: float) -> int:
    # 1e-9 keeps 0.95 * 20 = 19.000000000000004 at rank 19.
    return max(1, math.ceil(share * count - 1e-9))


def quantile_interval(values: Sequence[float], share: float, confidence: float = CONFIDENCE) -> Interval | None:
    """Return the nearest-rank quantile with its exact, distribution-free interval between two observed values.

    Each end misses the true quantile with probability of at most (1 - confidence) / 2, for any distribution: the number
    of values below it is binomial. An end is None where there are too few values (the 95th percentile has no upper end
    below 72 values). None without values; raises ValueError where share or confidence is not between 0 and 1.
    """
    if not 0 < share < 1 or not 0 < confidence < 1:
        raise ValueError(f"quantile {share} at confidence {confidence}")
    if not values:
        return None
    ordered, count, tail = sorted(values), len(values), (1 - confidence) / 2
    # At most k - 1 values lie below the quantile with this probability, for k = 1 … count.
    below = special.bdtr(np.arange(count), count, share)
    # X(i) is too high if at most i - 1 values are below: the largest rank for which that is rare.
    low = int(np.searchsorted(below, tail, side="right"))
    # X(j) is too low if at least j values are at or below.
    high = int(np.searchsorted(below, 1 - tail, side="left")) + 1
    return Interval(
        ordered[_rank(count, share) - 1],
        ordered[low - 1] if low else None,
        ordered[high - 1] if high <= count else None,
    )


# --- two settings ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shift:
    """How the times `b` stand to the times `a`.

    `p` is Mann-Whitney's; `delta` (Cliff's) is the share of pairs in which b is larger less that in which it is
    smaller, -1 to 1; `shift` estimates by how much b is larger (Hodges-Lehmann: the median of all differences) with its
    interval.
    """

    count_a: int
    count_b: int
    median_a: float
    median_b: float
    p: float
    delta: float
    shift: Interval
    method: str


@functools.lru_cache(maxsize=64)
def _u_counts(m: int, n: int) -> np.ndarray[Any, Any]:
    """The probability of each U = 0 … m·n without ties, m <= n: the coefficients of the Gaussian binomial."""
    ways = np.zeros(m * n + 1)
    ways[0] = 1.0
    for part in range(1, m + 1):
        top = n + part
        # times (1 - q^top), then divided by (1 - q^part)
        ways[top:] -= ways[:-top].copy() if top <= m * n else 0
        for offset in range(part):
            ways[offset::part] = np.cumsum(ways[offset::part])
    return ways / ways.sum()


def _differences(a: Sequence[float], b: Sequence[float]) -> np.ndarray[Any, Any]:
    return np.sort(np.subtract.outer(np.asarray(b, float), np.asarray(a, float)), axis=None)


def _critical(m: int, n: int, tail: float) -> int:
    """The largest c with P(U < c) <= tail: the c-th smallest and largest differences bound the shift; 0: none does."""
    if max(m, n) <= EXACT_U:
        return int(np.searchsorted(np.cumsum(_u_counts(min(m, n), max(m, n))), tail, side="right"))
    mean, deviation = m * n / 2, math.sqrt(m * n * (m + n + 1) / 12)
    return max(0, math.floor(mean + float(special.ndtri(tail)) * deviation))


def compare_times(
    a: Sequence[float], b: Sequence[float], alternative: Alternative = "two-sided", confidence: float = CONFIDENCE
) -> Shift | None:
    """Compare two sets of times; `greater`: is b larger (slower) than a? None where either is empty.

    p is exact where no values are tied and neither set has more than `EXACT_U` values, else by the normal approximation
    with corrections for ties and continuity.
    """
    if not a or not b:
        return None
    from scipy.stats import mannwhitneyu  # slow to import: only where two sets are compared

    tied = len({*a, *b}) < len(a) + len(b)
    exact = not tied and max(len(a), len(b)) <= EXACT_U
    if len({*a, *b}) == 1:
        p = 1.0
    else:
        found = mannwhitneyu(b, a, alternative=alternative, method="exact" if exact else "asymptotic")
        p = min(1.0, float(found.pvalue))
    gaps = _differences(a, b)
    c = _critical(len(a), len(b), (1 - confidence) / 2)
    return Shift(
        count_a=len(a),
        count_b=len(b),
        median_a=float(percentile(a, 0.5) or 0),
        median_b=float(percentile(b, 0.5) or 0),
        p=p,
        delta=float((np.count_nonzero(gaps > 0) - np.count_nonzero(gaps < 0)) / gaps.size),
        shift=Interval(float(np.median(gaps)), float(gaps[c - 1]) if c else None, float(gaps[-c]) if c else None),
        method="exact" if exact else "normal approximation",
    )


@dataclass(frozen=True)
class RateDifference:
    """Two rates of violation, and Fisher's p that chance alone made them differ so."""

    violations_a: int
    trials_a: int
    violations_b: int
    trials_b: int
    p: float


def compare_rates(
    a: tuple[int, int], b: tuple[int, int], alternative: Alternative = "two-sided"
) -> RateDifference | None:
    """Compare (violations, trials) of two settings; `greater`: does b break more often? None where either has no trial.

    Raises ValueError where violations is not between 0 and trials.
    """
    for violations, trials in (a, b):
        _check_rate(violations, trials, CONFIDENCE)
    if not a[1] or not b[1]:
        return None
    from scipy.stats import fisher_exact

    p = float(fisher_exact([[b[0], b[1] - b[0]], [a[0], a[1] - a[0]]], alternative=alternative).pvalue)
    return RateDifference(*a, *b, min(1.0, p))


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p values adjusted for being several (Holm): compared with alpha they keep the chance of any false
    alarm at alpha, whatever the tests have to do with each other."""
    order = sorted(range(len(ps)), key=ps.__getitem__)
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[index]))
        adjusted[index] = largest
    return adjusted


def smallest_p(count_a: int, count_b: int) -> float:
    """Return the smallest one-sided p that Mann-Whitney can give for sets of these sizes: above alpha, no data can show
    a difference."""
    return 1 / math.comb(count_a + count_b, count_a)


def to_json(value: Interval | Shift | RateDifference | None) -> dict[str, Any] | None:
    """Return a result's fields; None for None."""
    return None if value is None else asdict(value)


def evenness(counts: Sequence[int]) -> tuple[float, float] | None:
    """Return (chi-square, p) of `counts` against an even choice; None where there are not two, or nothing to count.

    p is the chance that an even choice is at least so uneven.
    """
    total = sum(counts)
    if len(counts) < 2 or not total:
        return None
    expected = total / len(counts)
    chi_square = sum((count - expected) ** 2 for count in counts) / expected
    return chi_square, float(special.chdtrc(len(counts) - 1, chi_square))
