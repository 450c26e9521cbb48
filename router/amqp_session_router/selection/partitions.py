"""Partition policies: they split a farm's backends into groups, the preferred first, and are applied in series.

A policy is a pure function of the groups it gets. Whatever it returns, `apply` keeps the set of backends: a user's
policy can reorder, it can neither lose a backend nor bring one in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from amqp_session_router.base.model import Backend
from amqp_session_router.selection import plugins
from amqp_session_router.selection.markers import Markers

log = logging.getLogger(__name__)

ENTRY_POINTS = "amqp_session_router.partition_policies"

Group = tuple[Backend, ...]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a policy may look at besides the backends: the router's datacenter, and the marks."""

    datacenter: str
    markers: Markers


class PartitionPolicy(Protocol):
    """Called with the groups so far; returns the new ones, the preferred first."""

    def __call__(self, groups: Sequence[Group], around: Surroundings) -> Sequence[Sequence[Backend]]: ...


def _split(prefers: Callable[[Backend, Surroundings], bool]) -> PartitionPolicy:
    """Return the policy that splits every group in those that `prefers` picks and, after them, the rest."""

    def policy(groups: Sequence[Group], around: Surroundings) -> list[Group]:
        halves: list[Group] = []
        for group in groups:
            halves.append(tuple(b for b in group if prefers(b, around)))
            halves.append(tuple(b for b in group if not prefers(b, around)))
        return halves

    return policy


def _healthy_first(groups: Sequence[Group], around: Surroundings) -> list[Group]:
    """Unlike a split: every healthy backend, of whatever group, comes before every one that failed its check."""

    def those(healthy: bool) -> list[Group]:
        return [tuple(b for b in group if around.markers.of(b.name).healthy == healthy) for group in groups]

    return [*those(True), *those(False)]


OWN: dict[str, PartitionPolicy] = {
    "datacenter-affinity": _split(lambda backend, around: backend.datacenter == around.datacenter),
    "local-first": _split(lambda backend, around: backend.local),
    "health": _healthy_first,
}


def policy_named(name: str) -> PartitionPolicy:
    """Return the policy `name`, ours or a user's; raises UsageError."""
    found: PartitionPolicy = plugins.find("partition policy", ENTRY_POINTS, name, dict(OWN))
    return found


def apply(backends: Sequence[Backend], policies: Sequence[PartitionPolicy], around: Surroundings) -> list[Group]:
    """Return the groups of `backends` after all `policies`, without empty ones; each backend is in exactly one.

    What a policy leaves out follows in a last group, what it makes up or repeats is dropped.
    """
    groups: list[Group] = [tuple(backends)]
    for policy in policies:
        left = {backend.name: backend for group in groups for backend in group}
        try:
            kept = [
                tuple(left.pop(backend.name) for backend in group if backend.name in left)
                for group in policy(groups, around)
            ]
        except Exception:  # a user's own may raise anything; its farm still works
            log.exception("a partition policy failed and is left out")
            continue
        groups = [group for group in (*kept, tuple(left.values())) if group]
    return [group for group in groups if group]
