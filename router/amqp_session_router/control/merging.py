"""What several workers reply to one verb, as one reply: pure functions, for the verbs' declarations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Reply = dict[str, Any]
Merge = Callable[[Sequence[Reply]], Reply]
"""Of the replies of all workers, the leader's first."""


def rows_joined(replies: Sequence[Reply]) -> Reply:
    """Return the rows of all, one after the other."""
    return {"rows": [row for reply in replies for row in reply["rows"]]}


def rows_added(name: str, *numbers: str) -> Merge:
    """Return what adds the rows' `numbers`; rows are the same whose `name` is."""

    def merge(replies: Sequence[Reply]) -> Reply:
        found: dict[str, Reply] = {}
        for reply in replies:
            for row in reply["rows"]:
                if (first := found.get(row[name])) is None:
                    found[row[name]] = dict(row)
                else:
                    first |= {number: first[number] + row[number] for number in numbers}
        return {"rows": [*found.values()]}

    return merge


def by_vhost(replies: Sequence[Reply]) -> Reply:
    """Return the rows of all by `vhost`, with their sessions added."""
    return {"rows": sorted(rows_added("vhost", "sessions")(replies)["rows"], key=lambda row: str(row["vhost"]))}


def counted(what: str) -> Merge:
    """Return what adds the numbers of `what`, with which the text ends or begins."""

    def merge(replies: Sequence[Reply]) -> Reply:
        first = replies[0]
        total = sum(reply[what] for reply in replies)
        return first | {"text": first["text"].replace(f"{first[what]} {what}", f"{total} {what}"), what: total}

    return merge


def first(replies: Sequence[Reply]) -> Reply:
    """Return the leader's, which is as good as any."""
    return replies[0]


SESSIONS = counted("sessions")
BACKENDS = rows_added("name", "active", "attempts", "failures")


def added(one: Any, other: Any) -> Any:
    """Return counts as one: numbers are added, in maps and lists too; what is no number is the first's."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            key: added(one[key], other[key]) if key in one and key in other else one.get(key, other.get(key))
            for key in {**one, **other}
        }
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [added(*pair) for pair in zip(one, other, strict=True)]
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return one + other if numbers and not isinstance(one, bool) else one


_GREATEST = ("uptime_seconds", "loop_lag_seconds")


def counts(replies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the counts of all workers, as `metrics.as_data` gives them, as those of one.

    Uptime and lag are the greatest. Weights, ports and what checks say of backends are the leader's.
    """
    total: dict[str, Any] = {}
    for data in replies:
        apart = {name: part for name, part in data.items() if name not in ("backends", "paused_vhosts")}
        total = added(total, apart)
    if "process" in total:
        total["process"] |= {name: max(data["process"][name] for data in replies) for name in _GREATEST}
    if "backends" in replies[0]:
        rows = BACKENDS([{"rows": data["backends"]} for data in replies])
        total |= {"backends": rows["rows"], "paused_vhosts": replies[0]["paused_vhosts"]}
    return total


def shares(rate: float, counts: Sequence[int]) -> list[float]:
    """Return the rate of each worker with so many sessions: by their number, and together `rate`."""
    # One that has none yet may get some.
    return [rate * (count + 1) / (sum(counts) + len(counts)) for count in counts]
