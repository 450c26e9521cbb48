"""Processes that stand still."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

DEADLINE_S = 30


def pause(pid: int) -> None:
    """SIGSTOP, and wait until every thread stands still: on a busy machine they stop some time after the signal is
    sent, and a broker may answer meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + DEADLINE_S
    while not all(_stopped(task) for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < end, f"process {pid} does not stop"
        time.sleep(0.01)


def _stopped(task: Path) -> bool:
    try:
        return "\nState:\tT" in (task / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended
        return True
