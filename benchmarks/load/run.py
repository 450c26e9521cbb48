"""The load's sends a second: with the ledger over without it, and over the broker's own `artemis perf producer`.

    python benchmarks/load/run.py [--repeats N] [--seconds S] [--transaction N] [--bytes N] [--clients N]

All on one standalone broker on loopback that the benchmark starts and stops; see README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from brokerdrill import java
from brokerdrill.workload.config import ClientSpec, Credentials, Endpoint, WorkerConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.workload.standalone_broker import USER, Broker, unpack
from tests.workload.worker_process import WorkerProcess

QUEUE = "bench.q0"
LEDGER_GOAL = 0.95
PERF_GOAL = 0.6
# A queue that pages would measure the disk, so the broker has room for all that one measurement sends.
BROKER_JAVA_ARGS = "-Xms1g -Xmx2g -XX:+UseSerialGC -XX:-UsePerfData -Dlog4j2.disableJmx=true"


def worker_rate(broker: Broker, options: argparse.Namespace, spool: Path | None, name: str) -> float:
    """Acknowledged messages a second of one worker process, after its warm-up."""
    config = WorkerConfig(
        run_id=f"bench-{os.getpid()}-{name}",
        worker=name,
        clock=name,
        client="core",
        endpoints=(Endpoint("127.0.0.1", broker.port, "a1", "h1"),),
        credentials=Credentials(USER, broker.password),
        addresses=(QUEUE,),
        producers=tuple(ClientSpec(f"producer-{n}", (QUEUE,)) for n in range(options.clients)),
        transaction=options.transaction,
        payload_bytes=(options.bytes,),
        duplicate_detection=not options.no_detection,
        jars=str(broker.home / "lib"),
        spool=str(spool) if spool else None,
        jvm_options=tuple(options.jvm_option),
    )
    worker = WorkerProcess(config.to_json(), env={"JAVA_HOME": str(java.home())})
    try:
        worker.begin()
        first = worker.until_status(lambda status: status["clock_ns"] > options.warmup * 1e9)
        end_ns = first["clock_ns"] + options.seconds * 1e9
        last = worker.until_status(lambda status: status["clock_ns"] >= end_ns)
        worker.tell("stop_producers")
        worker.until("producers_stopped")
        worker.finish()
    finally:
        worker.kill()
        if spool:
            spool.unlink(missing_ok=True)
    return (last["sent_ok"] - first["sent_ok"]) / (last["clock_ns"] - first["clock_ns"]) * 1e9


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


def paired_ratio(above: list[float], below: list[float]) -> float:
    """The median of the ratios of neighbours in time: what slows the machine for a while slows both."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def measure(broker: Broker, options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Take all measurements, in turn and in alternating order; print each."""
    rates: dict[str, list[float]] = {"ledger on": [], "ledger off": [], "artemis perf": []}
    for number in range(options.repeats):
        order = list(rates) if number % 2 == 0 else list(rates)[::-1]
        for kind in order:
            if kind == "artemis perf":
                rate = perf_rate(broker, options)
            else:
                spool = folder / f"{number}.jsonl" if kind == "ledger on" else None
                rate = worker_rate(broker, options, spool, f"w{number}-{kind.replace(' ', '-')}")
            broker.artemis("queue", "purge", "--name", QUEUE)
            rates[kind].append(rate)
            print(f"{number + 1}/{options.repeats}  {kind:<12}  {rate:8.0f} messages/s", flush=True)
    return {
        "rates": {kind: [round(rate) for rate in values] for kind, values in rates.items()},
        "ledger_on_over_off": round(paired_ratio(rates["ledger on"], rates["ledger off"]), 3),
        "worker_over_perf": round(paired_ratio(rates["ledger on"], rates["artemis perf"]), 3),
    }


def main() -> int:
    """Run the benchmark; the exit status is 1 when a ratio misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8, help="of each measurement, after the warm-up")
    parser.add_argument("--warmup", type=int, default=5, help="seconds")
    parser.add_argument("--transaction", type=int, default=10, help="messages")
    parser.add_argument("--bytes", type=int, default=256, help="of each message")
    parser.add_argument("--clients", type=int, default=4, help="producers, each with a connection and a thread")
    parser.add_argument("--no-detection", action="store_true", help="without duplicate detection, as artemis perf")
    parser.add_argument("--jvm-option", action="append", default=[], help="of the worker, e.g. --jvm-option=-Xmx64m")
    parser.add_argument("--json", type=Path, help="write the result there, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="brokerdrill-bench-") as name:
        folder = Path(name)
        broker = Broker(unpack(folder), folder / "broker", [QUEUE], anonymous=True, java_args=BROKER_JAVA_ARGS)
        try:
            broker.start()
            result = measure(broker, options, folder)
        finally:
            broker.kill()
    print(f"ledger on / ledger off: {result['ledger_on_over_off']} (goal {LEDGER_GOAL})")
    print(f"worker, ledger on / artemis perf producer: {result['worker_over_perf']} (goal {PERF_GOAL})")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    met = (
        float(str(result["ledger_on_over_off"])) >= LEDGER_GOAL and float(str(result["worker_over_perf"])) >= PERF_GOAL
    )
    return 0 if met else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.cmd[0]} ended with {error.returncode}: {(error.stderr or '').strip()[:500]}")
