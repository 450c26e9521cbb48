"""What workers have written comes from their load hosts into the run's directory: finished pieces while the drill goes
on, the rest when its workers have ended.

A piece is copied under a hidden name, from where an earlier copy broke off, held against its size and SHA-256 on the
host, and published; only then is it removed there. One that is published is never copied again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from brokerdrill.base import atomic
from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.hosts.session import COPY_TIMEOUT_S
from brokerdrill.ledger import contract, evidence
from brokerdrill.ledger.events import EventWriter
from brokerdrill.runner.live_run import LiveRun

T = TypeVar("T")

FETCH_PERIOD_S = 2.0
# A copy that is not what the host has is made anew, so often in all.
COPIES = 2


async def fetch_spool(connection: HostConnection, spool: str, run_dir: Path, events: EventWriter | None = None) -> Path:
    """Bring all that a worker has left of its `spool`, which has ended, into the run directory; return where the last
    of it is. The host keeps each piece until it is there whole. `events` of a run whose ledger is still written get
    the size and the sum of each.

    Raises InfrastructureError; whoever comes next goes on where this one was.
    """
    for piece in await finished(connection, spool):
        await _fetch_piece(connection, piece, run_dir, events)
    # The spool itself comes last: its presence means that nothing is left to fetch.
    target = await _fetch_piece(connection, spool, run_dir, events)
    await connection.sh(
        f"rm -f {shlex.quote(spool)}.new; rmdir {shlex.quote(str(Path(spool).parent))} 2>/dev/null || :"
    )
    return target


async def fetch_finished(run: LiveRun) -> str:
    """Bring the finished pieces of all workers into the run directory while the drill goes on, until cancelled. What
    does not come now comes later, at the latest when the run ends."""
    while True:
        for worker in list(run.load.workers):
            with contextlib.suppress(BrokerdrillError):
                for piece in await finished(worker.connection, worker.spool):
                    await _fetch_piece(worker.connection, piece, run.run_dir, run.events)
        await asyncio.sleep(FETCH_PERIOD_S)


async def finished(connection: HostConnection, spool: str) -> Sequence[str]:
    """Return the paths of the finished pieces of `spool` that are on the host, in their order (`ledger_writer`)."""
    path = Path(spool)
    pattern = f"{shlex.quote(str(path.with_suffix('')))}-[0-9]*{path.suffix}"
    found = await connection.sh(f"ls -d {pattern} 2>/dev/null || :")
    return sorted(found.out.splitlines())


async def _fetch_piece(connection: HostConnection, remote: str, run_dir: Path, events: EventWriter | None) -> Path:
    target = run_dir / contract.OPS_DIR / Path(remote).name
    try:
        if not target.exists():
            size, digest = await _copy(connection, remote, target)
            if events:
                detail = {evidence.BYTES: str(size), evidence.SHA256: digest}
                events.write("piece", at_ns=now_ns(), target=connection.name, name=target.name, detail=detail)
    except OSError as error:
        raise InfrastructureError(f"{target} cannot be written: {error.strerror}") from None
    await connection.sh(f"rm -f {shlex.quote(remote)}")
    return target


async def _copy(connection: HostConnection, remote: str, target: Path) -> tuple[int, str]:
    """Make `target` the same as `remote`; return its size in bytes and its SHA-256 (hex) on the host.

    Raises InfrastructureError, OSError; what came stays, to be gone on from.
    """
    partial = target.with_name(f".{target.name}.part")
    file = shlex.quote(remote)
    said = await connection.sh(
        f"set -e; stat -c %s {file}; nice sha256sum < {file} | cut -d ' ' -f 1", timeout=COPY_TIMEOUT_S, check=True
    )
    words = said.out.split()
    size, digest = int(words[0]), words[1]
    for _ in range(COPIES):
        here = partial.stat().st_size if partial.exists() else 0
        if here > size:
            partial.unlink()
            here = 0
        if here < size or here == 0:
            await connection.fetch(remote, partial, offset=here)
        if await _in_thread(_matches, partial, size, digest):
            await _in_thread(atomic.publish, partial, target)
            return size, digest
        partial.unlink()
    raise InfrastructureError(f"{remote} of {connection.name} came otherwise than it is there, {COPIES} times")


async def _in_thread(work: Callable[..., T], *values: Any) -> T:
    """Return what `work` does with `values`, which takes its time while roles are run. Who is cancelled waits until
    it is done: whoever goes on finds nothing under way."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *values))
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            await asyncio.wait([task])


def _matches(path: Path, size: int, digest: str) -> bool:
    with path.open("rb") as file:
        return path.stat().st_size == size and hashlib.file_digest(file, "sha256").hexdigest() == digest
