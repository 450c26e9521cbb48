"""What a reader returns, and the HTTP calls that several readers make."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

CALL_TIMEOUT_S = 5


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
