"""The selectors' contract, read from the router's own log: ten thousand attempts at brokers that come and go."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from router_support import Router, accepts, config_of, router_of, wait_for
from tests.free_ports import free_port

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "router"))

import peers

ATTEMPTS = 10_000
CLIENTS = 8
# Three partitions of two: what is here and local comes first, then what is here, then what is there.
PARTITIONS = (("local1", "local2"), ("here1", "here2"), ("there1", "there2"))


class Broker:
    """A broker of the benchmarks, in a process that can be gone (connections are refused) or stand still."""

    def __init__(self) -> None:
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def set(self, mode: str) -> None:
        """Make it so that it `serves`, is `gone` or `stands` still."""
        if mode == "gone":
            self.end()
            return
        if self.process is None:
            self.process = subprocess.Popen([sys.executable, peers.__file__, str(self.port), "0"])
            wait_for("the broker", lambda: accepts(self.port))
        self.process.send_signal(signal.SIGSTOP if mode == "stands" else signal.SIGCONT)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Closing:
    """A port whose connections are accepted and closed."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                self._socket.accept()[0].close()
            except OSError:
                return

    def end(self) -> None:
        self._socket.close()


@pytest.fixture
def brokers() -> Iterator[dict[str, Broker]]:
    found = {name: Broker() for partition in PARTITIONS for name in partition if name != "here2"}
    try:
        yield found
    finally:
        for one in found.values():
            one.end()


@pytest.fixture
def router(brokers: Mapping[str, Broker]) -> Iterator[Router]:
    closing = Closing()
    ports = {name: one.port for name, one in brokers.items()} | {"here2": closing.port}
    config = config_of(timeouts={"backend_handshake": 0.3, "handshake": 60})
    config["datacenter"] = "here"
    config["backends"] = {
        name: {"host": "127.0.0.1", "port": ports[name], "datacenter": "there" if name.startswith("there") else "here"}
        | ({"local": True} if name.startswith("local") else {})
        for partition in PARTITIONS
        for name in partition
    }
    config["farms"]["all"] = {
        "members": [name for partition in reversed(PARTITIONS) for name in partition],
        "policies": ["datacenter-affinity", "local-first"],
    }
    try:
        with router_of(config) as found:
            yield found
    finally:
        closing.end()


def histories(router: Router) -> dict[str, list[str]]:
    """By session the backends that it was tried at, in the order of the log, where one that no backend took ends with
    `none`."""
    found: dict[str, list[str]] = {}
    for line in router.log.read_text().splitlines():
        entry = json.loads(line)
        if "attempt" in entry or entry["message"] == "opened":
            found.setdefault(entry["session"], []).append(entry["backend"])
        elif entry.get("how") == "no_backend":
            found.setdefault(entry["session"], []).append("none")
    return found


def violations(tried: Sequence[str]) -> list[str]:
    """What one session's attempts break of the contract: none twice, each partition whole before the next one begins,
    and none given up while a backend has not been tried."""
    found = []
    backends = [one for one in tried if one != "none"]
    if len({*backends}) != len(backends):
        found.append(f"one was tried twice: {tried}")
    for place, partition in enumerate(PARTITIONS[1:], 1):
        before = {name for higher in PARTITIONS[:place] for name in higher}
        first = next((at for at, name in enumerate(backends) if name in partition), None)
        if first is not None and not before <= {*backends[:first]}:
            found.append(f"{backends[first]} was tried before {sorted(before - {*backends[:first]})}: {tried}")
    if "none" in tried and len({*backends}) < sum(map(len, PARTITIONS)):
        found.append(f"given up too early: {tried}")
    return found


def one_session(port: int) -> bool:
    """Open a session and close it; return whether it opened."""
    try:
        peers.dial(port, "echo").close()
    except (ConnectionError, OSError):
        return False
    return True


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_attempt_keeps_the_contract(router: Router, brokers: Mapping[str, Broker]) -> None:
    rng = random.Random(int(os.environ.get("BROKERDRILL_ROUTER_SEED", "0")))
    for one in brokers.values():
        one.set("serves")
    enough = threading.Event()

    def work() -> None:
        while not enough.is_set():
            one_session(router.port)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    while sum(map(len, histories(router).values())) < ATTEMPTS:
        # Now and then all are away at once.
        modes = ("serves", "gone", "stands") if rng.random() < 0.9 else ("gone",)
        for one in brokers.values():
            one.set(rng.choice(modes))
        time.sleep(rng.uniform(0.1, 0.5))
    enough.set()
    for thread in threads:
        thread.join(60)
    found = histories(router)
    broken = [line for tried in found.values() for line in violations(tried)]
    assert not broken, broken[:10]
    firsts = {name for tried in found.values() for name in tried}
    assert firsts == {"none", *(name for partition in PARTITIONS for name in partition)}, firsts
    print(f"{sum(map(len, found.values()))} attempts of {len(found)} sessions")


def test_within_a_partition_the_least_recently_tried_comes_first(router: Router, brokers: Mapping[str, Broker]) -> None:
    for name, one in brokers.items():
        one.set("gone" if name == "local1" else "serves")
    for _ in range(12):
        assert one_session(router.port)
    brokers["local2"].set("gone")
    for _ in range(12):
        assert one_session(router.port)
    last: dict[str, int] = {}
    moment = 0
    for tried in histories(router).values():
        assert not violations(tried)
        for partition in PARTITIONS:
            of_it = [name for name in tried if name in partition]
            expected = sorted(partition, key=lambda name: last.get(name, -1))
            if of_it and all(name in last for name in partition):
                assert of_it == expected[: len(of_it)], (tried, last)
            for name in of_it:
                last[name] = moment = moment + 1
    assert {*last} >= {"local1", "local2", "here1", "here2"}
