"""A router of several workers, as real processes: what one knows holds for all, and each dies as the only one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from router_support import Router, accepts, children_of, config_of, router_of, wait_for, workers_of
from tests.free_ports import free_port

from amqp_session_router import cli
from amqp_session_router.base.errors import RouterError
from amqp_session_router.control.client import ask

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "router"))

import peers

WORKERS = 2


@pytest.fixture(scope="module")
def echoes() -> Iterator[list[int]]:
    """Ports of two brokers that echo what comes after the handshake."""
    ports = [free_port(), free_port()]
    processes = [subprocess.Popen([sys.executable, peers.__file__, str(port), "0"]) for port in ports]
    try:
        for port in ports:
            wait_for("the broker", lambda port=port: accepts(port))  # type: ignore[misc]
        yield ports
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def router(echoes: list[int]) -> Iterator[Router]:
    """A router of two workers, whose keys stick."""
    config = config_of(*echoes, workers=WORKERS, status={"port": free_port()})
    config["farms"]["all"] |= {"key": {"type": "VHOST"}, "cache": {}}
    with router_of(config) as found:
        wait_all_ready(found, 1)
        yield found
        # Whatever a test did, in the end nobody is left over.
        assert found.process is not None
        found.process.terminate()
        assert found.process.wait(60) == 0


def ctl(router: Router, *words: str) -> Any:
    """Return the answer of a verb as data; raises RouterError."""
    reply = next(ask(router.control, words))
    if not reply["ok"]:
        raise RouterError(reply["error"])
    return reply.get("rows", reply.get("data", reply))


def wait_all_ready(router: Router, times: int) -> None:
    """Return once each worker has been ready so often."""
    for index in range(WORKERS):
        ready = lambda index=index: sum(one["worker"] == index for one in router.entries("ready")) >= times  # type: ignore[misc] # noqa: E731
        wait_for(f"worker {index}", ready)


def readies(router: Router, index: int) -> int:
    """Return how often a worker was ready."""
    return sum(one["worker"] == index for one in router.entries("ready"))


def children(pid: int) -> list[int]:
    """Return a process's children but the keepers, the oldest first."""
    return workers_of(pid)


def supervisor(router: Router, index: int) -> int:
    """Return the supervisor of a worker."""
    assert router.process is not None
    # One that makes a keeper just now has that name itself for a moment.
    for pid in children_of(router.process.pid):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"amqp_session_router.process.supervisor" in words and words[5] == str(index).encode():
            return pid
    raise AssertionError(f"no supervisor of worker {index}")


def kill_worker(router: Router, index: int) -> None:
    """SIGKILL a worker, and return once its successor serves."""
    before = readies(router, index)
    os.kill(children(supervisor(router, index))[-1], signal.SIGKILL)
    wait_for("a successor", lambda: readies(router, index) > before)


def replace_all(router: Router) -> None:
    """Replace all workers as planned, and return once their successors have it all."""
    before = [readies(router, index) for index in range(WORKERS)]
    assert router.process is not None
    router.process.send_signal(signal.SIGUSR2)
    for index in range(WORKERS):
        wait_for(f"worker {index}", lambda index=index: readies(router, index) > before[index])  # type: ignore[misc]
    wait_for("one worker each", lambda: all(len(children(supervisor(router, i))) == 1 for i in range(WORKERS)))


def spread(router: Router, vhost: str, count: int = 8) -> list[socket.socket]:
    """Return sessions of a vhost, some of them in each worker."""
    found: list[socket.socket] = []
    deadline = time.monotonic() + 60
    opened = {one["session"] for one in router.entries("opened")}
    while True:
        found += [peers.dial(router.port, vhost) for _ in range(count)]
        workers = {one["worker"] for one in router.entries("opened") if one["session"] not in opened}
        if len(workers) == WORKERS:
            return found
        assert time.monotonic() < deadline


def close(router: Router, socks: list[socket.socket], vhost: str) -> None:
    """Close sessions, and return once the router has heard it."""
    for sock in socks:
        sock.close()
    wait_for("an empty list", lambda: not ctl(router, "CONN", f"vhost={vhost}"))


def closed_by_router(sock: socket.socket) -> bool:
    """Whether a Connection.Close comes."""
    sock.settimeout(20)
    return peers.read_frame(sock)[7:11] == b"\x00\x0a\x00\x32"


