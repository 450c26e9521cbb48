"""Which Java the controller uses for Spark and the brokers' client jars, where several are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from brokerdrill.base.errors import InfrastructureError

OLDEST = 17
# What the makers of Spark 4 test it with ("Downloading", in its documentation); others only where there is neither.
PREFERRED = (17, 21)
INSTALLED = Path("/usr/lib/jvm")
ASK_TIMEOUT_S = 20


def major(version_text: str) -> int | None:
    """Return the feature release that `java -version` names (17 for `"17.0.9"`, 8 for `"1.8.0_392"`), or None."""
    found = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(found.group(1)) if found else None


def _ask(home: Path) -> int | None:
    release = home / "release"
    if release.is_file():
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(errors="replace"), re.MULTILINE)
        if found:
            return int(found.group(1))
    try:
        done = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return major(done.stderr)


def _candidates() -> Iterator[Path]:
    """Yield homes of installed Javas, the user's own choice first."""
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parents[1]
    if INSTALLED.is_dir():
        yield from sorted(INSTALLED.iterdir())


def choose(found: Iterable[tuple[Path, int]], own: Path | None = None) -> Path | None:
    """Return the home to use of (home, feature release) pairs, or None where all are too old.

    `own` (the user's JAVA_HOME) wins where it is new enough; then a preferred release; then the oldest that will do.
    """
    able = [(home, release) for home, release in found if release >= OLDEST]
    for home, _ in able:
        if home == own:
            return home
    ranked = sorted(able, key=lambda pair: (pair[1] not in PREFERRED, pair[1]))
    return ranked[0][0] if ranked else None


def home() -> Path:
    """Return the home of a Java of at least 17. Raises InfrastructureError where there is none."""
    own = Path(os.environ["JAVA_HOME"]) if os.environ.get("JAVA_HOME") else None
    able = [(path, release) for path in _candidates() if (path / "bin" / "java").exists() and (release := _ask(path))]
    chosen = choose(able, own)
    if chosen is None:
        raise InfrastructureError(
            f"no Java of at least {OLDEST} is installed; install openjdk-17-jre-headless (`make setup` does as root), "
            "or set JAVA_HOME"
        )
    return chosen


def use() -> Path:
    """Make this process and its children (Spark, JVMs of workers) use `home`, and return it."""
    chosen = home()
    os.environ["JAVA_HOME"] = str(chosen)
    return chosen
