"""Restarts and kills under load: every session lives, every byte arrives in order."""

from __future__ import annotations

import errno
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
import yaml
from router_support import Router, accepts, children_of, config_of, router_of, wait_for, workers_of
from tests.free_ports import free_port

from amqp_session_router.process import supervisor
from amqp_session_router.relay import journal

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
    return workers_of(router.process.pid)[-1]


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
            deadline = time.monotonic() + 120
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
        # More often, and faster, than a router may end that ends by itself.
        for _ in range(supervisor._SHORT_LIVES + 2):
            ready = len(router.entries("ready"))
            kill(router)
            wait_for("a successor", lambda ready=ready: len(router.entries("ready")) > ready)  # type: ignore[misc]
            with socket.create_connection(("127.0.0.1", router.port)):
                pass
            wait_for("no session", lambda: not router.ctl("CONN"))
            counts.append(open_files())
        assert max(counts) - min(counts) <= 3, counts


def children(router: Router) -> list[int]:
    """The supervisor's workers, the oldest first."""
    assert router.process is not None
    return workers_of(router.process.pid)


def wait_ready(router: Router, count: int) -> None:
    wait_for("a successor", lambda: len(router.entries("ready")) >= count)


def test_a_kill_with_a_wrong_file_on_disk_loses_nothing(echo: int) -> None:
    """The next worker goes by the last good configuration, with what control had changed."""
    with router_of(config_of(echo)) as router:
        sock = peers.dial(router.port, "echo")
        router.ctl("DATACENTER", "SET", "here")
        router.ctl("VHOST", "PAUSE", "other")
        good = router.file.read_text()
        router.file.write_text("listeners: [")
        kill(router)
        wait_ready(router, 2)
        peers.comes_back(sock)
        peers.comes_back(peers.dial(router.port, "echo"))
        assert "stays as it was" in router.log.read_text()
        assert "here" in str(router.ctl("DATACENTER", "PRINT"))
        assert [row["vhost"] for row in router.ctl("VHOST", "PRINT") if row["paused"]] == ["other"]
        # It still does so when it is killed again, and takes the file once that is good.
        kill(router)
        wait_ready(router, 3)
        router.file.write_text(good)
        router.ctl("CONFIG", "RELOAD")
        peers.comes_back(sock)
        sock.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_successor_that_is_killed_costs_nothing(echo: int, moment: str) -> None:
    with router_of(config_of(echo, timeouts={"handshake": 600})) as router:
        socks = [peers.dial(router.port, "echo") for _ in range(60)]
        (old,) = children(router)
        if moment == "before":
            restart(router)
            (new,) = wait_for("a successor", lambda: [pid for pid in children(router) if pid != old])
            os.kill(new, signal.SIGKILL)
            wait_for("the word", lambda: "the restart failed" in router.log.read_text())
        else:
            # A client in its handshake keeps the predecessor alive.
            with socket.create_connection(("127.0.0.1", router.port)) as slow:
                wait_for("the client", lambda: len(router.ctl("CONN")) == 61)
                restart(router)
                wait_ready(router, 2)
                assert old in children(router)
                (new,) = [pid for pid in children(router) if pid != old]
                os.kill(new, signal.SIGKILL)
                wait_ready(router, 3)
                slow.close()
        for sock in socks:
            peers.comes_back(sock)
        late = peers.dial(router.port, "echo")
        peers.comes_back(late)
        for sock in (*socks, late):
            sock.close()
        wait_for("an empty list", lambda: not router.ctl("CONN"))


@pytest.mark.parametrize("delay", [0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6])
def test_a_predecessor_that_is_killed_costs_nothing(echo: int, delay: float) -> None:
    """At whatever place of the handover: its keeper stands in for it."""
    with router_of(config_of(echo)) as router:
        socks = [peers.dial(router.port, "echo") for _ in range(200)]
        (old,) = children(router)
        restart(router)
        (new,) = wait_for("a successor", lambda: [pid for pid in children(router) if pid != old])
        time.sleep(delay)
        if old in children(router):
            os.kill(old, signal.SIGKILL)
        wait_for("the successor alone", lambda: children(router) == [new] and len(router.entries("ready")) == 2)
        late = peers.dial(router.port, "echo")
        for sock in (*socks, late):
            peers.comes_back(sock)
        wait_for("no keeper", lambda: not keepers(router))
        # Both can be killed and replaced as ever.
        kill(router)
        wait_ready(router, 3)
        restart(router)
        wait_ready(router, 4)
        for sock in (*socks, late):
            peers.comes_back(sock)
            sock.close()
        wait_for("an empty list", lambda: not router.ctl("CONN"))


