"""A standalone cluster of Spark: a master and workers with a core each, each a process of its own on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from brokerdrill.base import java
from tests.free_ports import free_port

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEADLINE_S = 180
_LOG4J = """rootLogger.level = info
rootLogger.appenderRef.err.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n
"""


def _until(log: Path, pattern: str, count: int, processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait until `pattern` stands `count` times in `log`."""
    deadline = time.monotonic() + DEADLINE_S
    while len(re.findall(pattern, log.read_text(errors="replace"))) < count:
        assert all(process.poll() is None for process in processes), log.read_text(errors="replace")[-2000:]
        assert time.monotonic() < deadline, f"not {count} times {pattern!r} in {log}"
        time.sleep(0.2)


@contextmanager
def standalone_cluster(folder: Path, workers: int, python: str, *, pinned: bool = False) -> Iterator[str]:
    """Yield the URL of a master with so many workers, whose executors run `python`; their files are in `folder`. With
    `pinned` each worker has a core of this machine, in turn."""
    java.use()
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    environment = os.environ | {
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": python,
    }
    cores = sorted(os.sched_getaffinity(0))
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str, core: int | None = None) -> Path:
        log = folder / f"{name}.log"
        pin = [] if core is None else ["taskset", "--cpu-list", str(core)]
        with log.open("wb") as out:
            command = [*pin, str(SPARK_CLASS), f"org.apache.spark.deploy.{words[0]}", *words[1:]]
            processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True))
        return log

    try:
        ui = str(free_port())
        master = start("master", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", ui)
        _until(master, "I have been elected leader", 1, processes)
        for number in range(workers):
            start(
                f"worker-{number}",
                *["worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"],
                *["--webui-port", str(free_port()), "--work-dir", str(folder / f"work-{number}"), url],
                core=cores[number % len(cores)] if pinned else None,
            )
        _until(master, "Registering worker", workers, processes)
        yield url
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
