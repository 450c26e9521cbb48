"""A worker's spool comes from its load host into the run's directory."""

from __future__ import annotations

from pathlib import Path

from brokerdrill.base import atomic
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.ledger import contract


async def fetch_spool(connection: HostConnection, spool: str, run_dir: Path) -> Path:
    """Bring the file `spool` into the run directory and return where it is; the host keeps it until it is there whole.

    Raises InfrastructureError; whoever comes next still finds the spool on its host.
    """
    target = run_dir / contract.OPS_DIR / Path(spool).name
    # Under its own name it counts as here, whole or not.
    partial = atomic.beside(target)
    try:
        await connection.fetch(spool, partial)
        atomic.publish(partial, target)
    except OSError as error:
        raise InfrastructureError(f"{target} cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    await connection.sh(f"rm -f {spool}; rmdir {Path(spool).parent} 2>/dev/null || :")
    return target
