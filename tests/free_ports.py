"""TCP ports of loopback for what a test starts later."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

LOWEST = 10_000
# pytest-xdist's test processes run side by side: each draws from ports of its own (one in so many).
_processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_given: set[int] = set()


def free_port() -> int:
    """Return a TCP port on which nothing listens now, none twice in one run of the tests.

    It lies below those that the kernel gives to outgoing connections: one of them may be in use as such by the time
    that a test's server wants to listen on it.
    """
    end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(LOWEST + _process, end, _processes)
        if port in _given:
            continue
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
