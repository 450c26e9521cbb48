"""This checkout with its Python packages, as an archive for a host of the bench that runs `brokerdrill` itself."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Mapping, Sequence

from brokerdrill.base import paths

# Started by who unpacked the archive in {home}.
PROGRAM = """#!/bin/sh
PYTHONPATH={home}/chaos:{home}/site exec python3 -m brokerdrill "$@"
"""


def project(home: str, without: Sequence[str], files: Mapping[str, tuple[str, int]]) -> bytes:
    """Return a tar archive of this checkout, its Python packages but what begins with one of `without` (below
    site-packages), the command `brokerdrill` for the folder `home`, and `files`: text and mode by path."""
    left_out = tuple(f"site/{name}" for name in without)
    buffer = io.BytesIO()
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(listed, cwd=paths.ROOT, capture_output=True, text=True, check=True).stdout.split()
    site = next((paths.ROOT / ".venv" / "lib").glob("python3.*/site-packages"))
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in tracked:
            if (paths.ROOT / name).exists():
                archive.add(paths.ROOT / name, name)
        archive.add(site, "site", filter=lambda entry: None if entry.name.startswith(left_out) else entry)
        for name, (text, mode) in {"brokerdrill": (PROGRAM.format(home=home), 0o755), **files}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), mode
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()
