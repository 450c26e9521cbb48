"""Artemis' connection routers: what a connect by one costs, how soon a key leaves a target that was killed, and which
keys move when the pool changes.

    python benchmarks/routing/run.py [--connects N] [--kills N] [--periods MS ...] [--keys N] [--pools N]

On loopback, with one router and two or three targets of its own; connections are TLS but where said otherwise. Each
figure is a ratio within one run: connects by the router's redirect, to whom its management named, and without it take
turns; a re-route is set against the pool's check period; what moves is a part of all keys.
"""

from __future__ import annotations

import argparse
import dataclasses
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

from tests.workload.certificate import make_certificate
from tests.workload.routed_brokers import Routed
from tests.workload.standalone_broker import QUEUES, Broker, unpack

ROUTER = "SNI_HOST"
HASH = "hashed"
ROUTERS = {
    ROUTER: "<key-type>SNI_HOST</key-type><cache/><policy name='ROUND_ROBIN'/>{static}",
    HASH: "<key-type>SNI_HOST</key-type><policy name='CONSISTENT_HASH'/>{static}",
}
# How a connect finds its broker: it knows it, the router redirects it, or it asks the router's management whom to dial.
WAYS = ("direct", "redirected", "asked")
CONNECT_GOAL = 1.5
# What a re-route may take beyond the check period.
REROUTE_GOAL_S = 1.0
# Registered so, the client's library keeps a TLS context for all its connections instead of making one for each.
TLS_SERVICE = "org.apache.activemq.artemis.spi.core.remoting.ssl.SSLContextFactory"
TLS_KEPT = "org.apache.activemq.artemis.core.remoting.impl.ssl.CachingSSLContextFactory"
WARM = 30
IDLE_S = 10.0
REROUTE_DEADLINE_S = 60.0


def connect(config: WorkerConfig, key: str, way: str = "redirected") -> tuple[float, str]:
    """Connect once as that key; return the seconds and whom it reached. Raises ClientError."""
    begin = time.perf_counter()
    if way == "asked":
        config = dataclasses.replace(config, endpoints=(target_of(config, Aim(config.routers[0], key), key),))
    client = CoreJms(config, "bench")
    if way == "redirected":
        client.aim(config.routers[0], key)
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
    *,
    secure: bool = True,
) -> Iterator[Routed]:
    folder.mkdir()
    # While a target is away the other one is enough.
    made = Routed(
        home,
        folder,
        ROUTERS,
        targets=targets,
        certificate=certificate,
        check_period_ms=check_period_ms,
        quorum=1,
        secure=secure,
    )
    try:
        made.start()
        yield made
    finally:
        made.kill()


def measure_connects(config: WorkerConfig, count: int, title: str) -> None:
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(WARM + count):
        for way in WAYS if number % 2 else reversed(WAYS):
            seconds, _ = connect(config, f"key-{number % 50}", way)
            if number >= WARM:
                took[way].append(seconds)
    direct = took.pop("direct")
    print(f"connect, {title}: direct {statistics.median(direct) * 1e3:.1f} ms ({count} rounds; goal {CONNECT_GOAL})")
    for way, times in took.items():
        ratios = [led / own for led, own in zip(times, direct, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"  {way} {statistics.median(times) * 1e3:.1f} ms; ratio {middle:.2f} (quartiles {low:.2f}, {high:.2f})",
            flush=True,
        )


def keeping_tls_context(config: WorkerConfig, folder: Path) -> WorkerConfig:
    """Return the configuration of clients whose library keeps its TLS context."""
    service = folder / "META-INF" / "services" / TLS_SERVICE
    service.parent.mkdir(parents=True)
    service.write_text(f"{TLS_KEPT}\n")
    return dataclasses.replace(config, jvm_options=(f"-Xbootclasspath/a:{folder}",))


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
    parser.add_argument("--connects", type=int, default=200, help="of each way, in turn")
    parser.add_argument("--keep-tls-context", action="store_true", help="one for all connections of the client")
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
                        keeps = options.keep_tls_context
                        CoreJms.start_process(keeping_tls_context(config, Path(folder) / "kept") if keeps else config)
                        kept = "one context for all connections" if keeps else "a context for each connection"
                        measure_connects(config, options.connects, f"TLS, {kept}")
                    cost = cost or idle_cost(routed)
                    waits.append(reroute_s(routed, config))
            told = ", ".join(f"{one:.2f}" for one in waits)
            print(
                f"check period {period_ms} ms: re-routed after {told} s; worst: check period + "
                f"{max(waits) - period_ms / 1e3:.2f} s (goal {REROUTE_GOAL_S:g}); the checks cost a target "
                f"{cost * 100:.1f} % of a core"
            )
        with brokers(home, Path(folder) / "plain", certificate, 1000, secure=False) as routed:
            measure_connects(routed.config(ROUTER), options.connects, "no TLS")
        for number in range(options.pools):
            folder_path = Path(folder) / f"hash-{number}"
            with brokers(home, folder_path, certificate, 200, ("t1", "t2", "t3")) as routed:
                measure_hash(routed, options.keys)


if __name__ == "__main__":
    main()
