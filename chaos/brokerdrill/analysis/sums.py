"""Whether the files of operations are what the workers had written, by the size and the sum that were recorded of each
when it was fetched (events `piece`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import PurePosixPath

from brokerdrill.analysis.events import Event
from brokerdrill.analysis.files import Folder, LocalFolder
from brokerdrill.analysis.load import COMPACTED, Run
from brokerdrill.ledger.contract import OPS_DIR
from brokerdrill.ledger.evidence import BYTES, SHA256
from brokerdrill.ledger.spool import SUFFIX


def lacking(folder: Folder, files: Iterable[str], events: Iterable[Event]) -> list[str]:
    """Return what is missing of the `files` of operations in `folder`, or is not as it was written, a sentence each.

    A file that `brokerdrill compact` has put into its own was held against its sum then. At a URI sizes alone are
    compared. Where something was told of some spools, one of which nothing was may have been cut off.
    """
    there = {PurePosixPath(file).name: file for file in files}
    compacted = any(name.startswith(COMPACTED) for name in there)
    told = _told(events)
    untold = sorted(name for name in there if told and name.endswith(SUFFIX) and name not in told)
    found = [f"of {name} nobody has said how much its worker had written" for name in untold]
    for name, (size, digest) in sorted(told.items()):
        if name not in there:
            if not compacted:
                found.append(f"{name}, which a worker had written, is not there")
        elif folder.size(there[name]) != size:
            found.append(f"{name} has {folder.size(there[name]):,} of {size:,} bytes that its worker had written")
        elif digest and isinstance(folder, LocalFolder) and _sha256(folder, there[name]) != digest:
            found.append(f"{name} is not what its worker had written: its SHA-256 is another one")
    return found


def _told(events: Iterable[Event]) -> dict[str, tuple[int, str]]:
    found = {}
    for event in events:
        detail = dict(event.detail)
        if event.kind == "piece" and event.name:
            with suppress(KeyError, ValueError):
                found[event.name] = int(detail[BYTES]), detail.get(SHA256, "")
    return found


def _sha256(folder: LocalFolder, file: str) -> str:
    with (folder.path / file).open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


class Sums:
    """What is `lacking` of runs, found while something else goes on: a sum takes its time."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._pool = ThreadPoolExecutor(1, "sums")
        self._found: dict[int, Future[list[str]]] = {
            run.number: self._pool.submit(lacking, run.folder, run.files[OPS_DIR], run.events) for run in runs
        }
        self._pool.shutdown(wait=False)

    def of(self, run: int) -> Sequence[str]:
        """Return what is lacking of a run, by its number."""
        return self._found[run].result()
