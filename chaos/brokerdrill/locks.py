"""One run at a time an inventory: a lock that the kernel releases when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from brokerdrill import paths
from brokerdrill.errors import InfrastructureError


@contextlib.contextmanager
def inventory_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of the inventory in `directory`. Raises InfrastructureError while another process holds it."""
    folder = paths.cache() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]
    with (folder / f"{directory.name}-{digest}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise InfrastructureError(f"another run uses inventory {directory.name} (process {holder})") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
