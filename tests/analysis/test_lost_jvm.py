"""The Java virtual machine ends while it is needed: somebody ends it, or the kernel, for want of memory."""

from __future__ import annotations

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

print(analyze([run])["verdict"])
Judging.check = ended
try:
    analyze([run])
except InfrastructureError as error:
    print(error)
Judging.check = check
if sys.argv[3:]:
    print(analyze([run])["verdict"])
"""
_ENDED = "Spark's Java virtual machine ended during the work: it was ended by SIG"


@pytest.mark.parametrize("number", [9, 15])
def test_it_is_told_in_one_sentence_and_the_next_one_gets_another(tmp_path: Path, number: int) -> None:
    run = warm.small_run(tmp_path / "run")
    command = [sys.executable, "-c", _THREE_TIMES, str(run), str(number), "again"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    name = {9: "KILL", 15: "TERM"}[number]
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["pass", f"{_ENDED}{name}", "pass"]


def test_without_another_the_process_ends_without_a_word(tmp_path: Path) -> None:
    run = warm.small_run(tmp_path / "run")
    command = [sys.executable, "-c", _THREE_TIMES, str(run), "9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"pass\n{_ENDED}KILL\n", "")
