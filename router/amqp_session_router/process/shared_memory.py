"""The memory in which the workers of one router share counts and keys."""

from __future__ import annotations

from amqp_session_router.admission import shared_counts
from amqp_session_router.admission.shared_counts import SharedCounts
from amqp_session_router.base import shared_table
from amqp_session_router.process.place import Place, region, regions
from amqp_session_router.routing import stickiness
from amqp_session_router.routing.stickiness import SharedKeys


def create(workers: int) -> int:
    """Return the descriptor of new memory for so many workers."""
    count = regions(workers)
    return shared_table.create([shared_counts.size(count), stickiness.shared_size(count)])


class SharedMemory:
    """One worker's view of it; empty for the only worker."""

    def __init__(self, place: Place, turn: int, anew: bool) -> None:
        """`anew`: forget the keys that an earlier worker in this place had put there."""
        self.counts: SharedCounts | None = None
        self.keys: SharedKeys | None = None
        self._before = region(place, 1 - turn)
        if not place.alone:
            own, count = region(place, turn), regions(place.workers)
            self.counts = SharedCounts(place.shared, 0, own, count)
            self.keys = SharedKeys(place.shared, shared_counts.size(count), own, count)
            if anew:
                self.keys.empty()

    def predecessor_gone(self) -> None:
        """Clear the counts of its region: its connections have ended, or are ours."""
        if self.counts is not None:
            self.counts.clear(self._before)
