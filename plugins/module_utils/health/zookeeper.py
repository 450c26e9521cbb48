"""ZooKeeper: the four-letter word `srvr`, with the host's own certificate."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from .answer import CALL_TIMEOUT_S, Health


def health_of(answer: str) -> Health:
    """Return the health that the answer to `srvr` amounts to: a member serves once the ensemble has a leader."""
    for line in answer.splitlines():
        if line.startswith("Mode: "):
            return Health("active", True, line[len("Mode: ") :].strip())
    return Health("starting", False, (answer.strip() or "no answer").splitlines()[0])


def read(descriptor: dict[str, Any]) -> Health:
    """Ask a member. Raises OSError or ValueError without a usable answer."""
    (client,) = [item for item in descriptor["listeners"] if item["name"] == "client"]
    context = ssl.create_default_context(cafile=descriptor["tls"]["ca"])
    context.load_cert_chain(descriptor["tls"]["bundle"])
    plain = socket.create_connection((client["address"], client["port"]), timeout=CALL_TIMEOUT_S)
    with plain, context.wrap_socket(plain, server_hostname=client["address"]) as stream:
        stream.sendall(b"srvr")
        answer = b""
        while chunk := stream.recv(4096):
            answer += chunk
    return health_of(answer.decode(errors="replace"))
