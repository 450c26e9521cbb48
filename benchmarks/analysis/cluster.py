"""The analysis on a standalone cluster of Spark: its time with one, two and more executors, what it shuffles, how even
its tasks are, and the driver's memory.

    .venv/bin/python benchmarks/analysis/cluster.py [--ops 100000000] [--executors 1 --executors 2 ...] [--dir DIR]

Each executor has one core of this machine, pinned, and the cores are shared where there are fewer. The environment is
shipped as an archive, made by venv-pack, as to a cluster whose hosts have nothing but Python. What executors write is
in memory (`--scratch`): on a cluster each has a disk of its own, and here the kernel's writing to one disk would have
an idle core beside one executor, and none beside two. Counts must equal what was put in. Exit status 1 where two
executors, on two cores, are less than 1.7 times as fast as one. Needs uv, as `make setup-tests` installs it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from run import counts, expected, make_ledger, ours

from brokerdrill.analysis.spark import JVM_OF_LITTLE_WORK
from brokerdrill.base import java

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.analysis.standalone_cluster import standalone_cluster

ROOT = Path(__file__).resolve().parents[2]
EXECUTORS = (1, 2, 4)
GOAL = 1.7
EXECUTOR_MEMORY = "1g"
_MIB = 2**20


def archive(folder: Path) -> Path:
    """The environment of the executors as an archive, made where it is not there: this checkout with what it needs, but
    not Spark's own jars, which every host of a cluster has."""
    packed = folder / "environment.tar.gz"
    if not packed.exists():
        place = folder / "environment"
        uv = [str(Path(sys.executable).with_name("uv"))]
        subprocess.run([*uv, "venv", "-q", "--clear", "--python", sys.executable, str(place)], check=True)
        python = str(place / "bin" / "python")
        install = [*uv, "pip", "install", "-q", "--compile-bytecode", "--python", python]
        subprocess.run([*install, str(ROOT), "venv-pack==0.2.0"], check=True)
        pack = [python, "-m", "venv_pack", "--prefix", str(place), "--output", str(packed)]
        pack += ["--quiet", "--compress-level", "1", "--exclude", "*/pyspark/jars/*"]
        subprocess.run(pack, check=True)
    return packed


class Cost(NamedTuple):
    """What Spark's event log says of an application."""

    busy_s: float
    """From when the first task runs, with its environment unpacked, to the last one's end."""
    shuffled: int
    """Bytes."""
    skew: float
    """The longest task over the mean of its stage, in the stage that takes longest."""


def cost(events: Path) -> Cost:
    """Read the event log in the folder `events`, which has one application's."""
    (log,) = (path for path in events.rglob("*") if path.is_file() and path.stat().st_size)
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    shuffled = 0
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            info, metrics = event["Task Info"], event.get("Task Metrics") or {}
            # An executor's first task waits for the archive.
            begin = info["Finish Time"] - metrics.get("Executor Run Time", 0)
            spans[event["Stage ID"]].append((begin, info["Finish Time"]))
            shuffled += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    every = [span for stage in spans.values() for span in stage]
    longest = max(spans.values(), key=lambda stage: sum(end - begin for begin, end in stage))
    took = [end - begin for begin, end in longest]
    busy = (max(end for _, end in every) - min(begin for begin, _ in every)) / 1000
    return Cost(busy, shuffled, max(took) / statistics.fmean(took))


def settings(folder: Path, packed: Path) -> Mapping[str, str]:
    """The environment of the driver, with a configuration of Spark that ships the archive and keeps an event log."""
    events = folder / "events"
    events.mkdir()
    (folder / "spark-defaults.conf").write_text(
        f"spark.archives {packed.as_uri()}#environment\nspark.executor.memory {EXECUTOR_MEMORY}\n"
        f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\nspark.eventLog.rolling.enabled false\n"
        f"spark.eventLog.compress false\nspark.executor.extraJavaOptions {JVM_OF_LITTLE_WORK}\n"
    )
    return {
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": "./environment/bin/python",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=10**8, help="operations of the ledger (default 100,000,000)")
    parser.add_argument("--executors", type=int, action="append", help=f"repeatable (default {EXECUTORS})")
    parser.add_argument("--dir", type=Path, help="where ledger and archive are kept (default: a temporary directory)")
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path("/dev/shm"),
        help="for what executors write (default /dev/shm; 10⁸ operations: 13 GB)",
    )
    words = parser.parse_args()
    java.use()
    folder = (words.dir or Path(tempfile.mkdtemp(prefix="brokerdrill-cluster-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    run_dir, packed = make_ledger(folder, words.ops), archive(folder)
    print("| executors | whole | tasks, first to last | shuffled | longest task / mean | driver | right | load |")
    print("|---|---|---|---|---|---|---|---|")
    busy: dict[int, float] = {}
    right = True
    for count in words.executors or EXECUTORS:
        with tempfile.TemporaryDirectory(prefix="brokerdrill-cluster-", dir=words.scratch) as name:
            place = Path(name)
            os.environ.update(settings(place, packed))
            with standalone_cluster(place, count, os.environ["PYSPARK_PYTHON"], pinned=True) as url:
                took, result, _ = ours(run_dir, ("-m", "brokerdrill", "analyze", "--master", url))
            found = cost(place / "events")
            good = counts(result) == expected(run_dir) and result["as_expected"]
            right = right and good
            busy[count] = found.busy_s
            print(
                f"| {count} | {took.seconds:.1f} s | {found.busy_s:.1f} s | {found.shuffled / _MIB:.0f} MiB | "
                f"{found.skew:.2f} | {took.peak:.2f} GiB | {good} | {os.getloadavg()[0]:.1f} |",
                flush=True,
            )
    if 1 not in busy or 2 not in busy:
        return 0 if right else 1
    ratio = busy[1] / busy[2]
    print(f"two executors / one: {ratio:.2f} times as fast (goal {GOAL})")
    return 0 if right and ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
