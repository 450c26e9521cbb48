"""Restarts and kills under load: every session lives, every byte arrives in order."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from router_support import Router, accepts, config_of, free_port, router_of, wait_for

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "router"))

import peers


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    """The port of a broker that echoes what comes after the handshake."""
    port = free_port()
    process = subprocess.Popen([sys.executable, peers.__file__, str(port), "0"])
    try:
        wait_for("the broker", lambda: accepts(port))
        yield port
    finally:
        process.kill()
        process.wait()


class Talk:
    """Sessions that send random messages and check that the same bytes come back."""

    def __init__(self, port: int, count: int, seed: int) -> None:
        rng = random.Random(seed)
        sizes = (0, 10, 100, 5000, 60_000, 400_000)
        self.messages = [peers.message(rng.choice(sizes)) for _ in range(40)]
        self.rng = rng
        self.socks = peers.many(port, count)
        self.out = {sock: bytearray() for sock in self.socks}
        self.expected = {sock: bytearray() for sock in self.socks}
        self.echoed = 0
        self.poll = select.poll()
        for sock in self.socks:
            sock.setblocking(False)
        self.by_number = {sock.fileno(): sock for sock in self.socks}

    def turn(self, more: bool) -> None:
        """Send and receive once; raises AssertionError if something else comes back than was sent."""
        for sock in self.socks:
            if more and not self.out[sock] and len(self.expected[sock]) < 1_000_000:
                self.out[sock] += self.rng.choice(self.messages)
            self.poll.register(sock, select.POLLIN | (select.POLLOUT if self.out[sock] else 0))
        for number, events in self.poll.poll(100):
            sock = self.by_number[number]
            if events & select.POLLOUT:
                sent = sock.send(self.out[sock])
                self.expected[sock] += self.out[sock][:sent]
                del self.out[sock][:sent]
            if events & ~select.POLLOUT:
                got = sock.recv(1 << 20)
                assert got, "a session was lost"
                assert self.expected[sock].startswith(got), "other bytes than those that were sent"
                del self.expected[sock][: len(got)]
                self.echoed += len(got)

    def finish(self) -> None:
        """Wait for all echoes."""
        deadline = time.monotonic() + 60
        while any(self.expected.values()) or any(self.out.values()):
            assert time.monotonic() < deadline, "echoes are missing"
            self.turn(False)

    def close(self) -> None:
        for sock in self.socks:
            sock.close()


def worker(router: Router) -> int:
    """The router's own process, the supervisor's child that lives longest."""
    assert router.process is not None
    children = Path(f"/proc/{router.process.pid}/task/{router.process.pid}/children").read_text().split()
    return int(children[-1])


def kill(router: Router) -> None:
    pid, ready = worker(router), len(router.entries("ready"))
    os.kill(pid, signal.SIGKILL)
    assert ready


def restart(router: Router) -> None:
    assert router.process is not None
    os.kill(router.process.pid, signal.SIGUSR2)


@pytest.mark.parametrize("act", [restart, kill], ids=["restart", "kill"])
def test_no_session_is_lost(echo: int, act: object) -> None:
    with router_of(config_of(echo)) as router:
        talk = Talk(router.port, 12, 5)
        for number in range(3):
            before = talk.echoed
            while talk.echoed < before + 5_000_000:
                talk.turn(True)
            count = len(router.entries("ready"))
            act(router)  # type: ignore[operator]
            deadline = time.monotonic() + 30
            while len(router.entries("ready")) == count:
                assert time.monotonic() < deadline, "no successor: " + router.log.read_text()[-2000:]
                talk.turn(True)
            talk.finish()  # the broker has one thread, which waits for those that do not read
            late = peers.dial(router.port, "late")
            late.sendall(peers.CLOSE)
            assert peers.read_frame(late) == peers.CLOSE_OK, number
            late.close()
        assert len([row for row in router.ctl("CONN") if row["vhost"] == "echo"]) == 12
        talk.close()
        wait_for("an empty list", lambda: not router.ctl("CONN"))


def test_after_a_kill_sessions_can_still_be_closed_gracefully(echo: int) -> None:
    """An idle session's boundary is in the journal; the reference and a bare splice only could cut it."""
    with router_of(config_of(echo)) as router:
        socks = [peers.dial(router.port, "echo") for _ in range(5)]
        for sock in socks:
            sock.sendall(peers.message(100))
            left = len(peers.message(100))
            while left:
                left -= len(sock.recv(65536))
        count = len(router.entries("ready"))
        kill(router)
        wait_for("a successor", lambda: len(router.entries("ready")) > count)
        for row in router.ctl("CONN"):
            router.ctl("SESSION", row["id"], "DISCONNECT_GRACEFUL")
        closed = 0
        for sock in socks:
            sock.settimeout(10)
            try:
                closed += peers.read_frame(sock)[7:11] == b"\x00\x0a\x00\x32"
            except OSError:
                continue
        # The direction that was at work when the signal came may not know where it stands.
        assert closed >= 4
        for sock in socks:
            sock.close()


def test_a_bad_configuration_stops_a_restart_and_no_session(echo: int) -> None:
    with router_of(config_of(echo)) as router:
        sock = peers.dial(router.port, "echo")
        router.file.write_text("listeners: [")
        restart(router)
        wait_for("the refusal", lambda: "the restart failed" in router.log.read_text())
        message = peers.message(10)
        sock.sendall(message)
        assert sock.recv(1000) == message
        sock.close()
        assert isinstance(router.ctl("CONN"), list)


def test_descriptors_do_not_pile_up(echo: int) -> None:
    with router_of(config_of(echo)) as router:

        def open_files() -> int:
            return sum(1 for _ in Path(f"/proc/{worker(router)}/fd").iterdir())

        counts = []
        for _ in range(4):
            ready = len(router.entries("ready"))
            kill(router)
            wait_for("a successor", lambda ready=ready: len(router.entries("ready")) > ready)  # type: ignore[misc]
            with socket.create_connection(("127.0.0.1", router.port)):
                pass
            wait_for("no session", lambda: not router.ctl("CONN"))
            counts.append(open_files())
        assert max(counts) - min(counts) <= 3, counts
