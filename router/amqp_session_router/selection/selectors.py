"""Backend selectors: each ranks the backends of one partition; the retry count is the index into the rankings.

The contract, for one session with the retry count growing from 0: while a backend is left that was not attempted, one
is selected; no backend is selected twice; all of a partition come before any of the next. It holds by construction in
`ranking`, for every selector, a user's own too: what a selector leaves out is appended, what it repeats is dropped; one
of a user's gets a copy of the marks. A cached backend (`routing.planner`) comes first in its own partition only.
"""

from __future__ import annotations

import hashlib
import logging
import math
import random
from collections.abc import Iterator, Sequence
from typing import Protocol

from amqp_session_router.base.model import NO_KEY, Backend
from amqp_session_router.selection import plugins
from amqp_session_router.selection.markers import Markers

log = logging.getLogger(__name__)

ENTRY_POINTS = "amqp_session_router.backend_selectors"


class BackendSelector(Protocol):
    """Called with one partition, the marks of all backends and the session's key (`NULL` without one); returns the
    partition's backends in the order to try them. It changes no mark."""

    def __call__(self, partition: Sequence[Backend], markers: Markers, key: str) -> Sequence[Backend]: ...


def round_robin(partition: Sequence[Backend], markers: Markers, key: str) -> list[Backend]:
    """Least recently attempted first; those never attempted come first of all, as configured."""
    return sorted(partition, key=lambda backend: markers.of(backend.name).attempted)


def least_connections(partition: Sequence[Backend], markers: Markers, key: str) -> list[Backend]:
    """Fewest of this router's own sessions first, counted as they open and close (no polling, so no herd); among
    equals the least recently attempted, so that many at once do not all choose the same."""

    def rank(backend: Backend) -> tuple[float, int]:
        mark = markers.of(backend.name)
        weight = backend.weight * markers.share(backend)
        return mark.active / weight if weight else math.inf, mark.attempted

    return sorted(partition, key=rank)


def _uniform(key: str, name: str) -> float:
    """Return a number in (0, 1) that depends on `key` and `name` alone, the same in every process and version."""
    digest = hashlib.blake2b(f"{len(key)}:{key}{name}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2.0**64


def _weighted_rank(backend: Backend, markers: Markers, uniform: float) -> float:
    """Return -weight / ln(u): the greatest of these is each backend's with probability weight / sum of weights."""
    return -backend.weight * markers.share(backend) / math.log(uniform) if uniform < 1.0 else math.inf


def rendezvous_hash(partition: Sequence[Backend], markers: Markers, key: str) -> list[Backend]:
    """Highest random weight of (key, name): a backend that leaves moves its own keys only, in proportion to weight.

    Sessions without a key have nothing to stick to: they go round robin, not all to the one that `NULL` hashes to.
    """
    if key == NO_KEY:
        return round_robin(partition, markers, key)

    def rank(backend: Backend) -> tuple[float, str]:
        return -_weighted_rank(backend, markers, _uniform(key, backend.name)), backend.name

    return sorted(partition, key=rank)


_random = random.Random()


def weighted(partition: Sequence[Backend], markers: Markers, key: str) -> list[Backend]:
    """Drawn at random in proportion to weight; weight 0 only when no other is left."""
    return sorted(partition, key=lambda backend: -_weighted_rank(backend, markers, _random.random() or 0.5))


def first(partition: Sequence[Backend], markers: Markers, key: str) -> list[Backend]:
    """As configured."""
    return list(partition)


OWN: dict[str, BackendSelector] = {
    "round-robin": round_robin,
    "least-connections": least_connections,
    "rendezvous-hash": rendezvous_hash,
    "weighted": weighted,
    "first": first,
}


def selector_named(name: str) -> BackendSelector:
    """Return the selector `name`, ours or a user's; raises UsageError."""
    found: BackendSelector = plugins.find("backend selector", ENTRY_POINTS, name, dict(OWN))
    return found


def ranking(
    partitions: Sequence[Sequence[Backend]], selector: BackendSelector, markers: Markers, key: str
) -> Iterator[Backend]:
    """Yield every backend once, partition by partition; the partition's order is made when its first one is asked for,
    so that later partitions are ranked by what is known then."""
    own = selector in OWN.values()
    for partition in partitions:
        left = {backend.name: backend for backend in partition}
        try:
            seen = markers if own else markers.copy()
            ranked = [left.pop(backend.name) for backend in selector(partition, seen, key) if backend.name in left]
        except Exception:  # a user's own may raise anything; its sessions still get a backend
            log.exception("a backend selector failed: its partition is taken round robin", extra={"key": key})
            left = {backend.name: backend for backend in partition}
            ranked = [left.pop(backend.name) for backend in round_robin(partition, markers, key)]
        yield from (*ranked, *left.values())


def select(
    partitions: Sequence[Sequence[Backend]], selector: BackendSelector, markers: Markers, key: str, retry: int
) -> Backend | None:
    """Return the backend for the retry count `retry` (0: the first attempt) of one session, None after the last."""
    for index, backend in enumerate(ranking(partitions, selector, markers, key)):
        if index == retry:
            return backend
    return None
