"""What runs on a host that is looked at: its own Python reads this file and has nothing else of this package.

`units MARKER` prints the running services of which a process has the marker in its command line; `texts JSON` what
files hold and commands print. Both as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def systemctl(*words: str) -> str:
    return subprocess.run(["systemctl", *words], capture_output=True, text=True, check=True).stdout


def parents() -> dict[int, int]:
    """Return each process's parent."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return found


def asking(parent_of: dict[int, int]) -> set[int]:
    """Return this process and those that it was started by, which have the marker in their command lines too."""
    found = set()
    pid = os.getpid()
    while pid in parent_of:
        found.add(pid)
        pid = parent_of[pid]
    return found


def below(pid: int, parent_of: dict[int, int]) -> Iterator[int]:
    """Yield the process and, each after its parent, those that it started."""
    yield pid
    for child in sorted(one for one, parent in parent_of.items() if parent == pid):
        yield from below(child, parent_of)


def command(pid: int) -> list[str]:
    """Return a process's command line; Java reads more of it from files."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
    for word in [word for word in words if word.startswith("@")]:
        with contextlib.suppress(OSError):
            words += Path(word[1:]).read_text().split()
    return words


def units(marker: str) -> list[dict[str, object]]:
    """Return the running services of which a process, the main one or one that it started, has the marker: some
    products' own scripts stay as a shell. The broker is what was started last."""
    parent_of = parents()
    own = asking(parent_of)
    found: list[dict[str, object]] = []
    listed = systemctl("list-units", "--type=service", "--state=running", "--no-legend", "--plain").splitlines()
    for unit in [line.split()[0] for line in listed if line.split()]:
        shown = systemctl("show", unit, "--property=MainPID,RestartUSec").splitlines()
        values = dict(line.split("=", 1) for line in shown if "=" in line)
        main = int(values.get("MainPID") or 0)
        commands = [command(pid) for pid in below(main, parent_of) if pid not in own] if main else []
        brokers = [words for words in commands if any(marker in word for word in words)]
        if brokers:
            found.append({"unit": unit, "restart": values.get("RestartUSec", ""), "command": brokers[-1]})
    return found


def texts(paths: list[str], commands: list[str]) -> dict[str, str]:
    """Return the text of files and what commands print, by path and command; what cannot be read, or fails, is left
    out."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found[path] = Path(path).read_text(encoding="utf-8")
    for words in commands:
        done = subprocess.run(words, shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            found[words] = done.stdout
    return found


if __name__ == "__main__":
    print(json.dumps(units(sys.argv[2]) if sys.argv[1] == "units" else texts(*json.loads(sys.argv[2]))))
