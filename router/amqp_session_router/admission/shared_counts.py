"""The limits of all workers of a router as one: each publishes its counts, and a bucket goes on where the last worker
left it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from amqp_session_router.admission.buckets import Bucket, Clock
from amqp_session_router.base import shared_table
from amqp_session_router.base.shared_table import SharedTable, Values

log = logging.getLogger(__name__)

_SLOTS = 65536
"""Names that a worker can publish at a time: vhosts, addresses, and their rates."""
_COLUMNS = 1
_COUNTS, _RATE = "counts", "rate"


def size(regions: int) -> int:
    """Return the bytes that `SharedCounts` needs."""
    return shared_table.size(regions, _SLOTS, _COLUMNS)


def _is_count(values: Values) -> bool:
    """A count is stored as a negative number, a time as a positive one."""
    return values[0] < 0


def _says_nothing(values: Values) -> bool:
    return 0 <= values[0] <= time.monotonic()


class SharedCounts:
    """See `other_workers.Others`. Where there is no room for a name, its limit holds for this worker only, and a
    warning is logged once."""

    def __init__(self, number: int, offset: int, region: int, regions: int) -> None:
        self._table = SharedTable(number, offset, region, regions, _SLOTS, _COLUMNS, _says_nothing)
        self._own = region
        self._warned_full = False
        self._fence = threading.Lock()

    def clear(self, region: int) -> None:
        """Forget the connections of a worker that is gone; how far it had used up a rate stays."""
        self._table.clear(region, _is_count)

    def publish(self, kind: str, name: str, count: int) -> None:
        """See `other_workers.Others`."""
        self.write(self._table.id_of(_COUNTS, kind, name), -count)

    def publish_all(self, counts: Mapping[tuple[str, str], int]) -> None:
        """See `other_workers.Others`."""
        own = {self._table.id_of(_COUNTS, *of): count for of, count in counts.items()}
        for name, count in own.items():
            self.write(name, -count)
        self._table.clear(self._own, _is_count, own)

    def count(self, kind: str, name: str) -> int:
        """See `other_workers.Others`."""
        with self._fence:
            pass  # A memory barrier: the others see our count before we read theirs (docs/internals.md).
        return -int(sum(values[0] for values in self._table.read(self._table.id_of(_COUNTS, kind, name), others=True)))

    def bucket(self, limit: str, whose: str, rate: float, burst: float, clock: Clock) -> Bucket:
        """See `other_workers.Others`."""
        return SharedBucket(rate, burst, clock, self, self._table.id_of(_RATE, limit, whose, repr(rate)))

    def write(self, name: int, value: float) -> None:
        """Publish a number; see the class."""
        if not self._table.write(name, value) and not self._warned_full:
            self._warned_full = True
            log.warning("a limit holds for one worker only: there are too many names")

    def latest(self, name: int) -> float:
        """Return the greatest number that any worker has published."""
        return max((values[0] for values in self._table.read(name)), default=0.0)


class SharedBucket(Bucket):
    """A bucket that is known by the time at which it will be full, the latest that any worker has published."""

    __slots__ = ("_counts", "_full_at", "_name")

    def __init__(self, rate: float, burst: float, clock: Clock, counts: SharedCounts, name: int) -> None:
        super().__init__(rate, burst, clock)
        self._counts, self._name = counts, name
        self._full_at = 0.0

    def level(self) -> float:
        """See `Bucket`."""
        now = self._clock()
        # Rounded, so that a whole number of tokens is exactly one.
        return round(self.burst - max(0.0, self._latest() - now) * self.rate, 6)

    def _latest(self) -> float:
        return max(self._full_at, self._counts.latest(self._name))

    def _take(self, tokens: float) -> None:
        self._full_at = max(self._latest(), self._clock()) + tokens / self.rate
        self._counts.write(self._name, self._full_at)
