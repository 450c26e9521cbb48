"""The name server: whether it knows a name that it must (RFC 1035)."""

from __future__ import annotations

import socket
import struct
from typing import Any

from .answer import CALL_TIMEOUT_S, Health

_ID = 0x6264
_RECURSION_DESIRED = 0x0100
_ANY, _INTERNET = 255, 1


def question(name: str) -> bytes:
    """Return a query for all that is known of `name`."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    header = struct.pack("!6H", _ID, _RECURSION_DESIRED, 1, 0, 0, 0)
    return header + labels + b"\0" + struct.pack("!2H", _ANY, _INTERNET)


def answers(reply: bytes) -> int:
    """Return how many records a reply has. Raises ValueError for what is no reply to `question`, and where it is an
    error."""
    if len(reply) < struct.calcsize("!6H"):
        raise ValueError("the reply is cut off")
    number, flags, _questions, count, _authorities, _additional = struct.unpack_from("!6H", reply)
    if number != _ID:
        raise ValueError("the reply is to another question")
    if flags & 0xF:
        raise ValueError(f"the name server answers with error {flags & 0xF}")
    return int(count)


def read(descriptor: dict[str, Any]) -> Health:
    """Ask a name server. Raises OSError without a usable answer."""
    listener = descriptor["listeners"][0]
    name = descriptor["asks"]
    family = socket.AF_INET6 if ":" in listener["address"] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as line:
        line.settimeout(CALL_TIMEOUT_S)
        line.connect((listener["address"], listener["port"]))
        line.send(question(name))
        try:
            count = answers(line.recv(4096))
        except ValueError as error:
            return Health("failed", False, str(error))
    if not count:
        return Health("failed", False, f"it does not know {name}")
    return Health("active", True, f"it knows {name}")
