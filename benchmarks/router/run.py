"""The session router against HAProxy (Debian's package): same clients, same broker, one run, sides interleaved.

Proxies are pinned to one core, clients and broker to another; all on loopback, in a network namespace of our own, so
that neither the host's firewall nor its settings are measured. Bulk and round trips are the median of the rounds'
ratios; added latency is reckoned from the sides' medians; where the limit is of one side alone, it is that side's own
median. The broker says that it is RabbitMQ, for which it stands. Exit status 1 if a limit of issue 7 is not kept.
Figures of CPU are the scheduler's for the proxy's process (`/proc/PID/schedstat`), kernel work on its behalf included.

The host's congestion control is reno, which paces no more than cubic and can be set for any namespace. Bulk is measured
with bbr too, where the kernel has it: bbr paces what is sent by a timer for each 64 KB, which costs more than all the
rest. Within a host the router does without unless it is told otherwise (`congestion_control`), HAProxy 2.6 can not; so
that it is the bytes' way and not this that is compared, both are measured with bbr, too. The limit is the same.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import peers

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.free_ports import free_port

HERE = Path(__file__).parent
PROXY_CORE, PEER_CORE = 0, 1
RENO, BBR = "reno", "bbr"
# Bytes that all sessions of an echo have under way: more are not the proxy's, but the kernel's memory.
MOST_IN_FLIGHT = 1 << 27
# Where in memory a proxy's sessions come to be is worth some hundredths, so each size is measured with FEW sets of
# connections, and with MANY where the ratio is within NEAR of the limit, on either side of it.
FEW, MANY, NEAR = 4, 12, 0.02
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used, with its threads and children."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                total += round(cpu(int(child)) * 1e9)
    return total / 1e9


def resident(pid: int) -> int:
    """Return the resident bytes of a process and its children."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(resident(int(child)) for child in children)


