"""Faults, roles and epochs for tests of what is at the same time as what."""

from __future__ import annotations

from brokerdrill.analysis.events import Epoch, Event, Fault

KILL = Fault(0, "kill", "a", None, "s", 100, 5, 200)


def role(at: int, instance: str, value: str, store: str | None = None, u: int = 0) -> Event:
    return Event("role", at, u, instance=instance, value=value, store=store)


def epoch(instance: str, start: int, start_u: int, end: int, end_u: int, *, open: bool = False) -> Epoch:
    """An epoch on s of which nothing else is known."""
    return Epoch("s", instance, start, start_u, end, end_u, open, start - start_u, end + end_u)


HIT, NEXT = epoch("a", 10, 0, 105, 0), epoch("b", 150, 0, 1000, 0, open=True)


def kill(at: int, kind: str = "fault") -> Event:
    return Event(kind, at, instance="a", store="s", name="kill")
