"""The analysis on a real cluster: a standalone master and two workers, each a process of its own on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from brokerdrill.base import java
from brokerdrill.ledger.contract import EVENT_COLUMNS, OP_COLUMNS
from tests.analysis import oracle
from tests.analysis.batch import differences
from tests.analysis.generate import generate
from tests.analysis.write import parquet, run_dir
from tests.free_ports import free_port

pytestmark = pytest.mark.long

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEADLINE_S = 180


def _until(log: Path, pattern: str, count: int, processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait until `pattern` stands `count` times in `log`."""
    deadline = time.monotonic() + DEADLINE_S
    while len(re.findall(pattern, log.read_text(errors="replace"))) < count:
        assert all(process.poll() is None for process in processes), log.read_text(errors="replace")[-2000:]
        assert time.monotonic() < deadline, f"not {count} times {pattern!r} in {log}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    java.use()
    folder = tmp_path_factory.mktemp("cluster")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    environment = os.environ | {
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    log4j = folder / "log4j2.properties"
    log4j.write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.err.ref = console\nappender.console.type = Console\n"
        "appender.console.name = console\nappender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\nappender.console.layout.pattern = %m%n\n"
    )
    environment["SPARK_DAEMON_JAVA_OPTS"] = f"-Dlog4j2.configurationFile={log4j.as_uri()}"
    environment["SPARK_DAEMON_MEMORY"] = "256m"
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> Path:
        log = folder / f"{name}.log"
        with log.open("wb") as out:
            command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{words[0]}", *words[1:]]
            processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True))
        return log

    try:
        ui = str(free_port())
        master = start("master", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", ui)
        _until(master, "I have been elected leader", 1, processes)
        for number in range(2):
            words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", str(free_port()))
            start(f"worker-{number}", "worker.Worker", *words, "--work-dir", str(folder / f"work-{number}"), url)
        _until(master, "Registering worker", 2, processes)
        yield url
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


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
