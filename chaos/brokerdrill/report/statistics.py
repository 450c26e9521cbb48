"""What repeats allow to say: exact upper bounds of a rate, and percentiles that were really observed."""

from __future__ import annotations

import math
from collections.abc import Sequence

CONFIDENCE = 0.95


def _log_binomial_tail(violations: int, trials: int, rate: float) -> float:
    """log P(X <= violations) for X binomial(trials, rate), 0 < rate < 1; in logs, so that no term underflows."""
    terms = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(rate)
        + (trials - k) * math.log1p(-rate)
        for k in range(violations + 1)
    ]
    top = max(terms)
    return top + math.log(math.fsum(math.exp(term - top) for term in terms))


def upper_bound(violations: int, trials: int, confidence: float = CONFIDENCE) -> float | None:
    """Return the one-sided exact (Clopper-Pearson) upper bound of the rate of violations, 0 to 1.

    It is the rate at which so few violations in so many trials would be seen with probability 1 - confidence only;
    without a violation that is 1 - (1 - confidence)^(1/trials). None without a trial. Raises ValueError where
    violations is not between 0 and trials, or confidence not between 0 and 1.
    """
    if not 0 <= violations <= trials or not 0 < confidence < 1:
        raise ValueError(f"{violations} violations in {trials} trials at confidence {confidence}")
    if trials == 0:
        return None
    if violations == trials:
        return 1.0
    if violations == 0:
        return -math.expm1(math.log1p(-confidence) / trials)
    target = math.log1p(-confidence)
    low, high = violations / trials, 1.0
    # 60 halvings exhaust a double; the tail probability falls as the rate rises.
    for _ in range(60):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _log_binomial_tail(violations, trials, middle) > target:
            low = middle
        else:
            high = middle
    return high


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile (`share` in (0, 1]): a value that was observed. None without values."""
    if not values:
        return None
    # 1e-9 keeps 0.95 * 20 = 19.000000000000004 at rank 19.
    rank = max(1, math.ceil(share * len(values) - 1e-9))
    return sorted(values)[rank - 1]
