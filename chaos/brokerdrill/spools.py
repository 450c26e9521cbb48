"""A worker's spool comes from its load host into the run's directory."""

from __future__ import annotations

from pathlib import Path

from brokerdrill import ledger
from brokerdrill.errors import BrokerdrillError
from brokerdrill.hosts import HostConnection


async def fetch_spool(connection: HostConnection, spool: str, run_dir: Path) -> Path:
    """Bring the file `spool` into the run directory and return where it is; the host keeps it until it is there whole.

    Raises InfrastructureError; whoever comes next still finds the spool on its host.
    """
    target = run_dir / ledger.OPS_DIR / Path(spool).name
    # Under its own name it counts as here, whole or not.
    partial = target.with_name(f".{target.name}.part")
    try:
        await connection.fetch(spool, partial)
        partial.replace(target)
    except BrokerdrillError:
        partial.unlink(missing_ok=True)
        raise
    await connection.sh(f"rm -f {spool}; rmdir {Path(spool).parent} 2>/dev/null || :")
    return target
