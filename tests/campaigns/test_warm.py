"""A session that warms up while a drill runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from brokerdrill.analysis.analyze import analyze
from brokerdrill.results import warm


def test_the_small_run_is_judged_whole(tmp_path: Path) -> None:
    (result,) = analyze([warm.small_run(tmp_path / "warm")]).runs
    assert result.verdict == "pass"
    assert {promise.verdict for promise in result.promises} == {"pass"}


_AT_ONCE = """
import sys
from pathlib import Path
from brokerdrill.results import warm
from brokerdrill.analysis.analyze import analyze
warm.warm_up()
if sys.argv[1:]:
    print(analyze([Path(sys.argv[1])]).verdict)
sys.exit(3)
"""


def test_a_judgement_does_not_wait_to_be_asked_twice(tmp_path: Path) -> None:
    """One session serves both: what judges while it still warms up."""
    run = warm.small_run(tmp_path / "warm")
    done = subprocess.run([sys.executable, "-c", _AT_ONCE, str(run)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (3, "pass\n", "")


def test_an_end_before_it_is_warm(tmp_path: Path) -> None:
    """A run that is refused ends with its own sentence and status, and leaves nothing of Spark."""
    done = subprocess.run(
        [sys.executable, "-c", _AT_ONCE], capture_output=True, text=True, timeout=60, env={"TMPDIR": str(tmp_path)}
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_it_is_not_waited_for() -> None:
    warm.warm_up()
    thread = next(one for one in threading.enumerate() if one.name == "warm-up")
    assert thread.daemon
    thread.join(120)
    assert not thread.is_alive()
