"""The analysis on a real cluster: a standalone master and two workers, each a process of its own on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerdrill.ledger.contract import EVENT_COLUMNS, OP_COLUMNS
from tests.analysis import oracle
from tests.analysis.batch import differences
from tests.analysis.generate import generate
from tests.analysis.standalone_cluster import standalone_cluster
from tests.analysis.write import parquet, run_dir

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), 2, sys.executable) as url:
        yield url


def _analyze(url: str, path: Path, out: Path) -> dict[str, object]:
    """Analyse in a process of its own, since a process has one Spark session."""
    command = [sys.executable, "-m", "brokerdrill", "analyze", str(path), "--master", url, "--json", str(out)]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert out.exists(), ended.stderr[-3000:]
    return dict(json.loads(out.read_text()))


def test_two_workers_judge_as_one_process_does(cluster: str, tmp_path: Path) -> None:
    """Each run as JSON Lines and as two Parquet files, so that both workers have some of it."""
    ledgers = {seed: generate(seed) for seed in (21, 22)}
    for seed, (run, ops, events) in ledgers.items():
        run_dir(tmp_path / "ledger" / f"lines-{seed}", run, ops, events)
        split = run_dir(tmp_path / "ledger" / f"parquet-{seed}", run, ops, events, as_parquet=True)
        parquet(split / "ops" / "part-0.parquet", ops[::2], OP_COLUMNS)
        parquet(split / "ops" / "part-1.parquet", ops[1::2], OP_COLUMNS)
        parquet(split / "events" / "part-0.parquet", events, EVENT_COLUMNS)
    found = _analyze(cluster, tmp_path / "ledger", tmp_path / "verdict.json")
    runs = found["runs"]
    assert isinstance(runs, list) and len(runs) == 4
    for mine, seed in zip(runs, (21, 22, 21, 22), strict=True):
        run, ops, events = ledgers[seed]
        theirs = oracle.judge(run, ops, events, run.promises)
        wrong = [line for line in differences(f"seed {seed}", mine, theirs) if ": failover:" not in line]
        assert not wrong, "\n".join(wrong)
