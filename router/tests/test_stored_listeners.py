"""What systemd keeps of a router whose processes were all killed, and what the next one makes of it.

The service manager here does what systemd does with FDSTORE=1 and FDSTOREREMOVE=1: a socket is kept once, under the
first of its names.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from router_support import Router, accepts, children_of, config_of, wait_for
from tests.free_ports import free_port

from amqp_session_router.process import service_manager, supervisor
from amqp_session_router.process.place import ALONE, Place
from amqp_session_router.process.service_manager import StoredListener
from amqp_session_router.process.start import Start

_FREE_FROM = 500
"""Above what the router is given its descriptors as."""


class FakeManager:
    """A service manager with a store of descriptors."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "notify"
        self.kept: list[tuple[str, int]] = []
        """Name and descriptor."""
        self.removals = 0
        """How often it was told to forget one."""
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.bind(str(self.path))
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def _hear(self) -> None:
        while True:
            data, numbers, _, _ = socket.recv_fds(self._line, 4096, 253)
            words = dict(word.split("=", 1) for word in data.decode().split("\n"))
            if "END" in words:
                return
            name = words.get("FDNAME", "stored")
            if "FDSTOREREMOVE" in words:
                for one in [one for one in self.kept if one[0] == name]:
                    self.kept.remove(one)
                    os.close(one[1])
                self.removals += 1
            for number in numbers:
                known = {os.fstat(one).st_ino for _, one in self.kept}
                if "FDSTORE" in words and os.fstat(number).st_ino not in known:
                    self.kept.append((name, number))
                else:
                    os.close(number)

    def listeners(self) -> list[str]:
        """The names of the listeners that are kept, sorted."""
        return sorted(unquote(name.split("/")[2]) for name, _ in [*self.kept])

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(b"END=1", str(self.path))
        self._thread.join()
        self._line.close()
        for _, number in self.kept:
            os.close(number)


class Service(Router):
    """A router that a service manager starts."""

    def __init__(self, directory: Path, config: dict[str, Any], manager: FakeManager) -> None:
        super().__init__(directory, config)
        self.manager = manager

    def start(self) -> None:
        self.run()
        wait_for("router", lambda: self.entries("ready"))

    def run(self) -> None:
        """Start it with what is kept, as systemd does."""
        self.file.write_text(yaml.safe_dump(self.config))
        program = Path(sys.executable).with_name("amqp-session-router")
        kept = [*self.manager.kept]
        environment = os.environ | {"NOTIFY_SOCKET": str(self.manager.path)}
        if kept:
            environment |= {"LISTEN_FDS": str(len(kept)), "LISTEN_FDNAMES": ":".join(name for name, _ in kept)}
        copies = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _FREE_FROM) for _, number in kept]

        def give() -> None:
            for place, number in enumerate(copies, 3):
                os.dup2(number, place)

        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f'LISTEN_PID=$$ exec "{program}" run --config "{self.file}"'],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.log.open("ab"),
            env=environment,
            pass_fds=range(3, 3 + len(copies)),
            preexec_fn=give,
        )
        for number in copies:
            os.close(number)

    def kill_all(self) -> None:
        """SIGKILL all its processes at once, so that none follows another."""
        assert self.process is not None
        tree = [self.process.pid]
        for pid in tree:
            tree += children_of(pid)
        for pid in tree:
            os.kill(pid, signal.SIGSTOP)
        for pid in tree:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_for("their end", lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in tree))
        self.log.write_text("")


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="router-") as name:
        yield Path(name)


@pytest.fixture
def manager(directory: Path) -> Iterator[FakeManager]:
    fake = FakeManager(directory)
    yield fake
    fake.close()


@pytest.fixture
def service(directory: Path, manager: FakeManager, request: pytest.FixtureRequest) -> Iterator[Service]:
    """A router that runs, with as many workers as the test's parameter says."""
    config = config_of(free_port(), workers=getattr(request, "param", 1))
    one = Service(directory, config, manager)
    try:
        one.start()
        yield one
    finally:
        one.stop()


def waiting_client(port: int) -> socket.socket:
    """A client that has connected and sent its protocol header; raises ConnectionRefusedError."""
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.sendall(b"AMQP\x00\x00\x09\x01")
    return client


def is_served(client: socket.socket) -> bool:
    """Whether Connection.Start comes; closes the client."""
    with client:
        return client.recv(11)[7:11] == b"\x00\x0a\x00\x0a"


