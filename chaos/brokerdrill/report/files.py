"""Reports reach the disk whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from brokerdrill.errors import InfrastructureError


def write(path: Path, data: bytes) -> Path:
    """Write `data` so that nobody reads half a file, making missing folders, and return `path`.

    Raises InfrastructureError when the disk does not take it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise InfrastructureError(f"{path} cannot be written: {error.strerror}") from None
    return path
