"""The errors a user meets: one clear sentence each, and the exit status the design gives it."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from pathlib import Path

EXIT_KEPT = 0
EXIT_BROKEN = 1
EXIT_UNKNOWN = 2
EXIT_INFRASTRUCTURE = 3
EXIT_USAGE = 64

# What a file system refuses whoever asks. (A file that is only missing may be a mistake of our own.)
_REFUSALS = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EIO,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


class BrokerdrillError(Exception):
    """A failure that its message explains in one sentence to the user; `exit_status` is the process's.

    `runs` are the run directories that were recorded before it, oldest first, and can be judged.
    """

    exit_status = EXIT_INFRASTRUCTURE
    runs: tuple[Path, ...] = ()


class InfrastructureError(BrokerdrillError):
    """The run could not be made: a host, the engine, a disk, a fault that did not take effect."""

    exit_status = EXIT_INFRASTRUCTURE


class Unmet(InfrastructureError):
    """What a drill waited for did not come, or one of its limits was passed: the drill ended early, and what it
    recorded can be judged."""


class UsageError(BrokerdrillError):
    """The words or files the user gave are wrong; nothing was touched."""

    exit_status = EXIT_USAGE


def in_words(error: BaseException) -> str:
    """Return what an error says: a user's error its sentence, any other its type as well."""
    return str(error) if isinstance(error, BrokerdrillError) else f"{type(error).__name__}: {error}"


def refusal(error: BaseException) -> str | None:
    """Return in one sentence what the file system refused; None where `error` is something else."""
    if not isinstance(error, OSError) or error.errno not in _REFUSALS:
        return None
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a `name` that is none of `known`, with the nearest one where there is one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names) or 'none'}"
    return UsageError(f"no {kind} is called {name!r}; {hint}")