@pytest.mark.parametrize("service", [1, 2], indirect=True, ids=["one worker", "two workers"])
def test_clients_that_connect_while_all_processes_are_dead_wait_for_the_next(service: Service) -> None:
    workers = service.config["workers"]
    wait_for("the store", lambda: service.manager.listeners() == ["plain"] * workers)
    for _ in range(2):
        service.kill_all()
        # Enough of them for each worker's socket.
        clients = [waiting_client(service.port) for _ in range(20)]
        service.start()
        assert all(map(is_served, clients))
        wait_for("the store", lambda: service.manager.listeners() == ["plain"] * workers)


@pytest.mark.parametrize("service", [2], indirect=True)
def test_no_connection_goes_to_a_kept_socket_of_a_worker_that_is_gone(service: Service) -> None:
    wait_for("the store", lambda: service.manager.listeners() == ["plain", "plain"])
    assert service.process is not None
    readies, removals = len(service.entries("ready")), service.manager.removals
    supervisor = children_of(service.process.pid)[1]
    worker = children_of(supervisor)[0]
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    wait_for("another worker", lambda: len(service.entries("ready")) > readies)
    # What the service manager was told of it is read in its own time.
    wait_for("its removal", lambda: service.manager.removals > removals)
    wait_for("the store", lambda: service.manager.listeners() == ["plain", "plain"])
    assert all(is_served(waiting_client(service.port)) for _ in range(40))


@pytest.mark.parametrize(("service", "after"), [(1, 2), (2, 1)], indirect=["service"], ids=["more", "fewer"])
def test_another_number_of_workers_begins_with_sockets_of_its_own(service: Service, after: int) -> None:
    wait_for("the store", lambda: len(service.manager.kept) == service.config["workers"])
    service.kill_all()
    service.config["workers"] = after
    service.start()
    wait_for("the store", lambda: service.manager.listeners() == ["plain"] * after)
    assert all(is_served(waiting_client(service.port)) for _ in range(20))


def test_what_is_listened_on_no_more_is_kept_no_more(service: Service) -> None:
    wait_for("the store", lambda: service.manager.listeners() == ["plain"])
    old, other = service.port, free_port()
    service.config["listeners"]["second"] = {"host": "127.0.0.1", "port": other}
    service.file.write_text(yaml.safe_dump(service.config))
    service.ctl("CONFIG", "RELOAD")
    wait_for("the store", lambda: service.manager.listeners() == ["plain", "second"])
    # One gets another name, with its socket; the other is gone.
    service.config["listeners"] = {"renamed": {"host": "127.0.0.1", "port": other}}
    service.file.write_text(yaml.safe_dump(service.config))
    service.ctl("CONFIG", "RELOAD")
    wait_for("the store", lambda: service.manager.listeners() == ["renamed"])
    with pytest.raises(ConnectionRefusedError):
        waiting_client(old)
    service.kill_all()
    client = waiting_client(other)
    service.start()
    assert is_served(client)
    service.ctl("EXIT")
    wait_for("an empty store", lambda: not service.manager.kept)
    with pytest.raises(ConnectionRefusedError):
        waiting_client(other)


def test_kills_and_planned_restarts_of_the_worker_change_nothing(service: Service) -> None:
    wait_for("the store", lambda: service.manager.listeners() == ["plain"])
    assert service.process is not None
    for step in (signal.SIGKILL, signal.SIGUSR2):
        before = len(service.entries("ready"))
        pid = service.process.pid if step == signal.SIGUSR2 else children_of(service.process.pid)[0]
        os.kill(pid, step)
        wait_for("a successor", lambda before=before: len(service.entries("ready")) > before)
        wait_for("the store", lambda: service.manager.listeners() == ["plain"])
        assert accepts(service.port)


@pytest.mark.parametrize("wrong", ["listeners: 7\n", ""], ids=["wrong", "empty"])
def test_a_router_that_cannot_start_leaves_no_client_waiting(service: Service, wrong: str) -> None:
    wait_for("the store", lambda: service.manager.listeners() == ["plain"])
    service.kill_all()
    waiting_client(service.port).close()
    port, service.config = service.port, yaml.safe_load(wrong)
    service.run()
    assert service.process is not None and service.process.wait(30) != 0
    wait_for("an empty store", lambda: not service.manager.kept)
    with pytest.raises(ConnectionRefusedError):
        waiting_client(port)


