"""What a reader returns, and the HTTP calls that several readers make."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

CALL_TIMEOUT_S = 5
# The host's own TCP sockets; the second is not there without IPv6 (proc_net(5)).
SOCKET_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


@dataclass(frozen=True)
class Health:
    """A state, whether a copy is in sync, and the words it was read from.

    `state` is one of active, passive, syncing, starting and failed.
    """

    state: str
    in_sync: bool
    detail: str


def get(url: str, ca: str = "", headers: dict[str, str] | None = None, data: bytes | None = None) -> bytes:
    """Return the body of the answer from `url`, without any proxy; POST where there is `data`.

    `ca`: path of the only CA that is trusted; empty for plain HTTP. Raises OSError (URLError, HTTPError) without a
    usable answer.
    """
    handlers: list[Any] = [ProxyHandler({})]
    if ca:
        handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
    request = Request(url, data=data, headers=headers or {})
    with build_opener(*handlers).open(request, timeout=CALL_TIMEOUT_S) as reply:
        return reply.read()


def get_json(url: str, ca: str, headers: dict[str, str] | None = None, data: bytes | None = None) -> Any:
    """Return the JSON at `url`, as `get`. Raises also ValueError where the answer is no JSON."""
    return json.loads(get(url, ca, headers, data))


def listening_ports(tables: Iterable[Path] = SOCKET_TABLES) -> set[int]:
    """Return the TCP ports on which something listens on this host, at whatever address."""
    rows = (row.split() for table in tables if table.exists() for row in table.read_text().splitlines()[1:])
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENS}
