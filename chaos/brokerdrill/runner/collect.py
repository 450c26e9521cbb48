"""What is brought from the hosts into the run's directory when a run ends: the workers' spools, and evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from brokerdrill import ledger
from brokerdrill.descriptors import Descriptor
from brokerdrill.hosts import HostConnection


async def fetch_spool(connection: HostConnection, spool: str, run_dir: Path) -> None:
    """Bring a worker's spool into the run directory; the host keeps it until it is here. Raises InfrastructureError."""
    await connection.fetch(spool, run_dir / ledger.OPS_DIR / Path(spool).name)
    await connection.sh(f"rm -f {spool}; rmdir {Path(spool).parent} 2>/dev/null || :")


async def keep_evidence(
    descriptors: Iterable[Descriptor], connections: Mapping[str, HostConnection], run_dir: Path
) -> None:
    """Keep what descriptors say is worth looking at after a run: what each command prints, or why it did not."""
    for item in descriptors:
        for name, command in (item.extra("evidence") or {}).items():
            result = await connections[item.host].sh(command, timeout=60)
            folder = run_dir / "evidence"
            folder.mkdir(exist_ok=True)
            (folder / f"{item.instance}-{name}.txt").write_text(result.out if result.rc == 0 else result.err)
