"""The run's journal: the intent and the outcome of each fault and heal, on disk before the step is taken.

One JSON object a line. `lease` carries what proves to the hosts that they are this run's, `intent` of a fault its host,
which knows how to heal it: `brokerdrill heal` can finish what a killed runner left.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from brokerdrill.base import json_lines
from brokerdrill.base.errors import InfrastructureError

JOURNAL = "journal.jsonl"


class Journal:
    """Appends entries to RUN_DIR/journal.jsonl, each flushed to the disk before `write` returns."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / JOURNAL
        torn = not json_lines.whole(self.path)
        self._file = self.path.open("a", encoding="utf-8")
        if torn:  # by a crash: the first entry from here on is a line of its own
            self._file.write("\n")

    def write(self, phase: str, fault_id: str, **fields: Any) -> None:
        """Append one entry and have it on the disk. Raises InfrastructureError when the disk does not take it.

        `phase` is run, lease, lease_back, worker (fault_id empty), intent, injected, verified, heal_intent, healed or
        heal_failed.
        """
        try:
            self._file.write(json.dumps({"phase": phase, "fault_id": fault_id, **fields}, ensure_ascii=False) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InfrastructureError(f"the journal cannot be written: {error.strerror}: {self.path}") from None

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written was said when it was written
            self._file.close()


def read(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a journal file; a line torn by a crash is left out (its effect never began)."""
    return json_lines.entries(path)


def lease(entries: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the entry of the lease that the run had on its hosts; None: it had none, or it was given back."""
    had = None
    for entry in entries:
        if entry["phase"] in ("lease", "lease_back"):
            had = entry if entry["phase"] == "lease" else None
    return had


def unhealed(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the intent entries of those faults that no `healed` entry follows, newest first."""
    pending: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry["phase"] == "intent":
            pending[entry["fault_id"]] = entry
        elif entry["phase"] == "healed":
            pending.pop(entry["fault_id"], None)
    return list(reversed(pending.values()))
