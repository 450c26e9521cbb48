"""A run's series as its page shows them: faults with their marks, and buckets without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brokerdrill.ledger.series import Bucket, FaultSpan, Series

# Changes of one fault take effect on several hosts within this time of each other.
SAME_FAULT_NS = 2_000_000_000
# More is not filled: the analysis makes at most 600.
MAX_BUCKETS = 10_000


@dataclass(frozen=True)
class Band:
    """One fault's time in effect; several changes of one step (say two of three hosts) share their `mark`."""

    mark: str
    name: str
    target: str
    instance: str
    start_ns: int
    end_ns: int
    healed: bool = True


@dataclass(frozen=True)
class Shown:
    """What a page shows of a `series`: its faults as `bands`, by time, and its `buckets`, also those in which nothing
    happened."""

    series: Series
    bands: tuple[Band, ...]
    buckets: tuple[Bucket, ...]

    @classmethod
    def of(cls, series: Series) -> Shown:
        """Return what a page shows of the series of a run."""
        return cls(series, mark_faults(series.faults), _without_gaps(series))


def mark_faults(faults: Sequence[FaultSpan]) -> tuple[Band, ...]:
    """Return the faults in order of time, numbered F1, F2, …; one fault on several targets at once has one number."""
    bands: list[Band] = []
    number = 0
    for fault in sorted(faults, key=lambda one: one.start_ns):
        name = fault.name or "fault"
        if not (bands and bands[-1].name == name and fault.start_ns - bands[-1].start_ns < SAME_FAULT_NS):
            number += 1
        bands.append(
            Band(
                mark=f"F{number}",
                name=name,
                target=fault.target or fault.instance,
                instance=fault.instance,
                start_ns=fault.start_ns,
                end_ns=max(fault.start_ns, fault.end_ns),
                healed=fault.healed,
            )
        )
    return tuple(bands)


def _without_gaps(series: Series) -> tuple[Bucket, ...]:
    """Return the buckets in order, with an empty one wherever nothing happened, so that an outage is seen as such."""
    buckets, width = series.buckets, series.bucket_ns
    if not buckets:
        return ()
    known = {bucket.start_ns // width: bucket for bucket in buckets}
    last = max(max(known), (series.end_ns - 1) // width)
    if last - min(known) >= MAX_BUCKETS:
        return tuple(known[index] for index in sorted(known))
    offset = min(bucket.start_ns for bucket in buckets) % width
    first = min(0, min(known))
    return tuple(known.get(index) or Bucket(index * width + offset) for index in range(first, last + 1))
