"""The load's sends a second: with the ledger over without it, over the broker's own `artemis perf producer`, and of two
load hosts over one.

    python benchmarks/load/run.py [--slices N] [--repeats N] [--transaction N] [--bytes N] [--clients N]

All on one standalone broker on loopback that the benchmark starts and stops; see README.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from brokerdrill.base import java
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, ClientSpec, WorkerConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.workload.standalone_broker import USER, Broker, unpack
from tests.workload.worker_process import WorkerProcess

QUEUE = "bench.q0"
LEDGER_GOAL = 0.95
PERF_GOAL = 0.8
HOSTS_GOAL = 1.8
# Messages a second of one load host, where the broker's disk does not decide.
RATE_GOAL = 10_000
RATE_TRANSACTION = 100
# What a load host of the third measurement has of one core: so little that the broker does not mind two of them.
HOST_CORE = 0.1
# In pairs of slices: well before the queue is so long that the broker pages.
PURGE_EVERY = 3
# A queue that pages would measure the disk, so the broker has room for all that one measurement sends.
BROKER_JAVA_ARGS = "-Xms1g -Xmx2g -XX:+UseSerialGC -XX:-UsePerfData -Dlog4j2.disableJmx=true"


class Load:
    """One worker process under full load, which can be halted and resumed; warm when made."""

    def __init__(self, broker: Broker, options: argparse.Namespace, spool: Path | None, name: str) -> None:
        config = WorkerConfig(
            run_id=f"bench-{os.getpid()}-{name}",
            worker=name,
            clock=name,
            client="core",
            endpoints=(BrokerEndpoint("127.0.0.1", broker.port, "a1", "h1"),),
            credentials=ClientAccount(USER, broker.password),
            addresses=(QUEUE,),
            producers=tuple(ClientSpec(f"producer-{n}", (QUEUE,)) for n in range(options.clients)),
            transaction=options.transaction,
            payload_bytes=(options.bytes,),
            duplicate_detection=not options.no_detection,
            jars=str(broker.home / "lib"),
            spool=str(spool) if spool else None,
            jvm_options=tuple(options.jvm_option),
            # Neither side is to give the other up because the worker was halted.
            url_params={"clientFailureCheckPeriod": "120000", "connectionTTL": "240000"},
        )
        self._worker = WorkerProcess(config.to_json(), env={"JAVA_HOME": str(java.home())})
        self._worker.begin()
        warm_ns = options.warmup * 1e9
        self._worker.until_status(lambda status: status["sent_ok"] > 0 and status["clock_ns"] > warm_ns)

    def halt(self) -> None:
        self._worker.process.send_signal(signal.SIGSTOP)

    def rate(self, seconds: float) -> float:
        """Acknowledged messages a second over about `seconds` from the next status on; resumes if halted."""
        self._worker.process.send_signal(signal.SIGCONT)
        self._worker.forget()
        first = self._worker.until("status")
        end_ns = first["clock_ns"] + seconds * 1e9
        last = self._worker.until_status(lambda status: status["clock_ns"] >= end_ns)
        assert last["sent_ok"] > first["sent_ok"], f"nothing was acknowledged: {first} {last}"
        return (last["sent_ok"] - first["sent_ok"]) / (last["clock_ns"] - first["clock_ns"]) * 1e9

    def confine(self, group: Path) -> None:
        """Put the process into a control group."""
        (group / "cgroup.procs").write_text(str(self._worker.process.pid))

    def end(self) -> None:
        self._worker.kill()


@contextlib.contextmanager
def small_host(name: str) -> Iterator[Path]:
    """A control group (of the first or the second version) that has `HOST_CORE` of a core."""
    root = Path("/sys/fs/cgroup")
    first = (root / "cpu").is_dir()
    group = (root / "cpu" if first else root) / name
    group.mkdir()
    try:
        quota = int(HOST_CORE * 100_000)
        if first:
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} 100000")
        yield group
    finally:
        group.rmdir()


def perf_rate(broker: Broker, options: argparse.Namespace) -> float:
    """Completed messages a second of the broker's own load generator: the mean of its seconds after the warm-up."""
    said = broker.artemis(
        *["perf", "producer", "--persistent", "--protocol", "CORE"],
        *["--commit-interval", str(options.transaction), "--max-pending", str(options.transaction)],
        *["--message-size", str(options.bytes), "--threads", str(options.clients), "--producers", str(options.clients)],
        *["--warmup", str(options.warmup), "--duration", str(options.warmup + options.seconds), f"queue://{QUEUE}"],
    )
    measured = re.findall(r"--- warmup false.*?--- completed:\s+(\d+) msg/sec", said, re.DOTALL)
    assert measured, said
    return statistics.fmean(map(int, measured))


def ratio(above: list[float], below: list[float]) -> float:
    """The median of the ratios of neighbours in time: what slows the machine for a while slows both."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def error_of(above: list[float], below: list[float]) -> float:
    """The standard error of that median, as if the ratios were normally distributed; 0 for fewer than two."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return 1.253 * statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0