def wait_for_port(port: int) -> None:
    """Return when something listens."""
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextlib.contextmanager
def started(directory: Path, commands: Sequence[Sequence[str]], ports: Iterable[int]) -> Iterator[list[int]]:
    """Run `commands` until the block's end; yields their process ids when something listens at each of `ports`."""
    processes = []
    out = (directory / "out").open("ab")
    try:
        for words in commands:
            processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out))
        for port in ports:
            wait_for_port(port)
        yield [process.pid for process in processes]
    except BaseException:
        print((directory / "out").read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()


def peer(port: int, cores: str) -> list[str]:
    """Return the command of the broker at `port`."""
    return [sys.executable, str(HERE / "peers.py"), str(port), cores]


def router(config: Path) -> list[str]:
    """Return the router's command."""
    return [str(Path(sys.executable).with_name("amqp-session-router")), "run", "--config", str(config)]


def haproxy(config: Path) -> list[str]:
    """Return HAProxy's command."""
    return ["/usr/sbin/haproxy", "-db", "-f", str(config)]


def pinned(core: int, command: list[str]) -> list[str]:
    """Return `command`, run on one core."""
    return ["taskset", "-c", str(core), *command]


@contextlib.contextmanager
def sides(directory: Path, host: str = RENO, told: str | None = None) -> Iterator[dict[str, tuple[int, int]]]:
    """Start the broker and both proxies; yields name → (port, pid; 0 without a proxy).

    `host` is the host's congestion control, `told` the one that the router is told to use, if any.
    """
    CONGESTION.write_text(host)
    broker, tcp, splice, own = (free_port() for _ in range(4))
    config = (HERE / "haproxy.cfg").read_text().format(tcp=tcp, splice=splice, broker=broker, maxconn=5000)
    (directory / "haproxy.cfg").write_text(config)
    (directory / "router.yaml").write_text(
        json.dumps(
            {
                "listeners": {"plain": {"host": "127.0.0.1", "port": own, "congestion_control": told}},
                "backends": {"broker": {"host": "127.0.0.1", "port": broker, "congestion_control": told}},
                "default": {"backend": "broker"},
                "control": {"socket": str(directory / "control.sock")},
                "log": {"level": "error"},
            }
        )
    )
    commands = [
        peer(broker, str(PEER_CORE)),
        pinned(PROXY_CORE, haproxy(directory / "haproxy.cfg")),
        pinned(PROXY_CORE, router(directory / "router.yaml")),
    ]
    with started(directory, commands, (broker, tcp, splice, own)) as pids:
        os.sched_setaffinity(0, {PEER_CORE})
        yield {
            "direct": (broker, 0),
            "haproxy": (tcp, pids[1]),
            "haproxy-splice": (splice, pids[1]),
            "router": (own, pids[2]),
        }


def certificate(directory: Path) -> Path:
    """Write a certificate of localhost and its key into one file, and return it."""
    key, cert, both = (directory / name for name in ("key.pem", "cert.pem", "both.pem"))
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    words = ("openssl", "req", "-x509", "-nodes", "-days", "2", *curve, *name, "-keyout", str(key), "-out", str(cert))
    subprocess.run(words, check=True, capture_output=True)
    both.write_text(key.read_text() + cert.read_text())
    both.chmod(0o600)
    return both


@contextlib.contextmanager
def tls_sides(directory: Path) -> Iterator[dict[str, tuple[int, int]]]:
    """Start both proxies with TLS on both sides; yields name → (plain port for clients, pid of the proxy).

    The peers are those of the other parts. Before and behind the proxies another HAProxy, on the peers' core, speaks
    TLS for them: a new session for each client's connection, none resumed.
    """
    broker, behind, bound, own, to_haproxy, to_router = (free_port() for _ in range(6))
    both = certificate(directory)
    by_tls = f"ssl verify required ca-file {directory / 'cert.pem'} verifyhost localhost"
    listens = {
        "measured": [(bound, f"ssl crt {both}", behind, by_tls)],
        "ends": [
            (behind, f"ssl crt {both}", broker, ""),
            (to_haproxy, "", bound, f"{by_tls} no-ssl-reuse"),
            (to_router, "", own, f"{by_tls} no-ssl-reuse"),
        ],
    }
    for name, each in listens.items():
        parts = [
            f"listen at{at}\n  bind 127.0.0.1:{port} {how}\n  server next 127.0.0.1:{to} {then}"
            for at, (port, how, to, then) in enumerate(each)
        ]
        config = (HERE / "haproxy_tls.cfg").read_text().format(maxconn=5000, listens="\n".join(parts), name=name)
        (directory / f"{name}.cfg").write_text(config + "\n")
    files = {"cert_file": str(directory / "cert.pem"), "key_file": str(directory / "key.pem"), "minimum": "1.3"}
    (directory / "router.yaml").write_text(
        json.dumps(
            {
                "listeners": {"tls": {"host": "127.0.0.1", "port": own, "tls": files}},
                "backends": {
                    "broker": {
                        "host": "127.0.0.1",
                        "port": behind,
                        "tls": {"ca_file": str(directory / "cert.pem"), "server_name": "localhost", "minimum": "1.3"},
                    }
                },
                "default": {"backend": "broker"},
                "control": {"socket": str(directory / "control.sock")},
                "log": {"level": "error"},
            }
        )
    )
    commands = [
        peer(broker, str(PEER_CORE)),
        pinned(PEER_CORE, haproxy(directory / "ends.cfg")),
        pinned(PROXY_CORE, haproxy(directory / "measured.cfg")),
        pinned(PROXY_CORE, router(directory / "router.yaml")),
    ]
    with started(directory, commands, (broker, behind, bound, own, to_haproxy, to_router)) as pids:
        os.sched_setaffinity(0, {PEER_CORE})
        yield {"haproxy": (to_haproxy, pids[2]), "router": (to_router, pids[3])}


def used(pid: int, work: Callable[[], object]) -> float:
    """Return the CPU seconds of `pid` for `work`."""
    before = cpu(pid)
    work()
    return cpu(pid) - before


class Report:
    """Prints lines and keeps whether all limits held."""

    def __init__(self) -> None:
        self.kept = True
        self.rows: list[dict[str, object]] = []

    def line(self, what: str, value: float, limit: str, good: bool, detail: str) -> None:
        """Take down one result."""
        self.kept &= good
        self.rows.append({"what": what, "value": value, "limit": limit, "kept": good, "detail": detail})
        print(f"{'ok  ' if good else 'MISS'} {what}: {value:.3g} (limit {limit}); {detail}", flush=True)


def medians(found: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each side."""
    return {name: statistics.median(values) for name, values in found.items()}


def ratio(found: dict[str, list[float]], one: str, other: str) -> float:
    """Return the median of the rounds' ratios: what changes from round to round meets both sides of one."""
    return statistics.median(a / b for a, b in zip(found[one], found[other], strict=True))


def show(values: dict[str, float], unit: str) -> str:
    """Return the sides' values as text."""
    return ", ".join(f"{name} {value:.4g} {unit}" for name, value in values.items())


def bulk(on: dict[str, tuple[int, int]], report: Report, rounds: int, total: int, what: str = "") -> None:
    """Bytes a CPU-second, against HAProxy with splice; `what` says what was different from the default."""
    for size, name in ((1_000_000, "1 MB"), (100, "100 B")):
        found: dict[str, list[float]] = {"haproxy-splice": [], "router": []}
        for _ in range(rounds):
            for side, rates in found.items():
                port, pid = on[side]
                seconds = used(pid, lambda port=port, size=size: peers.bulk(port, size, total))  # type: ignore[misc]
                rates.append(total / seconds / 1e6)
        value = ratio(found, "router", "haproxy-splice")
        title = f"bulk{what}, {name} messages, router / HAProxy splice"
        detail = show(medians(found), "MB/CPU-s")
        report.line(title, value, "≥ 1.2", value >= 1.2, detail)


def round_trip(on: dict[str, tuple[int, int]], report: Report, rounds: int, count: int) -> None:
    """CPU of a round trip with 200 bytes, against HAProxy."""
    found: dict[str, list[float]] = {"haproxy": [], "router": []}
    for _ in range(rounds):
        for side, times in found.items():
            port, pid = on[side]
            times.append(used(pid, lambda port=port: peers.round_trips(port, count, 122)) / count * 1e6)  # type: ignore[misc]
    value = ratio(found, "router", "haproxy")
    report.line("CPU of a 200 B round trip, router / HAProxy", value, "≤ 1.0", value <= 1.0, show(medians(found), "µs"))


@contextlib.contextmanager
def echoing(
    on: dict[str, tuple[int, int]], sides: Iterable[str], sessions: int
) -> Iterator[dict[str, list[socket.socket]]]:
    """Give so many sessions through each of the sides, until the caller is done with them."""
    opened = {side: peers.many(on[side][0], sessions) for side in sides}
    try:
        yield opened
    finally:
        for sock in itertools.chain.from_iterable(opened.values()):
            sock.close()


def echoes(
    on: dict[str, tuple[int, int]],
    opened: dict[str, list[socket.socket]],
    found: dict[str, list[float]],
    rounds: int,
    count: int,
    body: int,
) -> float:
    """Add to `found` what a message takes (µs of CPU) in each of `rounds`; return the ratio of all rounds."""
    for _ in range(rounds):
        for side, socks in opened.items():
            seconds = used(on[side][1], lambda s=socks: peers.echoed(s, count, body))  # type: ignore[misc]
            found[side].append(seconds / count * 1e6)
    return max(ratio(found, "router", side) for side in ("haproxy", "haproxy-splice"))


def sizes(on: dict[str, tuple[int, int]], report: Report, rounds: int) -> None:
    """CPU of an echoed message from 100 B to 1 MB at 1 to 2 000 sessions, against the better of HAProxy's two ways."""
    ways = ("haproxy", "haproxy-splice", "router")
    for sessions in (1, 20, 100, 500, 2000):
        bodies = (100, 1_000, 4_000, 16_000, 64_000, 100_000, 250_000, 1_000_000)
        counts = {
            body: max(2 * sessions, min(8_000, 200_000_000 // body))
            for body in bodies
            if sessions * body <= MOST_IN_FLIGHT
        }
        found: dict[int, dict[str, list[float]]] = {body: {side: [] for side in ways} for body in counts}
        with echoing(on, ways, sessions) as opened:
            values = {body: echoes(on, opened, found[body], rounds, count, body) for body, count in counts.items()}
        for body, count in counts.items():
            sets = 1
            while sets < (MANY if abs(values[body] - 1) < NEAR else FEW):
                with echoing(on, ways, sessions) as own:
                    values[body] = echoes(on, own, found[body], rounds, count, body)
                sets += 1
            what = f"CPU of an echoed message of {body:,} B at {sessions:,} sessions, router / the better HAProxy"
            detail = f"{show(medians(found[body]), 'µs')}, {sets} sets of connections"
            report.line(what, values[body], "≤ 1.0", values[body] <= 1.0, detail)


def connect(on: dict[str, tuple[int, int]], report: Report, rounds: int, count: int) -> None:
    """CPU of a connection, from accept to its end."""
    found: dict[str, list[float]] = {"haproxy": [], "router": []}
    for _ in range(rounds):
        for side, times in found.items():
            port, pid = on[side]
            times.append(used(pid, lambda port=port: peers.connections(port, count)) / count * 1e3)  # type: ignore[misc]
    value = ratio(found, "router", "haproxy")
    report.line("CPU of a connection, router / HAProxy", value, "≤ 1.5", value <= 1.5, show(medians(found), "ms"))


def latency(on: dict[str, tuple[int, int]], report: Report, rounds: int, seconds: float) -> None:
    """Latency that a proxy adds at the 99th percentile, at a fixed rate."""
    for sessions, rate in ((1, 500.0), (100, 1000.0), (2000, 1000.0)):
        found: dict[str, list[float]] = {"direct": [], "haproxy": [], "router": []}
        with echoing(on, found, sessions) as opened:
            for _ in range(rounds):
                for side, tails in found.items():
                    times = sorted(peers.paced(opened[side], rate, seconds, 122))
                    tails.append(times[int(len(times) * 0.99)] * 1e6)
        middle = medians(found)
        added = {side: middle[side] - middle["direct"] for side in ("haproxy", "router")}
        ratio = added["router"] / max(added["haproxy"], 1.0)
        report.line(
            f"added latency p99 at {sessions} sessions, router / HAProxy",
            ratio,
            "≤ 1.5",
            ratio <= 1.5,
            show(middle, "µs"),
        )


def idle(on: dict[str, tuple[int, int]], report: Report, count: int) -> None:
    """Memory of idle sessions."""
    port, pid = on["router"]
    before = resident(pid)
    socks = peers.many(port, count)
    after = resident(pid)
    for sock in socks:
        sock.close()
    each = (after - before) / count
    # A session takes two descriptors: where fewer than 10 000 fit under the user's limit, the rest is reckoned.
    value = (after + each * (10_000 - count)) / 1e6
    detail = f"{count} sessions: {after / 1e6:.1f} MB, {each / 1e3:.2f} kB each"
    report.line("memory with 10 000 idle sessions, MB", value, "≤ 400", value <= 400, detail)


class Talk:
    """Sessions that talk all the time; knows the longest silence of each."""

    def __init__(self, port: int, count: int) -> None:
        self.message = peers.message(122)
        self.socks = {sock.fileno(): sock for sock in peers.many(port, count)}
        self.left = dict.fromkeys(self.socks, 0)
        self.since = dict.fromkeys(self.socks, 0.0)
        self.worst = 0.0
        self.lost = 0
        self.poll = select.epoll()
        for number in self.socks:
            self.poll.register(number, select.EPOLLIN)

    def run(self, rate: float, until: Callable[[], bool]) -> None:
        """Send `rate` messages a second, to each session in turn, and take in the echoes, until `until` says so."""
        begin, sent = time.perf_counter(), 0
        turn = itertools.cycle([*self.socks])
        while not until():
            while sent / rate <= time.perf_counter() - begin:
                number = next(turn)
                sent += 1
                if number in self.socks and not self.left[number]:
                    self.socks[number].send(self.message)
                    self.left[number], self.since[number] = len(self.message), time.perf_counter()
            for number, _ in self.poll.poll(0.001):
                try:
                    got = len(self.socks[number].recv(65536))
                except OSError:
                    got = 0
                if not got:
                    self.lost += 1
                    self.poll.unregister(number)
                    self.socks.pop(number).close()
                    continue
                self.left[number] -= got
                if not self.left[number]:
                    self.worst = max(self.worst, time.perf_counter() - self.since[number])

    def close(self) -> None:
        """End all."""
        for sock in self.socks.values():
            sock.close()


def for_seconds(seconds: float) -> Callable[[], bool]:
    """Return whether so much time is over since now."""
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() > end


def survive(
    on: dict[str, tuple[int, int]], report: Report, name: str, act: Callable[[int], None], limit: float
) -> None:
    """Sessions lost, and the longest that an echo took, over one planned restart or one SIGKILL."""
    port, pid = on["router"]
    talk = Talk(port, 1000)
    talk.run(3000, for_seconds(2))
    before, talk.worst = talk.worst, 0.0
    act(pid)
    talk.run(3000, for_seconds(8))
    end = time.perf_counter() + 20
    talk.run(0.001, lambda: not any(talk.left[number] for number in talk.socks) or time.perf_counter() > end)
    lost = talk.lost + sum(1 for number in talk.socks if talk.left[number])
    detail = f"1000 sessions, 3000 messages/s; worst before {before * 1e3:.1f} ms"
    report.line(f"{name}: sessions lost", lost, "0", lost == 0, detail)
    report.line(f"{name}: worst stall, s", talk.worst, f"≤ {limit:g}", talk.worst <= limit, detail)
    talk.close()


@contextlib.contextmanager
def routers(directory: Path) -> Iterator[dict[str, tuple[int, int]]]:
    """Start two brokers, and a router of one worker and one of two, on all cores; yields name → (port, pid)."""
    brokers, ports = (free_port(), free_port()), {"one": free_port(), "two": free_port()}
    words = [peer(port, "0-1") for port in brokers]
    for workers, (name, port) in enumerate(ports.items(), 1):
        config = {
            "workers": workers,
            "listeners": {"plain": {"host": "127.0.0.1", "port": port}},
            "backends": {f"broker{at}": {"host": "127.0.0.1", "port": port} for at, port in enumerate(brokers)},
            "farms": {"all": {"members": ["broker0", "broker1"]}},
            "default": {"farm": "all"},
            "control": {"socket": str(directory / f"{name}.sock")},
            "log": {"level": "error"},
        }
        (directory / f"{name}.yaml").write_text(json.dumps(config))
        words.append(router(directory / f"{name}.yaml"))
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with started(directory, words, (*brokers, *ports.values())) as pids:
        yield {name: (port, pid) for (name, port), pid in zip(ports.items(), pids[2:], strict=True)}


def tls(on: dict[str, tuple[int, int]], report: Report, rounds: int, total: int, count: int) -> None:
    """Bytes a CPU-second and new sessions a CPU-second with TLS on both sides, against HAProxy."""
    for size, name in ((1_000_000, "1 MB"), (100, "100 B")):
        found: dict[str, list[float]] = {side: [] for side in on}
        for _ in range(rounds):
            for side, (port, pid) in on.items():
                seconds = used(pid, lambda port=port, size=size: peers.bulk(port, size, total))  # type: ignore[misc]
                found[side].append(total / seconds / 1e6)
        value = ratio(found, "router", "haproxy")
        what = f"bulk with TLS on both sides, {name} messages, router / HAProxy"
        report.line(what, value, "≥ 0.9", value >= 0.9, show(medians(found), "MB/CPU-s"))
    found = {side: [] for side in on}
    for _ in range(rounds):
        for side, (port, pid) in on.items():
            found[side].append(count / used(pid, lambda port=port: peers.connections(port, count)))  # type: ignore[misc]
    value = ratio(found, "router", "haproxy")
    what = "new sessions with TLS on both sides, router / HAProxy"
    report.line(what, value, "≥ 0.5", value >= 0.5, show(medians(found), "a CPU-s"))


def at_once(count: int, work: Callable[..., object], *arguments: object) -> float:
    """Return the seconds that so many processes take for `work`, each."""
    begin = time.perf_counter()
    processes = [multiprocessing.Process(target=work, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError("a client failed")
    return time.perf_counter() - begin


def workers(on: dict[str, tuple[int, int]], report: Report, rounds: int) -> None:
    """Two workers against one, clients and brokers on the same cores: CPU of what is done, and how much in a second."""
    for what, work, arguments, amount in (
        ("bulk, 1 MB messages", peers.bulk, (1_000_000, 1 << 28), 8 << 28),
        ("bulk, 100 B messages", peers.bulk, (100, 1 << 28), 8 << 28),
        ("200 B round trips", peers.round_trips, (3000, 122), 8 * 3000),
        ("connections", peers.connections, (200,), 8 * 200),
    ):
        costs: dict[str, list[float]] = {"one": [], "two": []}
        rates: dict[str, list[float]] = {"one": [], "two": []}
        for _ in range(rounds):
            for side, (port, pid) in on.items():
                before = cpu(pid)
                rates[side].append(amount / at_once(8, work, port, *arguments))
                costs[side].append((cpu(pid) - before) / amount * 1e9)
        value = ratio(costs, "two", "one")
        report.line(
            f"CPU with two workers / one, {what}", value, "≤ 1.1", value <= 1.1, show(medians(costs), "ns each")
        )
        value = ratio(rates, "two", "one")
        # How much room the peers leave is the machine's: on two cores they take most.
        report.line(f"rate with two workers / one, {what}", value, "none", True, show(medians(rates), "a second"))


@contextlib.contextmanager
def watched(directory: Path) -> Iterator[tuple[int, str]]:
    """Start a broker and a router whose status page is served; yields its port and the page's URL."""
    broker, port, status = free_port(), free_port(), free_port()
    config = {
        "listeners": {"plain": {"host": "127.0.0.1", "port": port}},
        "backends": {"broker": {"host": "127.0.0.1", "port": broker}},
        "farms": {"all": {"members": ["broker"]}},
        "default": {"farm": "all"},
        "control": {"socket": str(directory / "control.sock")},
        "status": {"host": "127.0.0.1", "port": status},
        "log": {"level": "error"},
    }
    (directory / "router.yaml").write_text(json.dumps(config))
    words = [peer(broker, str(PEER_CORE)), pinned(PROXY_CORE, router(directory / "router.yaml"))]
    with started(directory, words, (broker, port, status)):
        yield port, f"http://127.0.0.1:{status}/metrics"


# A process of its own: what it does must not delay who takes the sessions' times.
SCRAPER = """
import json, sys, time, urllib.request
for _ in range(int(sys.argv[2])):
    begin = time.perf_counter()
    size = len(urllib.request.urlopen(sys.argv[1]).read())
    print(json.dumps([time.perf_counter() - begin, size]), flush=True)
    time.sleep(0.3)
"""


def scrape(port: int, url: str, report: Report, count: int, vhosts: int, scrapes: int) -> None:
    """How long a scrape of many sessions and vhosts holds up those that talk meanwhile."""
    talk = Talk(port, count // 10)
    socks = [peers.dial(port, f"vhost{number % vhosts}") for number in range(count - len(talk.socks))]
    talk.run(1000, for_seconds(5))
    before, talk.worst = talk.worst, 0.0
    scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, url, str(scrapes)], stdout=subprocess.PIPE, text=True)
    talk.run(1000, lambda: scraper.poll() is not None)
    assert scraper.stdout is not None
    found = [json.loads(line) for line in scraper.stdout]
    worst = talk.worst
    talk.close()
    for sock in socks:
        sock.close()
    middle = statistics.median(one for one, _ in found)
    detail = (
        f"{len(found)} scrapes of {found[-1][1] / 1e6:.1f} MB, {middle:.2f} s each; "
        f"worst without one {before * 1e3:.1f} ms"
    )
    name = f"longest stall by a scrape at {count} sessions and {vhosts} vhosts, ms"
    report.line(name, worst * 1e3, "≤ 20", worst <= 0.020 and talk.lost == 0, detail)


def worker(pid: int) -> int:
    """Return the router's own process, the newest child of its supervisor."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[-1])


def alone(words: list[str]) -> None:
    """Go on in a network namespace of our own, as this user; does not return."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    try:
        os.execvp("unshare", ["unshare", "--net", *as_root, sys.executable, str(HERE / "run.py"), *words, "--alone"])
    except FileNotFoundError:
        sys.exit("unshare is missing, which makes the network namespace; Debian's package is util-linux")


PARTS = ("bulk", "roundtrip", "sizes", "connect", "latency", "idle", "restart", "kill", "tls", "workers", "scrape")


def main() -> int:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; without: all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the results here")
    arguments = parser.parse_args()
    parts = arguments.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if not arguments.alone:
        alone(sys.argv[1:])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    descriptors = peers.most_descriptors()
    report = Report()
    rounds = arguments.rounds
    beside = contextlib.ExitStack()
    with beside:
        if set(parts) - {"tls", "workers", "scrape"}:
            directory = beside.enter_context(tempfile.TemporaryDirectory(prefix="router-benchmark-"))
            on = beside.enter_context(sides(Path(directory)))
        # Rounds of what is short are more: a busy neighbour on this machine's host slows some seconds by a third.
        for name, part in {
            "bulk": lambda: bulk(on, report, rounds, 1 << 31),
            "roundtrip": lambda: round_trip(on, report, 3 * rounds, 5000),
            "sizes": lambda: sizes(on, report, rounds),
            "connect": lambda: connect(on, report, 3 * rounds, 1000),
            "latency": lambda: latency(on, report, rounds, 3.0),
            "idle": lambda: idle(on, report, min(10_000, (descriptors - 200) // 2)),
            "restart": lambda: survive(on, report, "planned restart", lambda pid: os.kill(pid, signal.SIGUSR2), 0.1),
            "kill": lambda: survive(on, report, "SIGKILL", lambda pid: os.kill(worker(pid), signal.SIGKILL), 3.0),
        }.items():
            if name in parts:
                part()
    if "bulk" in parts and BBR in CONGESTION.with_name("tcp_available_congestion_control").read_text().split():
        for told, what in ((None, " on a host with bbr"), (BBR, " on a host with bbr, told bbr")):
            temporary = tempfile.TemporaryDirectory(prefix="router-benchmark-")
            with temporary as directory, sides(Path(directory), BBR, told) as on:
                bulk(on, report, rounds, 1 << 31, what)
    if "tls" in parts:
        with tempfile.TemporaryDirectory(prefix="router-benchmark-") as directory, tls_sides(Path(directory)) as on:
            tls(on, report, rounds, 1 << 29, 300)
    if "workers" in parts:
        with tempfile.TemporaryDirectory(prefix="router-benchmark-") as directory, routers(Path(directory)) as on:
            workers(on, report, rounds)
    if "scrape" in parts:
        with (
            tempfile.TemporaryDirectory(prefix="router-benchmark-") as directory,
            watched(Path(directory)) as (at, url),
        ):
            for count, vhosts in ((100, 16), (1000, 1000), (min(10_000, (descriptors - 200) // 2), 4096)):
                scrape(at, url, report, count, vhosts, rounds)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report.rows, indent=1))
    return 0 if report.kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
