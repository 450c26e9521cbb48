"""The errors a user meets: one clear sentence each, and the exit status that goes with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_INFRASTRUCTURE = 3
EXIT_USAGE = 64


class RouterError(Exception):
    """A failure that its message explains in one sentence; `exit_status` is the process's."""

    exit_status = EXIT_INFRASTRUCTURE


class UsageError(RouterError):
    """The words or files the user gave are wrong; nothing was changed."""

    exit_status = EXIT_USAGE


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence for a `name` that is none of `known`, with the nearest one where there is one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names) or 'none'}"
    return f"no {kind} is called {name!r}; {hint}"
