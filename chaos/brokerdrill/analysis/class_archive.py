"""Spark's classes as the JVM maps them into memory (class data sharing): a JVM that finds the archive starts and warms
up in a fraction of the time.

The first JVM writes it when it ends, under a name of its own; a later start finds it whole and gives it its name. A
JVM that cannot use an archive (another build of Java, other jars) says nothing and goes on without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

import pyspark

from brokerdrill.base import paths

_FORMING = ".forming-"
# A JVM that has not finished by then was killed.
_GIVEN_UP_S = 600


def options(java_home: str | None) -> str:
    """Return the JVM's options: to use the archive, or, where there is none, to write it at the JVM's end. `java_home`
    is the JVM's (None: not known, then there are none)."""
    if java_home is None:
        return ""
    archive = _archive(Path(java_home))
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        forming = list(archive.parent.glob(f"{archive.name}{_FORMING}*"))
        for one in forming:
            if _whole(one):
                one.replace(archive)
            elif time.time() - one.stat().st_mtime > _GIVEN_UP_S:
                one.unlink()
        if archive.exists():
            return f"-XX:SharedArchiveFile={archive}"
        if forming:
            return ""
    except (OSError, ValueError):  # a cache that cannot be written to costs time only
        return ""
    return f"-XX:ArchiveClassesAtExit={archive}{_FORMING}{os.getpid()} -Xlog:disable -Xlog:all=off"


def _archive(java_home: Path) -> Path:
    digest = hashlib.sha256()
    release = java_home / "release"
    with contextlib.suppress(OSError):
        digest.update(release.read_bytes())
    jars = Path(pyspark.__file__).parent / "jars"
    digest.update(f"{java_home.resolve()} {pyspark.__version__} {jars.resolve()} {jars.stat().st_mtime_ns}".encode())
    return paths.cache() / "classes" / f"spark-{digest.hexdigest()[:16]}.jsa"


def _whole(archive: Path) -> bool:
    """Whether the JVM has written all of it: the header comes last."""
    with archive.open("rb") as file:
        return any(file.read(4))
