"""Clocks: how the monotonic clock of one process relates to that of the controller, and how well that is known."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One question to a remote clock: asked and answered in ns on ours, and what it said in ns on its own."""

    asked_ns: int
    remote_ns: int
    answered_ns: int


@dataclass(frozen=True)
class ClockOffset:
    """`controller time = remote time + offset_ns`, true to ± `uncertainty_ns`."""

    offset_ns: int = 0
    uncertainty_ns: int = 0


def now_ns() -> int:
    """The controller's monotonic clock in ns."""
    return time.monotonic_ns()


def estimate(samples: Iterable[Sample]) -> ClockOffset:
    """Return the Clock of the quickest of `samples` (at least one): half its round trip bounds the error.

    This is Cristian's method; an asymmetric way there and back cannot err by more than half the round trip.
    """
    best = min(samples, key=lambda sample: sample.answered_ns - sample.asked_ns)
    middle = (best.asked_ns + best.answered_ns) // 2
    return ClockOffset(middle - best.remote_ns, (best.answered_ns - best.asked_ns + 1) // 2)