def test_an_address_that_cannot_be_had_leaves_no_client_waiting(service: Service) -> None:
    wait_for("the store", lambda: service.manager.listeners() == ["plain"])
    service.kill_all()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = service.port
        service.config["listeners"]["second"] = {"host": "127.0.0.1", "port": taken.getsockname()[1]}
        service.run()
        assert service.process is not None and service.process.wait(30) != 0
    wait_for("an empty store", lambda: not service.manager.kept)
    with pytest.raises(ConnectionRefusedError):
        waiting_client(port)


def test_a_manager_that_is_slow_to_hear_misses_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock, tempfile.TemporaryDirectory() as directory:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        line.bind(f"{directory}/notify")
        most = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
        listeners = [(f"n{number}", "", 5672, [sock.fileno()]) for number in range(most)]
        store = service_manager.ListenerStore(
            service_manager.ServiceManager({"NOTIFY_SOCKET": line.getsockname()}), 0, 1
        )
        telling = threading.Thread(target=store.keep, args=(listeners,))
        telling.start()
        # It has begun, and holds as much as it can.
        wait_for("a full queue", lambda: select.select([line], [], [], 0)[0] and telling.is_alive())
        heard = 0
        line.settimeout(30)
        while heard < 2 * most:
            _, numbers, _, _ = socket.recv_fds(line, 4096, 1)
            heard += 1
            for one in numbers:
                os.close(one)
        telling.join()
        line.close()


def test_names() -> None:
    one = StoredListener(1, 2, "a/b:c d", "::1", 5672, ())
    assert one.name == "1/2/a%2Fb%3Ac%20d/%3A%3A1/5672"
    assert one._replace(listener="x" * 250).name == ""


def test_what_others_were_given_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        monkeypatch.setattr(service_manager, "_FIRST", sock.fileno())
        names = {"LISTEN_PID": "7", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "0/1/plain/127.0.0.1/5672"}
        expected = StoredListener(0, 1, "plain", "127.0.0.1", 5672, (sock.fileno(),))
        assert service_manager.stored_listeners(names, 7) == [expected]
        assert service_manager.listeners_of(service_manager.words_of([expected])) == [expected]
        assert not service_manager.stored_listeners(names, 8)
        assert not service_manager.stored_listeners({}, 7)
        for other in ("amqp.socket", "stored", "0/1/plain/127.0.0.1", "0/1/plain/127.0.0.1/http", "x/1/a/b/1"):
            assert not service_manager.stored_listeners(names | {"LISTEN_FDNAMES": other}, 7)
    # Closed by now.
    assert not service_manager.listeners_of(service_manager.words_of([expected]))


@pytest.mark.parametrize(
    ("more", "place", "stored"),
    [
        ([], ALONE, "[]"),
        (["[]"], ALONE, "[]"),
        (['[[0, 1, "plain", "", 5672, [7]]]'], ALONE, '[[0, 1, "plain", "", 5672, [7]]]'),
        (["1", "2", "/run/leader", "5", "6"], Place(1, 2, "/run/leader", 5, 6), "[]"),
        (["1", "2", "/run/leader", "5", "6", "[]"], Place(1, 2, "/run/leader", 5, 6), "[]"),
    ],
)
def test_a_supervisor_is_started_by_a_group_of_before_an_upgrade_too(
    monkeypatch: pytest.MonkeyPatch, more: list[str], place: Place, stored: str
) -> None:
    made: list[supervisor.Supervisor] = []

    def run(self: supervisor.Supervisor) -> int:
        made.append(self)
        return 0

    monkeypatch.setattr(supervisor.Supervisor, "run", run)
    monkeypatch.setattr(supervisor, "close_all_but", lambda kept: None)
    monkeypatch.setattr(supervisor.resource, "setrlimit", lambda *_: None)
    assert supervisor.main(["file", "1.5", *more]) == 0
    (one,) = made
    assert (one.config, one.drain, one.place, one._stored) == ("file", 1.5, place, stored)


def test_a_worker_is_started_by_a_supervisor_of_before_an_upgrade_too() -> None:
    fields = dataclasses.fields(Start)
    first = ["path", "drain", "journal", "line", "kept", "recover", "predecessor", "store", "place", "turn"]
    assert [one.name for one in fields][: len(first)] == first
    assert all(one.default is not dataclasses.MISSING for one in fields[len(first) :])
