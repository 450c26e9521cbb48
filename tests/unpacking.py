"""Unpacks archives, with the standard library's data filter where this Python has it (3.11 has it from 3.11.4 on)."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: str | Path, into: Path, suffix: str = "") -> None:
    """Unpack the members of a tar archive whose names end in `suffix` into the folder `into`."""
    with tarfile.open(archive) as content:
        if hasattr(tarfile, "data_filter"):
            content.extraction_filter = tarfile.data_filter
        content.extractall(into, [member for member in content if member.name.endswith(suffix)])
