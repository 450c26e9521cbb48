"""The analysis on real clusters of this machine: a standalone master and two workers, and YARN with ledgers in HDFS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.ledger.contract import EVENT_COLUMNS, OP_COLUMNS
from tests.analysis import oracle
from tests.analysis.batch import differences
from tests.analysis.generate import generate
from tests.analysis.hadoop_cluster import client, hadoop_cluster, put
from tests.analysis.standalone_cluster import standalone_cluster
from tests.analysis.write import parquet, run_dir

pytestmark = pytest.mark.long


def _analyze(master: str, path: str, out: Path, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Analyse in a process of its own, since a process has one Spark session."""
    command = [sys.executable, "-m", "brokerdrill", "analyze", path, "--master", master, "--json", str(out)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable} | environment
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert out.exists(), ended.stderr[-3000:]
    return list(json.loads(out.read_text())["runs"])


SEEDS = (21, 22)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each run as JSON Lines and as two Parquet files, so that both workers have some of it."""
    folder = tmp_path_factory.mktemp("ledger")
    for seed in SEEDS:
        run, ops, events = generate(seed)
        run_dir(folder / f"lines-{seed}", run, ops, events)
        split = run_dir(folder / f"parquet-{seed}", run, ops, events, as_parquet=True)
        parquet(split / "ops" / "part-0.parquet", ops[::2], OP_COLUMNS)
        parquet(split / "ops" / "part-1.parquet", ops[1::2], OP_COLUMNS)
        parquet(split / "events" / "part-0.parquet", events, EVENT_COLUMNS)
    return folder


def _agree(runs: Sequence[dict[str, Any]]) -> None:
    for mine, seed in zip(runs, SEEDS * 2, strict=True):
        run, ops, events = generate(seed)
        theirs = oracle.judge(run, ops, events, run.promises)
        wrong = [line for line in differences(f"seed {seed}", mine, theirs) if ": failover:" not in line]
        assert not wrong, "\n".join(wrong)


def test_two_workers_judge_as_one_process_does(ledger: Path, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path, 2, sys.executable) as url:
        _agree(_analyze(url, str(ledger), tmp_path / "verdict.json", {"SPARK_LOCAL_IP": "127.0.0.1"}))


def test_yarn_judges_what_lies_in_hdfs(ledger: Path, tmp_path: Path) -> None:
    with hadoop_cluster(tmp_path) as conf:
        put(conf, ledger, "/ledger")
        _agree(_analyze("yarn", "hdfs:///ledger", tmp_path / "verdict.json", client(conf)))