def test_verbs_reach_the_sessions_of_all_workers(router: Router) -> None:
    socks = spread(router, "all")
    rows = ctl(router, "CONN", "vhost=all")
    assert len(rows) == len(socks)
    (vhost,) = [row for row in ctl(router, "VHOST", "PRINT") if row["vhost"] == "all"]
    assert vhost["sessions"] == len(socks)
    assert sum(row["active"] for row in ctl(router, "BACKEND", "PRINT")) == len(socks)
    counts = ctl(router, "STAT", "PRINT", "vhost=all")["vhost"]["all"]
    assert (counts["active"], counts["opened"]) == (len(socks), len(socks))
    # A session is found in whichever worker it is.
    for row in rows:
        assert ctl(router, "SESSION", row["id"], "PRINT")["id"] == row["id"]
    with pytest.raises(RouterError, match="no session has the id 'nobody'"):
        ctl(router, "SESSION", "nobody", "PRINT")
    assert ctl(router, "VHOST", "DISCONNECT_GRACEFUL", "all")["text"] == f"{len(socks)} sessions"
    assert all(closed_by_router(sock) for sock in socks)
    close(router, socks, "all")


def test_a_pause_holds_in_all_workers_once_it_is_answered(router: Router) -> None:
    socks = spread(router, "paused")
    assert ctl(router, "VHOST", "PAUSE", "paused")["sessions"] == len(socks)
    assert {row["phase"] for row in ctl(router, "CONN", "vhost=paused")} == {"paused"}
    late = [socket.create_connection(("127.0.0.1", router.port)) for _ in range(12)]
    for sock in late:
        sock.sendall(peers.HEADER + peers.START_OK + peers.TUNE_OK + peers.open_frame("paused"))
    wait_for("them to wait", lambda: len(ctl(router, "CONN", "vhost=paused", "phase=waiting")) == len(late))
    # It outlives each worker.
    for index in range(WORKERS):
        kill_worker(router, index)
        assert [row["vhost"] for row in ctl(router, "VHOST", "PRINT") if row["paused"]] == ["paused"]
    assert {row["phase"] for row in ctl(router, "CONN", "vhost=paused") if row["phase"] != "waiting"} == {"paused"}
    fresh = socket.create_connection(("127.0.0.1", router.port))
    fresh.sendall(peers.HEADER + peers.START_OK + peers.TUNE_OK + peers.open_frame("paused"))
    wait_for("it to wait", lambda: ctl(router, "CONN", "vhost=paused", "phase=waiting"))
    assert ctl(router, "VHOST", "UNPAUSE", "paused")["going_on"] >= len(socks)
    close(router, [*socks, *late, fresh], "paused")


def test_a_change_counts_in_all_workers_or_in_none(router: Router) -> None:
    ctl(router, "MAP", "REJECT", "closed", "not today")
    for _ in range(10):
        with pytest.raises(AssertionError, match="not today"):
            refused(router, "closed")
    with pytest.raises(RouterError, match="no farm is called 'nowhere'"):
        ctl(router, "MAP", "FARM", "closed", "nowhere")
    with pytest.raises(RouterError, match="0 would be another port for each"):
        ctl(router, "LISTEN", "START", "0")
    port = free_port()
    ctl(router, "LISTEN", "START", str(port))
    assert accepts(port)
    ctl(router, "LISTEN", "STOP", str(port))
    assert not accepts(port)
    assert [row["port"] for row in ctl(router, "LISTEN", "PRINT")] == [router.port]


def refused(router: Router, vhost: str) -> None:
    """Raise AssertionError with what a client of the vhost is told."""
    with socket.create_connection(("127.0.0.1", router.port)) as sock:
        sock.settimeout(20)
        sock.sendall(peers.HEADER + peers.START_OK + peers.TUNE_OK + peers.open_frame(vhost))
        got = b""
        while data := sock.recv(65536):
            got += data
            assert b"\x00\x0a\x00\x32" not in got, got


def test_a_limit_of_connections_is_one_of_all_workers(router: Router) -> None:
    ctl(router, "LIMIT", "TOTAL_CONN", "VHOST", "few", "7")
    socks = [peers.dial(router.port, "few") for _ in range(7)]
    for _ in range(10):
        with pytest.raises(AssertionError, match="connection limit"):
            refused(router, "few")
    (row,) = [row for row in ctl(router, "LIMIT", "PRINT", "few") if row["limit"] == "connections"]
    assert (row["value"], row["now"]) == (7, 7)
    # Each worker's successor counts what it took over, once.
    for index in range(WORKERS):
        kill_worker(router, index)
        with pytest.raises(AssertionError, match="connection limit"):
            refused(router, "few")
    socks.pop().close()
    wait_for("room", lambda: len(ctl(router, "CONN", "vhost=few")) == 6)
    socks.append(peers.dial(router.port, "few"))
    with pytest.raises(AssertionError, match="connection limit"):
        refused(router, "few")
    close(router, socks, "few")


