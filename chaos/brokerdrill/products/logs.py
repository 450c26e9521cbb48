"""Roles by a product's log: what each line proves, and the changes that the lines amount to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# Returns the role that a line of the log proves, None: it proves none. One reader reads the lines of one process.
LogReader = Callable[[str], str | None]

# systemd's own words on the unit, in the same journal: they end a role when the process cannot say so itself.
_ENDED = re.compile(r"Main process exited|Deactivated successfully|Failed with result")
_WHY_CHARACTERS = 200


@dataclass(frozen=True)
class RoutedConnect:
    """A client with a routing key that a router connected to an instance."""

    key: str
    instance: str


@dataclass(frozen=True)
class LogRole:
    """A role change that the product's log proves: time in ns on the host's monotonic clock, role, the log's words."""

    t_ns: int
    role: str
    why: str


def by_words(*words: tuple[str, str]) -> LogReader:
    """Return a reader of a log whose lines each say it all: the role of the first regular expression that is found in
    a line. `words`: regular expression and role, each."""
    roles = [(re.compile(pattern), role) for pattern, role in words]
    return lambda text: next((role for pattern, role in roles if pattern.search(text)), None)


def role_changes(lines: Iterable[tuple[int, str]], reader: Callable[[], LogReader]) -> list[LogRole]:
    """Return the role changes in (monotonic ns, text) lines of an instance's log, in order.

    `reader` makes one for each process that wrote there. A line that repeats the role is no change; the unit's end is
    `down`, for every product.
    """
    changes: list[LogRole] = []
    read = reader()
    for t_ns, text in lines:
        role = read(text)
        if role is None and _ENDED.search(text):
            role, read = "down", reader()
        if role and (not changes or changes[-1].role != role):
            changes.append(LogRole(t_ns, role, text.strip()[:_WHY_CHARACTERS]))
    return changes
