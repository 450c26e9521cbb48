"""Files by which anybody may end runs: STOP in the folder of runs, ABORT in a run's directory."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from brokerdrill.base.atomic import write
from brokerdrill.base.errors import UsageError
from brokerdrill.runner.live_run import LiveRun

# In the folder of runs: no run begins, and each that goes on ends. It stays until somebody removes it.
STOP_FILE = "STOP"
# In a run's directory: that run ends.
ABORT_FILE = "ABORT"
PERIOD_S = 0.1


def refuse_stopped(runs: Path) -> None:
    """Raise UsageError while the folder of runs holds a STOP file."""
    if (runs / STOP_FILE).exists():
        raise UsageError(f"{runs / STOP_FILE} says that nothing runs; remove it first")


def ask_to_abort(run_dir: Path, why: str) -> Path:
    """Ask the run of `run_dir` to heal and end. Raises InfrastructureError where that cannot be written."""
    return write(run_dir / ABORT_FILE, f"{why}\n".encode())


def asked(run_dir: Path) -> str | None:
    """Return why the run is asked to end; None: it is not."""
    for path, said in ((run_dir / ABORT_FILE, "asked to abort"), (run_dir.parent / STOP_FILE, f"{STOP_FILE} file")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return f"{said}: {path.read_text(encoding='utf-8').strip() or path.name}"
    return None


async def until_asked_to_stop(run: LiveRun) -> str:
    """Wait until the run is asked to end."""
    while (why := asked(run.run_dir)) is None:
        await asyncio.sleep(PERIOD_S)
    return why
