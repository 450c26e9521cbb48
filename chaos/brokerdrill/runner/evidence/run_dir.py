"""The run's directory: its path, its making, and whether its run goes on."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path

from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.base.locks import is_held
from brokerdrill.ledger import contract

# Held by the directory's runner for as long as it lives.
LOCK_FILE = ".lock"


def new_run_dir(runs: Path, drill: str, topology: str, seed: int) -> Path:
    """The path of a run directory that does not exist yet: UTC time, drill, topology and seed."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    path = runs / f"{stamp}-{drill}-{topology}-{seed}"
    number = 1
    while path.exists():
        number += 1
        path = runs / f"{stamp}-{drill}-{topology}-{seed}-{number}"
    return path


def has_load(run_dir: Path) -> bool:
    """Return whether the directory holds what clients recorded, so that the run can be judged: something that came
    whole from its host."""
    return any((run_dir / contract.OPS_DIR).glob("[!.]*"))


def make_run_dir(run_dir: Path) -> None:
    """Make the directory. Raises UsageError where it exists already, InfrastructureError where it cannot be made."""
    try:
        run_dir.mkdir(parents=True)
        (run_dir / contract.OPS_DIR).mkdir()
    except FileExistsError:
        raise UsageError(f"run directory {run_dir} exists already") from None
    except OSError as error:
        raise InfrastructureError(f"run directory {run_dir} cannot be made: {error.strerror}") from None


def live_runs(runs: Path) -> list[Path]:
    """Return the directories of the runs below `runs` that go on, oldest first. A killed runner's is none of them."""
    found = []
    for path in sorted(runs.glob(f"*/{contract.RUN_FILE}")):
        with contextlib.suppress(BrokerdrillError):
            if is_held(path.parent / LOCK_FILE) and contract.read_run(path.parent).outcome == "running":
                found.append(path.parent)
    return found
