"""The run's directory: its path and its making."""

from __future__ import annotations

import datetime
from pathlib import Path

from brokerdrill import ledger
from brokerdrill.errors import InfrastructureError, UsageError


def new_run_dir(runs: Path, scenario: str, seed: int) -> Path:
    """The path of a run directory that does not exist yet: UTC time, scenario and seed."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    path = runs / f"{stamp}-{scenario}-{seed}"
    number = 1
    while path.exists():
        number += 1
        path = runs / f"{stamp}-{scenario}-{seed}-{number}"
    return path


def make_run_dir(run_dir: Path) -> None:
    """Make the directory. Raises UsageError where it exists already, InfrastructureError where it cannot be made."""
    try:
        run_dir.mkdir(parents=True)
        (run_dir / ledger.OPS_DIR).mkdir()
    except FileExistsError:
        raise UsageError(f"run directory {run_dir} exists already") from None
    except OSError as error:
        raise InfrastructureError(f"run directory {run_dir} cannot be made: {error.strerror}") from None
