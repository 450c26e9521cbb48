"""One run at a time an inventory: locks that the kernel releases when their holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from brokerdrill.base import paths
from brokerdrill.base.errors import InfrastructureError

POLL_S = 0.2


@contextlib.contextmanager
def held(path: Path, refusal: str, wait_s: float = 0) -> Iterator[None]:
    """Hold the lock of the file `path`, which names its holder's process; folders are made.

    Raises InfrastructureError where another process still holds it after `wait_s` s (POLL_S at least, in which whoever
    only asks `is_held` has let go of it): `refusal`, and which process.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be written: {error.strerror}") from None
    with file:
        end = time.monotonic() + max(wait_s, POLL_S)
        while not _taken(file):
            if time.monotonic() >= end:
                file.seek(0)
                raise InfrastructureError(f"{refusal} (process {file.read().strip() or 'unknown'})")
            time.sleep(POLL_S)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            # Closing is not enough: a child that was forked meanwhile has the file open until it executes its program.
            fcntl.flock(file, fcntl.LOCK_UN)


def _taken(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Whether some process holds the lock of the file `path`."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def inventory_lock(directory: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of the inventory in `directory`. Raises InfrastructureError while another process holds it."""
    digest = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]
    file = paths.state() / "locks" / f"{directory.name}-{digest}.lock"
    return held(file, f"another run uses inventory {directory.name}")