def test_one_that_goes_on_after_a_failed_restart_is_protected_still(echo: int) -> None:
    with router_of(config_of(echo)) as router:
        socks = [peers.dial(router.port, "echo") for _ in range(60)]
        (old,) = children(router)
        for number in range(2):
            restart(router)
            (new,) = wait_for("a successor", lambda: [pid for pid in children(router) if pid != old])
            os.kill(new, signal.SIGKILL)
            wait_for(
                "the word",
                lambda number=number: router.log.read_text().count("the restart failed") > number,  # type: ignore[misc]
            )
            assert len(keepers(router)) == 1
        os.kill(old, signal.SIGKILL)
        wait_ready(router, 2)
        for sock in socks:
            peers.comes_back(sock)
        wait_for("no keeper", lambda: not keepers(router))
        restart(router)
        wait_ready(router, 3)
        for sock in socks:
            peers.comes_back(sock)
            sock.close()


@pytest.mark.parametrize("wrong", [False, True], ids=["good file", "wrong file"])
def test_a_successor_is_killed_after_its_predecessor(echo: int, wrong: bool) -> None:
    """Both die; the third one finds the sessions of the first at the keeper and those of the second in the journal,
    whatever is on disk by then."""
    with router_of(config_of(echo)) as router:
        socks = [peers.dial(router.port, "echo") for _ in range(200)]
        for _ in range(3):
            (old,) = children(router)
            before = len(router.entries("ready"))
            restart(router)
            (new,) = wait_for("a successor", lambda old=old: [pid for pid in children(router) if pid != old])  # type: ignore[misc]
            good = router.file.read_text()
            if wrong:
                router.file.write_text("listeners: [")
            os.kill(old, signal.SIGKILL)
            os.kill(new, signal.SIGKILL)
            wait_for(
                "a third worker alone",
                lambda before=before, gone={old, new}: (  # type: ignore[misc]
                    only_other(router, gone) and len(router.entries("ready")) > before
                ),
            )
            for sock in socks:
                peers.comes_back(sock)
            wait_for("no keeper", lambda: not keepers(router))
            router.file.write_text(good)
        for sock in socks:
            sock.close()


def keepers(router: Router) -> list[int]:
    """The supervisor's children that are no workers."""
    assert router.process is not None
    return sorted({*children_of(router.process.pid)} - {*children(router)})


def only_other(router: Router, gone: set[int]) -> list[int]:
    """Return the one worker there is, if it is none of `gone`."""
    found = children(router)
    return found if len(found) == 1 and not gone & {*found} else []


def test_a_successor_killed_while_it_takes_is_followed_by_one_that_takes_the_rest(echo: int) -> None:
    with router_of(config_of(echo)) as router:
        socks = [peers.dial(router.port, "echo") for _ in range(200)]
        (old,) = children(router)
        for number in range(3):
            restart(router)
            (new,) = wait_for("a successor", lambda old=old: [pid for pid in children(router) if pid != old])  # type: ignore[misc]
            # From its own log line on it has begun; killed at whatever place it is then.
            wait_for("the handover", lambda number=number: len(router.entries("handed over")) > number)  # type: ignore[misc]
            os.kill(new, signal.SIGKILL)
            (old,) = wait_for("a third worker alone", lambda gone={old, new}: only_other(router, gone))  # type: ignore[misc]
            for sock in socks:
                peers.comes_back(sock)
        for sock in socks:
            sock.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_end_that_meets_a_worker_just_made_ends_the_router(echo: int, number: signal.Signals) -> None:
    with router_of(config_of(echo)) as router:
        (old,) = children(router)
        restart(router)
        wait_for("a successor", lambda: [pid for pid in children(router) if pid != old])
        assert router.process is not None
        router.process.send_signal(number)
        assert router.process.wait(60) == 0


def test_a_reload_that_meets_a_worker_just_made_does_not_end_it(echo: int) -> None:
    with router_of(config_of(echo)) as router:
        (old,) = children(router)
        restart(router)
        (new,) = wait_for("a successor", lambda: [pid for pid in children(router) if pid != old])  # type: ignore[misc]
        assert router.process is not None
        router.process.send_signal(signal.SIGHUP)
        wait_ready(router, 2)
        wait_for("one worker", lambda: children(router) == [new])


def test_a_large_configuration_and_many_sessions_are_handed_over(echo: int) -> None:
    with router_of(config_of(echo)) as router:
        rules = [{"vhost": f"v{number}", "reject": "r" * 200} for number in range(1500)]
        router.file.write_text(yaml.safe_dump(router.config | {"rules": rules}))
        router.ctl("CONFIG", "RELOAD")
        # A change that no file has goes to the successor with the whole configuration: more than 300 kB.
        router.ctl("DATACENTER", "SET", "here")
        socks = [peers.dial(router.port, "echo") for _ in range(100)]
        restart(router)
        wait_ready(router, 2)
        for sock in socks:
            peers.comes_back(sock)
            sock.close()
        assert "here" in str(router.ctl("DATACENTER", "PRINT"))


def test_another_restart_while_one_is_under_way_follows_it(echo: int) -> None:
    with router_of(config_of(echo, timeouts={"handshake": 600})) as router:
        sock = peers.dial(router.port, "echo")
        with socket.create_connection(("127.0.0.1", router.port)):
            wait_for("the client", lambda: len(router.ctl("CONN")) == 2)
            restart(router)
            wait_ready(router, 2)
            # Its predecessor waits for the client. However often it is asked for, one follows.
            for count in (1, 2):
                restart_under_way(router, count)
            taker = worker(router)
        wait_ready(router, 3)
        wait_for("both predecessors' end", lambda: len(children(router)) == 1)
        assert worker(router) != taker
        assert len(router.entries("ready")) == 3
        peers.comes_back(sock)
        sock.close()