def test_a_key_is_at_one_backend_whichever_worker_it_comes_to(router: Router) -> None:
    for vhost in ("one", "two", "three", "four"):
        socks = spread(router, vhost, 6)
        assert len({row["backend"] for row in ctl(router, "CONN", f"vhost={vhost}")}) == 1
        close(router, socks, vhost)
    # What a worker has told outlives it, though it is kept in no file.
    before = {one["vhost"]: one["backend"] for one in router.entries("opened")}["one"]
    for index in range(WORKERS):
        kill_worker(router, index)
    socks = spread(router, "one", 6)
    assert {row["backend"] for row in ctl(router, "CONN", "vhost=one")} == {before}
    close(router, socks, "one")
    assert ctl(router, "STICKY", "CLEAR", "all")["text"].endswith("keys forgotten")


def test_no_session_is_lost_when_any_worker_is_killed_or_all_are_replaced(router: Router) -> None:
    socks = spread(router, "lives", 20)
    for index in (1, 0):
        kill_worker(router, index)
        for sock in socks:
            peers.comes_back(sock)
    data = yaml.safe_load(router.file.read_text())
    router.file.write_text(yaml.safe_dump(data | {"datacenter": "read anew"}))
    replace_all(router)
    for sock in socks:
        peers.comes_back(sock, 50_000)
    assert len(ctl(router, "CONN", "vhost=lives")) == len(socks)
    assert "read anew" in str(ctl(router, "DATACENTER", "PRINT"))
    close(router, socks, "lives")


def test_its_processes_are_told(router: Router) -> None:
    socks = spread(router, "told")
    before = ctl(router, "WORKERS", "PRINT")
    own = [children(supervisor(router, index))[-1] for index in range(WORKERS)]
    assert [(row["worker"], row["pid"]) for row in before] == [*enumerate(own)]
    assert sum(row["sessions"] for row in before) == len(socks)
    replace_all(router)
    after = ctl(router, "WORKERS", "PRINT")
    assert not {row["pid"] for row in before} & {row["pid"] for row in after}
    assert sum(row["sessions"] for row in after) == len(socks)
    close(router, socks, "told")


def test_a_wrong_file_ends_and_replaces_no_worker(router: Router) -> None:
    socks = spread(router, "stays")
    good = router.file.read_text()
    router.file.write_text("listeners: [")
    for index in range(WORKERS):
        kill_worker(router, index)
    for sock in socks:
        peers.comes_back(sock)
    assert router.process is not None
    router.process.send_signal(signal.SIGUSR2)
    wait_for("both refusals", lambda: router.log.read_text().count("the restart failed") == WORKERS)
    for sock in socks:
        peers.comes_back(sock)
    router.file.write_text(good)
    ctl(router, "CONFIG", "RELOAD")
    replace_all(router)
    for sock in socks:
        peers.comes_back(sock)
    close(router, socks, "stays")


