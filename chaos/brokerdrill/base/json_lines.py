"""A file of JSON Lines that says what begins and what ended: on the disk before the next step is taken."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import InfrastructureError


def append(path: Path, entry: Mapping[str, Any]) -> None:
    """Append one entry, on the disk when this returns; folders are made. Raises InfrastructureError where it cannot."""
    # A torn line of a crash must not swallow this one.
    line = ("" if whole(path) else "\n") + json.dumps(entry, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be written: {error.strerror}") from None


def whole(path: Path) -> bool:
    """Whether the last line of `path`, if there is one, was written to its end."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
    return True


def entries(path: Path) -> list[dict[str, Any]]:
    """Return what is written, oldest first; a line that a crash tore counts as not written, a missing file as empty."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        # Not by `splitlines`: a text within may have other ends of lines, as U+2028.
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    found.append(entry)
    return found
