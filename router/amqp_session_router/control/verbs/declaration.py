"""What a control verb is: one declaration of its words, what it does, what it changes and who does it.

A verb is a pattern of words: UPPER CASE is a word of the verb itself (in any case when typed), `<name>` an argument,
`[name]` one that may be absent, `[name...]` any number. The longest pattern that fits counts.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from amqp_session_router.base.errors import UsageError, unknown_name
from amqp_session_router.base.paced import Steps
from amqp_session_router.control.merging import Merge, Reply
from amqp_session_router.control.service import Service

Data = dict[str, Any]
"""A configuration as plain data, as a file has it."""
Arguments = dict[str, Any]
"""Argument's name → text; None for an absent one; a list of text for `[name...]`."""
Edit = Callable[[Data, Arguments], None]
"""Changes the data; raises UsageError."""
Handler = Callable[[Service, Arguments], Reply | Steps[Reply] | Awaitable[Reply] | AsyncIterator[Reply]]
"""Does a verb in one worker and returns its reply, or replies without end. Raises RouterError with nothing done. What
looks at each session does it in steps: there may be ten thousands."""


class Changes(enum.Enum):
    """What a verb changes. What changes something is in the log."""

    NOTHING = enum.auto()
    CONFIGURATION = enum.auto()
    """What runs: checked as a file is, the same in all workers or undone in all, kept in the state directory."""
    FILE = enum.auto()
    SESSIONS = enum.auto()
    """Live sessions, or those that are to come."""
    MEMORY = enum.auto()
    """What is counted or remembered."""


class Scope(enum.Enum):
    """Which of several workers does a verb. With one worker there is no difference."""

    LEADER = enum.auto()
    """The leader, for all: by what the workers agree on, or by asking the others itself."""
    EACH = enum.auto()
    """Each for itself; `merge` makes one reply of theirs."""
    OWNER = enum.auto()
    """The one that has the session `<id>`."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: either an `edit` of the configuration, or an `act`."""

    pattern: str
    help: str
    changes: Changes
    edit: Edit | None = field(default=None, compare=False)
    act: Handler | None = field(default=None, compare=False)
    scope: Scope = Scope.LEADER
    merge: Merge | None = field(default=None, compare=False)
    """With the scope EACH: makes one reply of those of all workers."""

    def __post_init__(self) -> None:
        """Raise ValueError for a declaration that contradicts itself."""
        if (self.edit is None) == (self.act is None):
            raise ValueError(f"{self.pattern}: either edit or act")
        if self.edit is not None and self.changes is not Changes.CONFIGURATION:
            raise ValueError(f"{self.pattern}: an edit changes the configuration")
        if (self.scope is Scope.EACH) != (self.merge is not None):
            raise ValueError(f"{self.pattern}: the replies of each worker need merge, and no others do")
        if self.scope is Scope.OWNER and "<id>" not in self.pattern.split():
            raise ValueError(f"{self.pattern}: a session's owner is found by <id>")

    @property
    def family(self) -> str:
        """The verb's first word."""
        return self.pattern.split()[0]

    @property
    def own_words(self) -> int:
        """How many words of the pattern are the verb's own."""
        return sum(part[0] not in "<[" for part in self.pattern.split())

    def match(self, words: Sequence[str]) -> Arguments | None:
        """Return the arguments if `words` are this verb, else None."""
        arguments: Arguments = {}
        left = list(words)
        for part in self.pattern.split():
            if part.startswith("[") and part.endswith("...]"):
                arguments[part[1:-4]] = left
                left = []
            elif part.startswith("["):
                arguments[part[1:-1]] = left.pop(0) if left else None
            elif not left:
                return None
            elif part.startswith("<"):
                arguments[part[1:-1]] = left.pop(0)
            elif left.pop(0).upper() != part:
                return None
        return None if left else arguments


# --- for the families: the parts of a configuration -----------------------------------------------------------------


def part_of(data: Data, *path: str) -> Data:
    """Return the map at `path`, made if it is absent."""
    for step in path:
        if data.get(step) is None:
            data[step] = {}
        data = data[step]
    return data


def existing(data: Data, kind: str, name: str) -> Data:
    """Return the part of a backend or farm (`kind`) of this name; raises UsageError if there is none."""
    parts = part_of(data, f"{kind}s")
    if name not in parts:
        raise UsageError(unknown_name(kind, name, parts))
    found: Data = parts[name]
    return found


def parts_without(data: Data, kind: str, name: str) -> Data:
    """Return the map of all backends or farms (`kind`); raises UsageError if it has one of this name."""
    parts = part_of(data, f"{kind}s")
    if name in parts:
        raise UsageError(f"there is a {kind} called {name!r} already")
    return parts


# --- for the families: arguments ------------------------------------------------------------------------------------


def integer(text: str, what: str) -> int:
    """Return the whole number that `text` is; raises UsageError, which names `what` it is."""
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{what} is a whole number, not {text!r}") from None


def decimal(text: str, what: str) -> float:
    """Return the number that `text` is; raises UsageError, which names `what` it is."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{what} is a number, not {text!r}") from None


_MOST_A_SECOND = 100_000


def a_rate(text: str) -> float:
    """Return the sessions a second that `text` says; raises UsageError."""
    rate = decimal(text, "a rate")
    if not 0 < rate <= _MOST_A_SECOND:
        raise UsageError(f"a rate is above 0 and at most {_MOST_A_SECOND} sessions a second, not {rate:g}")
    return rate


def number(text: str, what: str) -> float | int:
    """As `decimal`, but a whole number is an int."""
    value = decimal(text, what)
    return int(value) if value.is_integer() else value


def pairs(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return `name=value` words as a map; raises UsageError for one that is none of `names`."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name.lower() not in names:
            raise UsageError(f"{word!r} is none of {', '.join(f'{one}=' for one in names)}")
        found[name.lower()] = value
    return found