def measure_ledger(broker: Broker, options: argparse.Namespace, folder: Path) -> tuple[list[float], list[float]]:
    """Rates with the ledger on and off: two warm workers, in turn for a short while, the other halted."""
    spool = folder / "on.jsonl"
    on = Load(broker, options, spool, "on")
    on.halt()
    off = Load(broker, options, None, "off")
    off.halt()
    rates: dict[Load, list[float]] = {on: [], off: []}
    try:
        for number in range(options.slices):
            if number % PURGE_EVERY == 0:
                broker.artemis("queue", "purge", "--name", QUEUE)
            for load in (on, off) if number % 2 == 0 else (off, on):
                rates[load].append(load.rate(options.slice))
                load.halt()
            print(
                f"{number + 1:3}/{options.slices}  on {rates[on][-1]:8.0f}  off {rates[off][-1]:8.0f} messages/s",
                flush=True,
            )
    finally:
        on.end()
        off.end()
    spool.unlink()
    return rates[on], rates[off]


def measure_perf(broker: Broker, options: argparse.Namespace, folder: Path) -> tuple[list[float], list[float]]:
    """Rates of a worker with its ledger and of artemis perf, in alternating order, each from an empty queue."""
    ours: list[float] = []
    perf: list[float] = []
    for number in range(options.repeats):
        for kind in ("ours", "perf") if number % 2 == 0 else ("perf", "ours"):
            broker.artemis("queue", "purge", "--name", QUEUE)
            if kind == "perf":
                perf.append(perf_rate(broker, options))
                continue
            spool = folder / f"{number}.jsonl"
            load = Load(broker, options, spool, f"w{number}")
            try:
                ours.append(load.rate(options.seconds))
            finally:
                load.end()
            spool.unlink()
        print(f"{number + 1:3}/{options.repeats}  worker {ours[-1]:8.0f}  perf {perf[-1]:8.0f} messages/s", flush=True)
    return ours, perf


def measure_hosts(broker: Broker, options: argparse.Namespace, folder: Path) -> tuple[list[float], list[float]]:
    """Rates of two load hosts together and of one alone, each with a tenth of a core, in alternating order."""
    both: list[float] = []
    alone: list[float] = []
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        hosts = []
        for name in ("h0", "h1"):
            group = stack.enter_context(small_host(f"brokerdrill-bench-{os.getpid()}-{name}"))
            load = Load(broker, options, folder / f"{name}.jsonl", name)
            stack.callback(load.end)
            load.halt()
            load.confine(group)
            hosts.append(load)
        for number in range(options.repeats * 2):
            broker.artemis("queue", "purge", "--name", QUEUE)
            for loads, rates in ((hosts, both), (hosts[:1], alone))[:: 1 if number % 2 == 0 else -1]:
                rates.append(sum(pool.map(lambda load: load.rate(options.seconds), loads)))
                for load in loads:
                    load.halt()
            print(
                f"{number + 1:3}/{options.repeats * 2}  two {both[-1]:8.0f}  one {alone[-1]:8.0f} messages/s",
                flush=True,
            )
    return both, alone


def main() -> int:
    """Run the benchmark; the exit status is 1 when a ratio misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=150, help="pairs of slices with and without the ledger")
    parser.add_argument("--slice", type=float, default=1.0, help="seconds of each")
    parser.add_argument("--repeats", type=int, default=4, help="pairs of a worker and artemis perf")
    parser.add_argument("--seconds", type=int, default=8, help="of each of those, after the warm-up")
    parser.add_argument("--warmup", type=int, default=5, help="seconds")
    parser.add_argument("--transaction", type=int, default=10, help="messages")
    parser.add_argument("--bytes", type=int, default=256, help="of each message")
    parser.add_argument("--clients", type=int, default=4, help="producers, each with a connection and a thread")
    parser.add_argument("--no-detection", action="store_true", help="without duplicate detection, as artemis perf")
    parser.add_argument("--jvm-option", action="append", default=[], help="of the worker, e.g. --jvm-option=-Xmx64m")
    parser.add_argument("--spool-dir", type=Path, help="where the ledgers go; default: beside the broker's journal")
    parser.add_argument("--json", type=Path, help="write the result there, too")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("two load hosts are measured in control groups, which only root can make")
    with tempfile.TemporaryDirectory(prefix="brokerdrill-bench-") as name:
        folder = Path(name)
        broker = Broker(unpack(folder), folder / "broker", [QUEUE], anonymous=True, java_args=BROKER_JAVA_ARGS)
        try:
            broker.start()
            spools = Path(tempfile.mkdtemp(dir=options.spool_dir or folder))
            on, off = measure_ledger(broker, options, spools)
            ours, perf = measure_perf(broker, options, spools)
            both, alone = measure_hosts(broker, options, spools)
            shutil.rmtree(spools)
        finally:
            broker.kill()
    measured = (
        ("ledger on / ledger off", (on, off), LEDGER_GOAL),
        ("worker, ledger on / artemis perf producer", (ours, perf), PERF_GOAL),
        ("two load hosts / one", (both, alone), HOSTS_GOAL),
    )
    for name, pair, goal in measured:
        print(f"{name}: {ratio(*pair):.3f} ± {error_of(*pair):.3f} (goal {goal})")
    rate_goal = RATE_GOAL if options.transaction >= RATE_TRANSACTION else 0
    print(
        f"worker, ledger on: {statistics.median(ours):.0f} messages/s" + (f" (goal {rate_goal})" if rate_goal else "")
    )
    if options.json:
        rates = {"ledger on": on, "ledger off": off, "worker": ours, "artemis perf": perf, "two": both, "one": alone}
        result = {name: round(ratio(*pair), 3) for name, pair, _ in measured} | {"rates": rates}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    kept = all(ratio(*pair) >= goal for _, pair, goal in measured) and statistics.median(ours) >= rate_goal
    return 0 if kept else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.cmd[0]} ended with {error.returncode}: {(error.stderr or '').strip()[:500]}")
