"""What descriptors say is worth keeping of a system when a run ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from brokerdrill.descriptors import Descriptor
from brokerdrill.errors import InfrastructureError
from brokerdrill.hosts import HostConnection


async def keep_evidence(
    descriptors: Iterable[Descriptor], connections: Mapping[str, HostConnection], run_dir: Path
) -> None:
    """Keep in `run_dir`/evidence what each command prints, or why it did not. Raises InfrastructureError."""
    for item in descriptors:
        for name, command in (item.extra("evidence") or {}).items():
            result = await connections[item.host].sh(command, timeout=60)
            folder = run_dir / "evidence"
            try:
                folder.mkdir(exist_ok=True)
                (folder / f"{item.instance}-{name}.txt").write_text(result.out if result.rc == 0 else result.err)
            except OSError as error:
                raise InfrastructureError(f"{folder} cannot be written: {error.strerror}") from None
