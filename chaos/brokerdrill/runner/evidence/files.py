"""Files in the run's folder `evidence`: what a system's commands print when a run ends, with secrets masked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from brokerdrill.base.atomic import write
from brokerdrill.base.masking import masked
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.runner.load.worker import Worker


def keep(run_dir: Path, name: str, content: bytes) -> None:
    """Write a file of evidence. Raises InfrastructureError."""
    write(run_dir / "evidence" / name, content)


async def keep_command_outputs(
    descriptors: Iterable[Descriptor], connections: Mapping[str, HostConnection], run_dir: Path
) -> None:
    """Keep what each command that a descriptor names prints, or why it did not. Raises InfrastructureError."""
    for item in descriptors:
        for name, command in item.evidence.items():
            result = await connections[item.host].sh(command, timeout=60)
            keep(run_dir, f"{item.instance}-{name}.txt", masked(result.out if result.rc == 0 else result.err).encode())


async def keep_worker_errors(workers: Iterable[Worker], run_dir: Path) -> None:
    """Keep what each worker that died had written to standard error, and the calls of clients that did not end when
    they had to. Raises InfrastructureError."""
    for worker in workers:
        if worker.stacks:
            calls = "".join("\n    ".join([name, *calls]) + "\n" for name, calls in worker.stacks.items())
            keep(run_dir, f"{worker.name}-stacks.txt", masked(calls).encode())
        if worker.said:
            keep(run_dir, f"{worker.name}.txt", masked(worker.said).encode())
