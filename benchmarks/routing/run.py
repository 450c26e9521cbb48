"""Artemis' connection routers: what a connect by one costs, how soon a key leaves a target that was killed, and which
keys move when the pool changes.

    python benchmarks/routing/run.py [--connects N] [--kills N] [--periods MS ...] [--keys N] [--pools N]

On loopback, with one router and two or three targets of its own; every connection is TLS. Each figure is a ratio within
one run: connects by the router and without it take turns; a re-route is set against the pool's check period; what moves
is a part of all keys.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import jpype

from brokerdrill.base import java
from brokerdrill.workload.asking import target_of
from brokerdrill.workload.client import Aim, ClientError
from brokerdrill.workload.config import WorkerConfig
from brokerdrill.workload.core_jms import CoreJms

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.workload.routed_brokers import Routed, make_certificate
from tests.workload.standalone_broker import QUEUES, Broker, unpack

ROUTER = "SNI_HOST"
HASH = "hashed"
ROUTERS = {
    ROUTER: "<key-type>SNI_HOST</key-type><cache/><policy name='ROUND_ROBIN'/>{static}",
    HASH: "<key-type>SNI_HOST</key-type><policy name='CONSISTENT_HASH'/>{static}",
}
CONNECT_GOAL = 1.5
# What a re-route may take beyond the check period.
REROUTE_GOAL_S = 1.0
WARM = 30
IDLE_S = 10.0
REROUTE_DEADLINE_S = 60.0


def connect(config: WorkerConfig, key: str | None) -> tuple[float, str]:
    """Connect once, by the router where there is a key; return the seconds and whom it reached. Raises ClientError."""
    client = CoreJms(config, "bench")
    if key is not None:
        client.aim(config.routers[0], key)
    begin = time.perf_counter()
    client.open(QUEUES[:1], [], transacted=False)
    took = time.perf_counter() - begin
    reached = client.served_by()
    client.close()
    assert reached is not None
    return took, reached.instance


@contextmanager
def brokers(
    home: Path,
    folder: Path,
    certificate: tuple[Path, Path],
    check_period_ms: int,
    targets: Sequence[str] = ("t1", "t2"),
) -> Iterator[Routed]:
    folder.mkdir()
    # While a target is away the other one is enough.
    made = Routed(
        home, folder, ROUTERS, targets=targets, certificate=certificate, check_period_ms=check_period_ms, quorum=1
    )
    try:
        made.start()
        yield made
    finally:
        made.kill()


def measure_connects(config: WorkerConfig, count: int) -> None:
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(WARM + count):
        for led in (False, True) if number % 2 else (True, False):
            seconds, _ = connect(config, f"key-{number % 50}" if led else None)
            if number >= WARM:
                took[led].append(seconds)
    ratios = [led / direct for led, direct in zip(took[True], took[False], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"connect: by the router {statistics.median(took[True]) * 1e3:.1f} ms, direct "
        f"{statistics.median(took[False]) * 1e3:.1f} ms; ratio {middle:.2f} (quartiles {low:.2f}, {high:.2f}; "
        f"{count} pairs; goal {CONNECT_GOAL})"
    )


def cpu_s(broker: Broker) -> float:
    """Processor seconds of the broker's process so far."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_cost(routed: Routed) -> float:
    """The part of a core that a target spends on the router's checks while nobody connects."""
    before = sum(cpu_s(one) for one in routed.targets.values())
    time.sleep(IDLE_S)
    return (sum(cpu_s(one) for one in routed.targets.values()) - before) / IDLE_S / len(routed.targets)


def reroute_s(routed: Routed, config: WorkerConfig) -> float:
    """Kill the target that a key is at; return how many seconds it takes until the key is at the other one."""
    _, first = connect(config, "killed")
    begin = time.perf_counter()
    routed.targets[first].kill()
    while True:
        try:
            _, reached = connect(config, "killed")
        except ClientError:
            if time.perf_counter() - begin > REROUTE_DEADLINE_S:
                raise
            continue
        assert reached != first
        return time.perf_counter() - begin


def places(routed: Routed, pooled: Sequence[str], keys: int) -> Mapping[str, str]:
    """Put `pooled` into the pool and return where each key then belongs, once all of them are ready."""
    routed.repool(pooled)
    config = routed.config(HASH)
    aim, by_turns = Aim(config.routers[0], ""), Aim(routed.endpoint(ROUTER), "")
    end = time.perf_counter() + REROUTE_DEADLINE_S
    for tried in itertools.count():
        try:
            # Who is ready one after the other would be found to have moved its keys.
            turns = {target_of(config, by_turns, f"{tried}-{n}").instance for n in range(2 * len(pooled))}
            if turns == set(pooled):
                return {f"key-{n}": target_of(config, aim, f"key-{n}").instance for n in range(keys)}
        except ClientError:
            pass
        if time.perf_counter() > end:
            break
    raise TimeoutError(f"not all of {', '.join(pooled)} are ready")


def measure_hash(routed: Routed, keys: int) -> None:
    """Print how CONSISTENT_HASH spreads the keys, and which of them move as the third target comes and goes."""
    two, three, again = (places(routed, pooled, keys) for pooled in (("t1", "t2"), ("t1", "t2", "t3"), ("t1", "t2")))
    moved = Counter((two[key], three[key]) for key in two if two[key] != three[key])
    spread = ", ".join(f"{count / keys:.0%}" for _, count in Counter(three.values()).most_common())
    ways = ", ".join(f"{count / keys:.0%} {a} to {b}" for (a, b), count in moved.most_common()) or "none"
    print(
        f"hash: {keys} keys on three targets {spread}; moved when the third came: {ways} "
        f"(of an even spread {1 / 6:.0%} from each); "
        f"when it left again: {sum(two[key] != again[key] for key in two)} keys are not where they were before"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connects", type=int, default=200, help="pairs of connects")
    parser.add_argument("--kills", type=int, default=3, help="of a target, for each check period")
    parser.add_argument("--periods", type=int, nargs="+", default=[250, 1000, 2000, 5000], help="check periods in ms")
    parser.add_argument("--keys", type=int, default=500, help="for the hash")
    parser.add_argument("--pools", type=int, default=3, help="sets of brokers for the hash, which depends on their ids")
    options = parser.parse_args()
    os.environ["JAVA_HOME"] = str(java.home())
    with tempfile.TemporaryDirectory() as folder:
        home = unpack(Path(folder) / "home")
        certificate = make_certificate(Path(folder))
        for period_ms in options.periods:
            waits, cost = [], 0.0
            # Brokers of its own for each kill: a target that was killed may never be ready again (FINDINGS.md).
            for number in range(options.kills):
                with brokers(home, Path(folder) / f"{period_ms}-{number}", certificate, period_ms) as routed:
                    config = routed.config(ROUTER)
                    if not jpype.isJVMStarted():
                        CoreJms.start_process(config)
                        measure_connects(config, options.connects)
                    cost = cost or idle_cost(routed)
                    waits.append(reroute_s(routed, config))
            told = ", ".join(f"{one:.2f}" for one in waits)
            print(
                f"check period {period_ms} ms: re-routed after {told} s; worst: check period + "
                f"{max(waits) - period_ms / 1e3:.2f} s (goal {REROUTE_GOAL_S:g}); the checks cost a target "
                f"{cost * 100:.1f} % of a core"
            )
        for number in range(options.pools):
            folder_path = Path(folder) / f"hash-{number}"
            with brokers(home, folder_path, certificate, 200, ("t1", "t2", "t3")) as routed:
                measure_hash(routed, options.keys)


if __name__ == "__main__":
    main()