def test_a_restart_follows_one_that_failed(echo: int) -> None:
    with router_of(config_of(echo)) as router:
        sock = peers.dial(router.port, "echo")
        (old,) = children(router)
        restart(router)
        (new,) = wait_for("a successor", lambda: [pid for pid in children(router) if pid != old])
        os.kill(new, signal.SIGSTOP)
        restart_under_way(router, 1)
        os.kill(new, signal.SIGKILL)
        wait_ready(router, 2)
        wait_for("the end of the old process", lambda: old not in children(router))
        assert router.log.read_text().count("the restart failed") == 1
        peers.comes_back(sock)
        sock.close()


def restart_under_way(router: Router, count: int) -> None:
    """Ask for a restart while one is under way, and return when that is told for the `count`-th time."""
    restart(router)
    wait_for("the word", lambda: router.log.read_text().count("a restart is under way") == count)


def test_a_paused_vhosts_waiting_clients_are_told_to_come_back(echo: int) -> None:
    with router_of(config_of(echo)) as router:
        router.ctl("VHOST", "PAUSE", "echo")
        with socket.create_connection(("127.0.0.1", router.port)) as waiting:
            waiting.sendall(peers.HEADER + peers.START_OK + peers.TUNE_OK + peers.open_frame("echo"))
            wait_for("it to wait", lambda: [row for row in router.ctl("CONN") if row["phase"] == "waiting"])
            restart(router)
            wait_ready(router, 2)
            waiting.settimeout(60)
            got = b""
            while data := waiting.recv(65536):
                got += data
            assert b"the router restarts" in got
        wait_for("the end of the predecessor", lambda: len(children(router)) == 1)
        router.ctl("VHOST", "UNPAUSE", "echo")
        peers.comes_back(peers.dial(router.port, "echo"))


def test_a_kernel_that_forbids_unshare_ends_no_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(supervisor, "unshare_files", forbidden)
    found = supervisor.Supervisor("file", 1.0)
    reach, line = socket.socketpair()
    found._reach, found._line, found.pid = reach, line, os.getpid()
    with subprocess.Popen(["sleep", "60"]) as keeper:
        # A real one would share the descriptors of the process that runs the tests.
        monkeypatch.setattr(supervisor, "clone_sharing_files", lambda: keeper.pid)
        found._replace()
        assert keeper.wait(10) == -signal.SIGKILL
    assert (found._reach, found._line, found.pid, found._relieving) == (reach, line, os.getpid(), None)
    assert reach.fileno() >= 0 and line.fileno() >= 0
    reach.close()
    line.close()


def ended(found: supervisor.Supervisor, number: signal.Signals) -> int | None:
    """The end of a worker that had begun a moment ago."""
    found._started = time.monotonic()
    return found._ended(number)


def test_a_router_that_others_kill_ever_again_is_followed_and_one_that_dies_by_itself_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[bool] = []
    monkeypatch.setattr(supervisor.Supervisor, "_start", lambda self, recover, predecessor: begun.append(recover))
    monkeypatch.setattr(supervisor.journal, "progress", lambda number: supervisor.journal.SERVING)
    found = supervisor.Supervisor("file", 1.0)
    for count in range(1, 20):
        assert ended(found, signal.SIGKILL) is None and len(begun) == count
    begun.clear()
    for _ in range(supervisor._SHORT_LIVES - 1):
        assert ended(found, signal.SIGSEGV) is None
        # It does not hide that the router has a fault.
        assert ended(found, signal.SIGKILL) is None
    assert ended(found, signal.SIGSEGV) == 128 + signal.SIGSEGV
    assert len(begun) == 2 * (supervisor._SHORT_LIVES - 1)


@pytest.mark.parametrize("heard", [True, False])
def test_who_follows_a_worker_that_needed_nothing_more_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    """That worker had closed the line to its predecessor, in the table of descriptors that both share. The next line
    got the same number, and who followed asked itself and waited for ever."""
    begun: list[tuple[bool, socket.socket | None]] = []
    monkeypatch.setattr(
        supervisor.Supervisor, "_start", lambda self, recover, predecessor: begun.append((recover, predecessor))
    )
    found = supervisor.Supervisor("file", 1.0)
    found._journal = journal.create()
    book = journal.Journal(found._journal)
    book.cells[journal.PROGRESS], book.cells[journal.RELIEVED] = journal.TAKING_OVER, heard
    found._line, found._reach = socket.socketpair()
    line, reach = socket.socketpair()
    number = reach.fileno()
    found._relieving = (os.getpid(), reach)
    assert ended(found, signal.SIGKILL) is None
    assert begun == [(True, None if heard else reach)]
    assert (found._relieving is None) is heard
    book.close()
    for one in (found._journal, number):
        os.close(one)
    line.close()
    if not heard:
        reach.detach()
