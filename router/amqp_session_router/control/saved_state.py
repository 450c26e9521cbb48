"""What control changed and no file says yet: kept in the state directory, so that no crash and no restart loses it.

`running.json` holds the SHA-256 of the configuration file that the changes were made on, the whole changed
configuration (absent: it is the file's), and the paused vhosts. If the file is another one now, the file counts.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

FILE = "running.json"


@dataclass(frozen=True, slots=True)
class Running:
    """See the module."""

    base: str
    config: dict[str, Any] | None
    paused: tuple[str, ...] = ()


def digest(text: str) -> str:
    """Return the SHA-256 of a configuration file's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def load(path: Path) -> Running | None:
    """Return what is kept at `path`; None if there is nothing, or nothing that can be read (said in the log)."""
    try:
        data = json.loads(path.read_text("utf-8"))
        config, paused = data["config"], data["paused"]
        if not isinstance(config, dict | None) or not all(isinstance(vhost, str) for vhost in paused):
            raise TypeError("not of the form")
        return Running(str(data["base"]), config, tuple(paused))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.error("what control had changed cannot be read: the file counts", extra={"error": str(error)})
        return None


def save(path: Path, running: Running) -> None:
    """Replace the file at `path`, whole or not at all; raises OSError."""
    write_atomically(
        path, json.dumps({"base": running.base, "config": running.config, "paused": list(running.paused)}, indent=1)
    )


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace `path` by a file with `text`; it is on the disk before it takes the name. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
