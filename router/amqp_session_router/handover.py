"""From one router process to the next: the form of what is told, and both ends of the line between them.

The line is a SOCK_SEQPACKET pair. The successor asks `state`, makes itself ready, then says `go`. The predecessor
answers with packets of JSON, their descriptors beside them (SCM_RIGHTS, at most 253 a packet).
"""

from __future__ import annotations

import array
import json
import socket
from typing import Any

MOST_DESCRIPTORS = 253
_LARGEST = 160_000


def send(line: socket.socket, told: dict[str, Any], descriptors: list[int] | None = None) -> None:
    """Send one packet; blocks. Raises OSError."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    line.sendmsg([json.dumps(told, separators=(",", ":")).encode()], rights)


def receive(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return one packet with its descriptors, None at the end. Raises OSError."""
    space = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)
    data, ancillary, _, _ = line.recvmsg(_LARGEST, space, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    numbers = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    found: dict[str, Any] = json.loads(data)
    return found, list(numbers)


class Batches:
    """Gathers sessions until a packet is full."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._facts: list[dict[str, Any]] = []
        self._descriptors: list[int] = []
        self._size = 0

    def add(self, facts: dict[str, Any], descriptors: list[int]) -> None:
        """Add one session; `facts["descriptors"]` says how many are its own."""
        size = len(json.dumps(facts))
        if len(self._descriptors) + len(descriptors) > MOST_DESCRIPTORS or self._size + size > _LARGEST // 2:
            self.flush()
        self._facts.append(facts | {"descriptors": len(descriptors)})
        self._descriptors += descriptors
        self._size += size

    def flush(self) -> None:
        """Send what was gathered."""
        if self._facts:
            send(self._line, {"sessions": self._facts}, self._descriptors)
            self._facts, self._descriptors, self._size = [], [], 0
