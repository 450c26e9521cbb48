"""Which backend a key went to: a cache with a timeout, kept in a file that survives a crash at any moment.

The file is a log of JSON lines, appended as sessions open and rewritten (to a new file, then renamed) with the first
session of a process, and when it has grown to several times what is alive. Reading alone changes nothing: until the
restart is over the file is the predecessor's. A line that a crash cut off is skipped when it is read back.

Of several workers each has a file of its own with its keys, and publishes them to the others at once (`SharedKeys`):
where a key was at last, in whichever worker, counts.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from amqp_session_router.base import shared_table
from amqp_session_router.base.model import NO_KEY
from amqp_session_router.base.shared_table import SharedTable

log = logging.getLogger(__name__)

_SLACK = 1024
"""Lines that the file may have beyond twice the entries before it is rewritten."""


_SLOTS = 131072
_COLUMNS = 2
_KEY, _BACKEND, _CLEARED, _LATEST = "key", "backend", "cleared", "latest"
_TICK = 1e-6
"""Seconds between two published times, at least."""


def shared_size(regions: int) -> int:
    """Return the bytes that `SharedKeys` needs."""
    return shared_table.size(regions, _SLOTS, _COLUMNS)


class SharedKeys:
    """Where the keys of all farms were at last in any worker: the id of a backend's name, and when that was."""

    def __init__(self, number: int, offset: int, region: int, regions: int) -> None:
        self._own = region
        self._latest = 0.0
        self._table = SharedTable(number, offset, region, regions, _SLOTS, _COLUMNS, lambda values: not values[1])

    def id_of(self, backend: str) -> int:
        """Return what stands for a backend."""
        return self._table.id_of(_BACKEND, backend)

    def now(self, clock: float) -> float:
        """Return a time later than all that any worker has published: `clock`, unless that was set back meanwhile."""
        latest = max((one[1] for one in self._table.read(self._table.id_of(_LATEST))), default=0.0)
        return max(clock, latest + _TICK)

    def publish(self, farm: str, key: str, backend: str, at: float) -> None:
        """Publish where a key is. Where there is no room only this worker knows."""
        self._table.write(self._table.id_of(_KEY, farm, key), self.id_of(backend), at)
        self._note_time(at)

    def _note_time(self, at: float) -> None:
        self._latest = max(self._latest, at)
        self._table.write(self._table.id_of(_LATEST), 0.0, self._latest)

    def newest(self, farm: str, key: str) -> tuple[int, float]:
        """Return where a key was at last, and when; (0, 0.0) if no worker has it."""
        found = max(self._table.read(self._table.id_of(_KEY, farm, key)), key=lambda one: one[1], default=None)
        return (int(found[0]), found[1]) if found is not None and found[1] > self._cleared(farm) else (0, 0.0)

    def forget(self, farm: str, key: str) -> None:
        """Take a key out."""
        self._table.forget(self._table.id_of(_KEY, farm, key))

    def empty(self) -> None:
        """Take all keys of this worker out."""
        self._table.clear(self._own, lambda values: True)

    def clear(self, farm: str, at: float) -> None:
        """What was published about a farm until `at` does not count any more."""
        self._table.write(self._table.id_of(_CLEARED, farm), 0.0, at)
        self._note_time(at)

    def _cleared(self, farm: str) -> float:
        return max((one[1] for one in self._table.read(self._table.id_of(_CLEARED, farm))), default=0.0)


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
        shared: SharedKeys | None = None,
        farm: str = "",
    ) -> None:
        """`most`: keys at a time; beyond, the one that was used longest ago goes. `shared`: where other workers
        publish the keys of `farm`."""
        self.timeout = timeout
        self._shared, self._farm = shared, farm
        self._names: dict[int, str] = {}
        """The backends that `shared` may name."""
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
        if self._shared is not None:
            where, at = self._shared.newest(self._farm, key)
            if where in self._names and (entry is None or at > entry[1]):
                return None if self._expired(at) else self._names[where]
        if entry is None:
            return None
        if self._expired(entry[1]):
            self._forget(key)
            return None
        return entry[0]

    def _now(self) -> float:
        """Return the time, which does not go back between workers."""
        return self._clock() if self._shared is None else self._shared.now(self._clock())

    def know(self, backends: Iterable[str]) -> None:
        """Take the names of the backends at which a key may be."""
        if self._shared is not None:
            self._names = {self._shared.id_of(name): name for name in backends}

    def _forget(self, key: str) -> None:
        del self._entries[key]
        if self._shared is not None:
            self._shared.forget(self._farm, key)

    def _tell(self, key: str) -> None:
        if self._shared is not None:
            self._shared.publish(self._farm, key, *self._entries[key])

    def put(self, key: str, backend: str) -> None:
        """Remember that `key` is at `backend` now."""
        if key == NO_KEY:
            return
        now = self._now()
        self._entries.pop(key, None)  # the order of the dict is that of the last use: old entries are in front
        self._entries[key] = (backend, now)
        self._tell(key)
        self._drop_expired()
        self._append({"key": key, "backend": backend, "at": round(now, 3)})

    def clear(self) -> int:
        """Forget all keys; returns how many there were."""
        count = len(self._entries)
        if self._shared is not None:
            self._shared.clear(self._farm, self._now())
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
            self._forget(key)

    def _load(self, path: Path, newer: dict[str, tuple[str, float]] | None = None) -> None:
        try:
            text = path.read_text("utf-8", "replace")
        except FileNotFoundError:
            text = ""
        except OSError as error:
            self._give_up(error)
            return
        for line in text.split("\n"):
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
        for key in self._entries:
            self._tell(key)

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