def test_a_file_with_another_number_of_workers_is_told_before_it_is_put_in_place(
    router: Router, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = tmp_path / "router.yaml"
    told = ["check", "--running", str(router.control), str(wanted)]
    wanted.write_text(yaml.safe_dump(router.config | {"datacenter": "another"}))
    assert cli.main(told) == 0
    wanted.write_text(yaml.safe_dump(router.config | {"workers": WORKERS + 1}))
    assert cli.main(["check", str(wanted)]) == 0
    capsys.readouterr()
    assert cli.main(told) == 64
    said = "workers: it cannot change while the router runs; a stop and a start take it on"
    assert capsys.readouterr().err == f"amqp-session-router: {said}\n"
    told[2] = str(tmp_path / "none.sock")
    assert cli.main(told) != 0
    assert "no router answers at" in capsys.readouterr().err


def test_one_scrape_has_all_workers(router: Router) -> None:
    socks = spread(router, "counted")
    url = f"http://127.0.0.1:{router.config['status']['port']}"
    with urllib.request.urlopen(f"{url}/metrics") as page:
        families = {one.name: one for one in text_string_to_metric_families(page.read().decode())}
    active = {one.labels["worker"]: one.value for one in families["amqp_router_active"].samples}
    assert [*active] == ["0", "1"] and all(active.values()) and sum(active.values()) == len(socks)
    assert {one.labels["worker"]: one.value for one in families["amqp_router_worker_up"].samples} == {"0": 1, "1": 1}
    with urllib.request.urlopen(f"{url}/metrics.json") as page:
        data = yaml.safe_load(page.read())
    assert data["overall"]["active"] == data["vhost"]["counted"]["active"] == len(socks)
    assert sum(row["active"] for row in data["backends"]) == len(socks)
    close(router, socks, "counted")


def test_a_backend_is_emptied_in_all_workers(router: Router) -> None:
    backend = "b0"
    ctl(router, "MAP", "BACKEND", "drained", backend)
    socks = spread(router, "drained")
    ctl(router, "BACKEND", "DRAIN", backend)
    assert ctl(router, "BACKEND", "DISCONNECT_GRACEFUL", backend, "1000")["sessions"] == len(socks)
    assert all(closed_by_router(sock) for sock in socks)
    close(router, socks, "drained")
    wait_for("both to have emptied it", lambda: {one["worker"] for one in router.entries("emptied")} == {0, 1})
    ctl(router, "BACKEND", "UNDRAIN", backend)


@pytest.mark.parametrize("index", [1, 0])
def test_a_worker_whose_supervisor_is_killed_goes_on_and_begins_anew_when_it_ends(router: Router, index: int) -> None:
    socks = spread(router, "orphan")
    above = supervisor(router, index)
    (worker,) = children(above)
    os.kill(above, signal.SIGKILL)
    word = f"the supervisor of worker {index} was killed"
    wait_for("the word", lambda: word in router.log.read_text())
    for sock in socks:
        peers.comes_back(sock)
    before = readies(router, index)
    os.kill(worker, signal.SIGKILL)
    wait_for("the worker", lambda: readies(router, index) > before)
    assert len(children(supervisor(router, index))) == 1
    # Those of the other worker have noticed nothing.
    alive = 0
    for sock in socks:
        try:
            peers.comes_back(sock)
            alive += 1
        except (OSError, AssertionError):
            continue
    assert 0 < alive == len(ctl(router, "CONN", "vhost=orphan"))
    fresh = spread(router, "orphan")
    close(router, [*socks, *fresh], "orphan")


def test_exit_ends_all(echoes: list[int]) -> None:
    with router_of(config_of(*echoes, workers=WORKERS)) as router:
        wait_all_ready(router, 1)
        socks = spread(router, "v")
        assert router.process is not None
        # Another router of this user may not share the address.
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "other.yaml"
            file.write_text(yaml.safe_dump(router.config | {"control": None}))
            other = subprocess.run(
                [str(Path(sys.executable).with_name("amqp-session-router")), "run", "--config", str(file)],
                capture_output=True,
                text=True,
                timeout=60,
            )
        assert other.returncode == 64 and "Address already in use" in other.stderr, other.stderr
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(RouterError, match="Address already in use"):
                ctl(router, "LISTEN", "START", str(taken.getsockname()[1]))
        assert ctl(router, "EXIT", "20")["sessions"] == len(socks)
        assert all(closed_by_router(sock) for sock in socks)
        for sock in socks:
            sock.close()
        assert router.process.wait(60) == 0


def test_the_service_manager_hears_of_all_workers_as_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, echoes: list[int]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "300000")
        with router_of(config_of(*echoes, workers=WORKERS)) as router:
            while line.recv(4096) != b"READY=1":
                pass
            assert all(readies(router, index) for index in range(WORKERS))
            while line.recv(4096) != b"WATCHDOG=1":
                pass
            (stuck,) = children(supervisor(router, 1))
            os.kill(stuck, signal.SIGSTOP)
            try:
                stopped = lambda: Path(f"/proc/{stuck}/stat").read_text().rpartition(")")[2].split()[0] == "T"  # noqa: E731
                wait_for("stop", stopped)
                line.settimeout(1)
                with pytest.raises(TimeoutError):
                    # What was said before; then the other's signs of life are not passed on alone.
                    for _ in range(3):
                        line.recv(4096)
            finally:
                os.kill(stuck, signal.SIGCONT)
            line.settimeout(60)
            assert line.recv(4096) == b"WATCHDOG=1"
