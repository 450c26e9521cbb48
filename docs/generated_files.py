"""Writes what is made from other files, or says what of it is not current: what `make docs` and its tests call."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write(wanted: Mapping[Path, str], unwanted: Iterable[Path] = ()) -> int:
    """Write each path's text and remove the `unwanted` files; return the exit status.

    With --check on the command line nothing is written, and the status is 1 where something is not current, which a
    line each on standard error names.
    """
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    gone = sorted(unwanted)
    if "--check" in sys.argv[1:]:
        for path in [*stale, *gone]:
            print(f"{path.relative_to(ROOT)} is not current: make docs", file=sys.stderr)
        return 1 if stale or gone else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    for path in gone:
        path.unlink()
    return 0
