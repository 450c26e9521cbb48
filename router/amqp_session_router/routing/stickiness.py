"""Which backend a key went to: a cache with a timeout, kept in a file that survives a crash at any moment.

The file is a log of JSON lines, appended as sessions open and rewritten (to a new file, then renamed) with the first
session of a process, and when it has grown to several times what is alive. Reading alone changes nothing: until the
restart is over the file is the predecessor's. A line that a crash cut off is skipped when it is read back.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from amqp_session_router.base.model import NO_KEY

log = logging.getLogger(__name__)

_SLACK = 1024
"""Lines that the file may have beyond twice the entries before it is rewritten."""


class Stickiness:
    """The cache of one farm: key → backend's name. The key `NULL` is never kept.

    `timeout` is in seconds since the key's last session opened; 0: for ever. `path` None: in memory only. A file that
    cannot be written costs the persistence, said once in the log, never a session.
    """

    def __init__(
        self,
        timeout: float = 0.0,
        path: Path | None = None,
        clock: Callable[[], float] = time.time,
        most: int = 65536,
    ) -> None:
        """`most`: keys at a time; beyond, the one that was used longest ago goes."""
        self.timeout = timeout
        self.most = most
        self.path = path
        self._clock = clock
        self._entries: dict[str, tuple[str, float]] = {}
        self._file: IO[str] | None = None
        self._lines = 0
        self._broken = False
        self._closed = False
        if path is not None:
            self._load(path)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> str | None:
        """Return the backend's name for `key`, None if there is none or it has timed out."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if self._expired(entry[1]):
            del self._entries[key]
            return None
        return entry[0]

    def put(self, key: str, backend: str) -> None:
        """Remember that `key` is at `backend` now."""
        if key == NO_KEY:
            return
        now = self._clock()
        self._entries.pop(key, None)  # the order of the dict is that of the last use: old entries are in front
        self._entries[key] = (backend, now)
        self._drop_expired()
        self._append({"key": key, "backend": backend, "at": round(now, 3)})

    def clear(self) -> int:
        """Forget all keys; returns how many there were."""
        count = len(self._entries)
        self._entries.clear()
        self._rewrite()
        return count

    def close(self) -> None:
        """Close the file; from here on it belongs to somebody else and is written no more."""
        self._closed = True
        self._close_file()

    def reopen(self) -> None:
        """Read the file again, which another process wrote until now; what is remembered since counts more."""
        self._close_file()  # it may not be the one that the other process wrote to
        if self.path is not None:
            newer, self._entries = self._entries, {}
            self._load(self.path, newer)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _expired(self, at: float) -> bool:
        return self.timeout > 0 and self._clock() - at >= self.timeout

    def _drop_expired(self) -> None:
        while self._entries:
            key = next(iter(self._entries))
            if len(self._entries) <= self.most and not self._expired(self._entries[key][1]):
                return
            del self._entries[key]

    def _load(self, path: Path, newer: dict[str, tuple[str, float]] | None = None) -> None:
        try:
            text = path.read_text("utf-8", "replace")
        except FileNotFoundError:
            text = ""
        except OSError as error:
            self._give_up(error)
            return
        for line in text.splitlines():
            try:
                entry = json.loads(line)
                key, backend, at = str(entry["key"]), str(entry["backend"]), float(entry["at"])
            except (ValueError, KeyError, TypeError):
                continue
            self._entries.pop(key, None)
            if not self._expired(at):
                self._entries[key] = (backend, at)
        for key, entry in (newer or {}).items():
            self._entries.pop(key, None)
            self._entries[key] = entry
        self._drop_expired()

    def _append(self, entry: dict[str, object]) -> None:
        if self.path is None or self._broken or self._closed:
            return
        if self._file is None or self._lines > 2 * len(self._entries) + _SLACK:
            self._rewrite()
            return
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()  # to the kernel: it outlives the process, and a power cut costs the last seconds only
            self._lines += 1
        except OSError as error:
            self._give_up(error)

    def _rewrite(self) -> None:
        if self.path is None or self._broken or self._closed:
            return
        fresh = self.path.with_name(self.path.name + ".new")
        try:
            self._close_file()
            with fresh.open("w", encoding="utf-8") as out:
                for key, (backend, at) in self._entries.items():
                    out.write(json.dumps({"key": key, "backend": backend, "at": round(at, 3)}) + "\n")
                out.flush()
                os.fsync(out.fileno())
            fresh.replace(self.path)
            self._file = self.path.open("a", encoding="utf-8")
            self._lines = len(self._entries)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._broken = True
        with contextlib.suppress(OSError):
            self._close_file()
        log.error("stickiness is kept in memory only from here on", extra={"file": str(self.path), "error": str(error)})
