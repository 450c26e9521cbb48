"""The last good configuration, in memory that the supervisor keeps: a worker that was killed can be replaced while the
file on disk is wrong."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict

from amqp_session_router.control.saved_state import Running

_DIGEST = 32


class ConfigStore:
    """A memfd with a digest and JSON; one that was only partly written is taken for empty."""

    def __init__(self, number: int) -> None:
        self._number = number

    def save(self, text: str, running: Running) -> None:
        """Keep the file's text and what control changed; raises OSError."""
        data = json.dumps({"text": text, "running": asdict(running)}).encode()
        os.pwrite(self._number, hashlib.sha256(data).digest() + data, 0)
        os.ftruncate(self._number, _DIGEST + len(data))

    def load(self) -> tuple[str, Running] | None:
        """Return what was saved last, None if there is nothing whole."""
        content = os.pread(self._number, os.fstat(self._number).st_size, 0)
        data = content[_DIGEST:]
        if hashlib.sha256(data).digest() != content[:_DIGEST]:
            return None
        found = json.loads(data)
        running = found["running"]
        return found["text"], Running(running["base"], running["config"], tuple(running["paused"]))
