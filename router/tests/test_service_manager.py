"""What systemd hears of a router: ready once it is, and after a kill again; life while its event loop turns."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from router_support import accepts, config_of, router_of, wait_for
from tests.free_ports import free_port

from amqp_session_router.process.service_manager import ServiceManager


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket such as systemd gives a service, with a watchdog of 300 ms."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(f"{directory}/notify")
        line.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{directory}/notify")
        monkeypatch.setenv("WATCHDOG_USEC", "300000")
        yield line


def hear(line: socket.socket, wanted: bytes) -> None:
    """Return once `wanted` is said; raises TimeoutError."""
    while line.recv(4096) != wanted:
        pass


def worker_of(supervisor: int) -> int:
    """Return the process id of the only child."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


def test_ready_and_alive_before_and_after_a_kill(manager: socket.socket) -> None:
    with router_of(config_of(free_port())) as router:
        hear(manager, b"READY=1")
        assert accepts(router.port)
        for _ in range(3):
            hear(manager, b"WATCHDOG=1")
        assert router.process is not None
        os.kill(worker_of(router.process.pid), signal.SIGKILL)
        hear(manager, b"READY=1")
        hear(manager, b"WATCHDOG=1")


def test_a_stuck_event_loop_gives_no_sign_of_life(manager: socket.socket) -> None:
    with router_of(config_of(free_port())) as router:
        hear(manager, b"READY=1")
        assert router.process is not None
        worker = worker_of(router.process.pid)
        os.kill(worker, signal.SIGSTOP)
        try:
            wait_for("stop", lambda: Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "T")
            manager.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    manager.recv(4096)
            manager.settimeout(1)
            with pytest.raises(TimeoutError):
                manager.recv(4096)
        finally:
            os.kill(worker, signal.SIGCONT)
        manager.settimeout(30)
        hear(manager, b"WATCHDOG=1")


def test_without_a_manager_nobody_is_told() -> None:
    alone = ServiceManager({"WATCHDOG_USEC": "300000"})
    assert alone.beat is None
    alone.notify("READY=1")


def test_an_abstract_socket_and_one_that_is_gone() -> None:
    name = f"router-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind("\0" + name)
        told = ServiceManager({"NOTIFY_SOCKET": "@" + name})
        told.notify("READY=1", "STATUS=well")
        assert line.recv(4096) == b"READY=1\nSTATUS=well"
    told.notify("READY=1")
