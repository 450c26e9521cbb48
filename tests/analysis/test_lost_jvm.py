"""The Java virtual machine ends while it is needed: somebody ends it, or the kernel, for want of memory."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from brokerdrill.results import warm

_THREE_TIMES = """
import os
import sys
from pathlib import Path
from pyspark import SparkContext
from brokerdrill.analysis.analyze import analyze
from brokerdrill.analysis.judge import Judging
from brokerdrill.base.errors import InfrastructureError

run, number = Path(sys.argv[1]), int(sys.argv[2])
check = Judging.check

def ended(self):
    os.kill(SparkContext._gateway.proc.pid, number)
    return check(self)

print(analyze([run]).verdict)
Judging.check = ended
try:
    analyze([run])
except InfrastructureError as error:
    print(error)
Judging.check = check
if sys.argv[3:]:
    print(analyze([run]).verdict)
"""
_ENDED = "Spark's Java virtual machine ended during the work: it was ended by SIG"


@pytest.mark.parametrize(("name", "more"), [("KILL", ["again"]), ("TERM", [])], ids=["and asked again", "and no more"])
def test_it_is_told_in_one_sentence_and_the_next_one_gets_another(tmp_path: Path, name: str, more: list[str]) -> None:
    """Without a next one, the process's end has nothing to say either."""
    run = warm.small_run(tmp_path / "run")
    command = [sys.executable, "-c", _THREE_TIMES, str(run), str(int(signal.Signals[f"SIG{name}"])), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["pass", f"{_ENDED}{name}", *["pass"] * len(more)]
