"""Which files of an instance were changed after it had started: what it does not read anew waits for a restart.

The module `brokerdrill.ha.health` asks on the host; `brokerdrill audit` runs this file there as a program of its own,
`python3 - FOLDER`, which prints {instance: [file]} of the descriptors in that folder. Standard library only, Python 3.8
or newer. Changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

TIMEOUT_S = 5
# The start of a process is known to within a second.
SURE_S = 2


def started_s(unit: str) -> float:
    """Return when the unit's main process started (Unix time), 0 where there is none."""
    shown = ["systemctl", "show", "-p", "MainPID", "--value", unit]
    with contextlib.suppress(OSError, ValueError, IndexError, subprocess.SubprocessError):
        pid = subprocess.run(shown, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout.strip()
        ticks = int(Path("/proc", pid, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        (booted,) = re.findall(r"^btime (\d+)$", Path("/proc/stat").read_text(encoding="utf-8"), re.MULTILINE)
        return int(booted) + ticks / os.sysconf("SC_CLK_TCK")
    return 0.0


def newer(descriptor: dict[str, Any]) -> list[str]:
    """Return the files of an instance's configuration that were written after it had started, but not by itself.

    Those are left out that it reads anew whenever they change (`reads_anew`: a list of names, or true for all)."""
    anew = descriptor.get("reads_anew") or []
    since = 0.0 if anew is True else started_s(descriptor.get("unit") or "")
    if not since:
        return []
    tls, folder = descriptor.get("tls") or {}, descriptor.get("config_dir")
    files = [Path(tls[name]) for name in ("bundle", "ca") if tls.get(name)]
    files += Path(folder).rglob("*") if folder else []
    states = [(str(path), path.stat()) for path in files if path.is_file() and path.name not in anew]
    return sorted({path for path, state in states if state.st_uid == 0 and state.st_mtime > since + SURE_S})


def sentence(who: str, files: list[str]) -> str:
    """Return in words that `files` of `who` are newer than it is."""
    return (
        f"{who} started before these files were changed, and what it does not read anew waits for a restart: "
        f"{', '.join(files)}"
    )


def newer_of_all(folder: Path) -> dict[str, list[str]]:
    """Return instance → `newer` of each descriptor in `folder`. Raises OSError or ValueError for one that is none."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    # Credentials lie there, too.
    return {one["instance"]: newer(one) for one in read if "product" in one}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(newer_of_all(Path(sys.argv[1]))) + "\n")
