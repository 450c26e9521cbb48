"""Clients in threads that use Java's classes for the first time at the same moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.workload import racing_threads

ROOT = Path(__file__).parents[2]


def test_threads_that_need_the_same_new_classes_do_not_end_the_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.workload.racing_threads", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = dict(line.split() for line in done.stdout.splitlines())
    assert list(counts) == racing_threads.CLASSES
    assert all(int(count) > 5 for count in counts.values()), counts
