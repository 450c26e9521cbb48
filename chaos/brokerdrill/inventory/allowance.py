"""What a run may hit on one host: plain data, for whoever refuses anything else there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Allowance:
    """What a run's faults may hit on `host`: these `instances` there, and these `links` that the host dials, by their
    names. `at_once` is how many services of the whole system may be out of service at the same time."""

    host: str
    instances: frozenset[str]
    links: frozenset[str]
    at_once: int
