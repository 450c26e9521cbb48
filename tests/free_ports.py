"""TCP ports of loopback for what a test starts later."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST = 10_000
_given: set[int] = set()


def free_port() -> int:
    """Return a TCP port on which nothing listens now, none twice in this process.

    It lies below those that the kernel gives to outgoing connections: one of them may be in use as such by the time
    that a test's server wants to listen on it.
    """
    end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(LOWEST, end)
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
