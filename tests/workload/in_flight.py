"""What a ledger says of messages in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def most_in_flight(sends: Iterable[Mapping[str, Any]]) -> int:
    """The most sends that were under way at once."""
    steps = sorted(step for op in sends for step in ((op["start_ns"], 1), (op["end_ns"], -1)))
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def unanswered(ops: Iterable[Mapping[str, Any]]) -> int:
    """How many sends have no end yet."""
    return sum(op["op"] == "send" and op.get("end_ns") is None for op in ops)
