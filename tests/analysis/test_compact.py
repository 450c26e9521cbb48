"""Spools become Parquet with the same verdict; killed at any point nothing is lost or doubled."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from brokerdrill.analysis.analyze import analyze
from brokerdrill.analysis.compact import compact
from brokerdrill.base.errors import UsageError
from tests.analysis.generate import generate
from tests.analysis.write import run_dir

# A child that kills itself, as a power cut would, at the step (counted from 0) that its argument says.
_CHILD = """
import os, signal, sys
from pathlib import Path
from brokerdrill.analysis.compact import publish
steps = iter(range(100))
def told(_):
    if next(steps) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
old = {"ops": ["ops/worker-1.jsonl"], "events": ["events/runner.jsonl"]}
publish(Path(sys.argv[1]), Path(sys.argv[2]), old, told)
"""

_KILLED_BEFORE_THE_CHANGE = """
import os, signal, sys
from pathlib import Path
from brokerdrill.analysis import compact
compact.publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
compact.compact([Path(sys.argv[1])])
"""


def _told(path: Path) -> dict[str, Any]:
    result = analyze([path]).to_json()
    return {key: value for key, value in result.items() if key != "notes"}


def _files(path: Path) -> list[str]:
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())


def _spooled(path: Path, seed: int) -> Path:
    run, ops, events = generate(seed)
    return run_dir(path, run, ops, events)


def test_the_verdict_stays(spark: SparkSession, tmp_path: Path) -> None:
    path = _spooled(tmp_path / "run", 11)
    before = _told(path)
    assert compact([path]) == [path]
    assert not [file for file in _files(path) if file.endswith(".jsonl")]
    assert _told(path) == before
    unchanged = _files(path)
    compact([path])  # nothing is left to do
    assert _files(path) == unchanged


def test_runs_move_into_one_ledger(spark: SparkSession, tmp_path: Path) -> None:
    paths = [_spooled(tmp_path / f"run-{seed}", seed) for seed in (3, 4)]
    before = [_told(path) for path in paths]
    made = compact(paths, tmp_path / "ledger")
    assert [path.parent for path in made] == [tmp_path / "ledger"] * 2
    assert [_told(path) for path in made] == before
    together = analyze([tmp_path / "ledger"]).to_json()
    assert {run["run_id"] for run in together["runs"]} == {run["run_id"] for run in before}
    assert compact(paths, tmp_path / "ledger") == made  # what is there stays


def test_a_torn_line_is_still_told(spark: SparkSession, tmp_path: Path) -> None:
    path = _spooled(tmp_path / "run", 11)
    spool = path / "ops" / "worker-1.jsonl"
    spool.write_bytes(spool.read_bytes() + b'{"run_id": "gen')
    before = analyze([path]).to_json()
    assert any("torn" in note for note in before["notes"])
    compact([path])
    after = analyze([path]).to_json()
    assert any("torn" in note for note in after["notes"])
    assert after["promises"] == before["promises"]
    compact([path])
    assert analyze([path]).to_json()["promises"] == before["promises"]


def test_bad_input_is_left_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    path = _spooled(tmp_path / "run", 11)
    spool = path / "ops" / "worker-1.jsonl"
    row = json.loads(spool.read_text().splitlines()[0]) | {"outcome": "perhaps"}
    spool.write_text(json.dumps(row) + "\n" + spool.read_text())
    unchanged = {file: (path / file).read_bytes() for file in _files(path)}
    with pytest.raises(UsageError, match="line 1: outcome has the unknown value 'perhaps'"):
        compact([path])
    assert {file: (path / file).read_bytes() for file in _files(path)} == unchanged


def test_killed_while_it_writes(spark: SparkSession, tmp_path: Path) -> None:
    """The process ends while the new files are written: the run is as it was, and the next time succeeds."""
    path = _spooled(tmp_path / "run", 12)
    before, unchanged = _told(path), _files(path)
    ended = subprocess.run([sys.executable, "-c", _KILLED_BEFORE_THE_CHANGE, str(path)])
    assert ended.returncode == -signal.SIGKILL
    assert list(path.glob(".compact-*")), "it had written"
    assert [file for file in _files(path) if not file.startswith(".compact-")] == unchanged
    assert _told(path) == before
    compact([path])
    assert _told(path) == before
    assert not list(path.glob(".compact-*"))


def test_killed_at_each_step_of_the_change(spark: SparkSession, tmp_path: Path) -> None:
    path = _spooled(tmp_path / "run", 13)
    before = _told(path)
    made = compact([path], tmp_path / "ledger")[0]
    paths = []
    for step in range(4):
        copy = _spooled(tmp_path / f"copy-{step}", 13)
        staging = copy / ".compact-staging"
        for name in ("ops", "events"):
            (staging / name).mkdir(parents=True)
            for file in (made / name).iterdir():
                (staging / name / file.name).write_bytes(file.read_bytes())
        ended = subprocess.run([sys.executable, "-c", _CHILD, str(copy), str(staging), str(step)])
        assert ended.returncode == -signal.SIGKILL
        paths.append(copy)
    results = analyze(paths).to_json()["runs"]
    assert all({key: value for key, value in one.items() if key != "notes"} == before for one in results)


def test_what_a_kill_left_is_compacted_again(spark: SparkSession, tmp_path: Path) -> None:
    path = _spooled(tmp_path / "run", 14)
    before = _told(path)
    made = compact([path], tmp_path / "ledger")[0]
    for file in (made / "ops").iterdir():
        (path / "ops" / file.name).write_bytes(file.read_bytes())  # moved in, the spool not yet removed
    compact([path])
    assert not [file for file in _files(path) if file.endswith(".jsonl")]
    assert _told(path) == before
