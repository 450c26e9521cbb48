"""The toy broker: it greets whoever knows the password."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from .answer import CALL_TIMEOUT_S, Health


def health_of(answer: dict[str, Any]) -> Health:
    """Return the health that the answer to `hello` amounts to."""
    return Health(str(answer.get("state", "starting")), True, json.dumps(answer))


def read(descriptor: dict[str, Any]) -> Health:
    """Ask the broker. Raises OSError or ValueError without a usable answer."""
    (listener,) = descriptor["listeners"]
    password = json.loads(Path(descriptor["credentials"]["file"]).read_text())["password"]
    with socket.create_connection((listener["address"], listener["port"]), timeout=CALL_TIMEOUT_S) as line:
        line.sendall(json.dumps({"op": "hello", "password": password}).encode() + b"\n")
        return health_of(json.loads(line.makefile().readline()))
