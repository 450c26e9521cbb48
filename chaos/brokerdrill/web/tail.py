"""Follows files of JSON Lines that somebody else appends to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CHUNK = 1 << 22


class Tail:
    """One file: each `read` returns the lines that are whole since the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the new entries; none where the file is not there yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read(CHUNK)
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        self._at += whole
        found = []
        for line in data[:whole].splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                found.append(entry)
        return found
