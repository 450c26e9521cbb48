"""The workers' code: shipped from this package at every run, so that it is always the runner's own version."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from brokerdrill.hosts.connection import HostConnection

_PACKAGE = Path(__file__).parents[2]
_SHIPPED = (
    "__init__.py",
    "base/__init__.py",
    "base/atomic.py",
    "base/errors.py",
    "ledger/__init__.py",
    "ledger/contract.py",
    "ledger/coverage.py",
    "ledger/known.py",
    "ledger/spool.py",
    "promises",
    "workload",
)
CODE_DIR = "/run/brokerdrill/code"


def bundle() -> bytes:
    """Return a tar archive of what a worker needs of this package; the same bytes for the same code."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _SHIPPED:
            for path in sorted([_PACKAGE / name, *(_PACKAGE / name).rglob("*.py")]):
                if path.suffix == ".py":
                    info = tarfile.TarInfo(f"brokerdrill/{path.relative_to(_PACKAGE).as_posix()}")
                    info.size = path.stat().st_size
                    archive.addfile(info, io.BytesIO(path.read_bytes()))
    return buffer.getvalue()


async def ship(connections: Iterable[HostConnection]) -> str:
    """Unpack the workers' code on each host that does not have this version; return the folder that it is in there.
    Raises InfrastructureError."""
    code = bundle()
    folder = f"{CODE_DIR}/{hashlib.sha256(code).hexdigest()[:16]}"
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        archive.write(code)
        archive.flush()
        await asyncio.gather(*(_unpack(connection, Path(archive.name), folder) for connection in connections))
    return folder


async def _unpack(connection: HostConnection, archive: Path, folder: str) -> None:
    if (await connection.sh(f"[ -d {folder} ]")).rc == 0:
        return
    await connection.sh(f"mkdir -p {folder}.new", check=True)
    await connection.put(archive, f"{folder}.tar")
    await connection.sh(
        f"tar -xf {folder}.tar -C {folder}.new && rm {folder}.tar && mv -T {folder}.new {folder}", check=True
    )
