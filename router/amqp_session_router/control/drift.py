"""Where instances that are to be the same are not: the running configuration, its file, and other routers'.

Routers show each other digests of sections, at the path `/digests` of their status pages, and nothing of what is in
them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from amqp_session_router.base.errors import UsageError
from amqp_session_router.config import loader
from amqp_session_router.config.digests import OWN
from amqp_session_router.config.schema import StatusPart
from amqp_session_router.control.endpoints import DIGESTS, PAUSED
from amqp_session_router.control.service import Service

_TIMEOUT = 5.0
_LARGEST_ANSWER = 64 * 1024
_FILE = "file"
UNREADABLE = "unreadable"
NO_ANSWER = "no answer"


async def rows(service: Service, peers: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each section: its digest here, in the file as it is on disk and at each of `peers` (`HOST` or
    `HOST:PORT` of a status page), and which of them differ. Raises UsageError for what is no address."""
    urls = {peer: _url(peer) for peer in peers}
    file, *answers = await asyncio.gather(asyncio.to_thread(_of_file, service), *map(_of_peer, urls.values()))
    return table(service.endpoints.digests(), file, dict(zip(peers, answers, strict=True)))


def table(
    running: Mapping[str, str], file: Mapping[str, str] | None, peers: Mapping[str, Mapping[str, str] | None]
) -> list[dict[str, Any]]:
    """Return the rows. None: a file that is wrong, a peer that does not answer; both differ in all."""
    found = []
    for section, here in running.items():
        row: dict[str, Any] = {"section": section, "differs": "", "own": section in OWN, "running": here}
        differ = []
        # Paused vhosts stand in no file.
        row[_FILE] = "" if section == PAUSED else UNREADABLE if file is None else file[section]
        if section != PAUSED and row[_FILE] != here:
            differ.append(_FILE)
        for peer, theirs in peers.items():
            row[peer] = NO_ANSWER if theirs is None else theirs.get(section, "")
            if theirs is None or (section not in OWN and row[peer] != here):
                differ.append(peer)
        row["differs"] = ", ".join(differ)
        found.append(row)
    return found


def _of_file(service: Service) -> Mapping[str, str] | None:
    try:
        return loader.load(service.configuration.file).digests
    except UsageError:
        return None


async def _of_peer(url: str) -> Mapping[str, str] | None:
    # Not by all: to import it takes 0.03 s of a start, and few routers are asked.
    import httpx

    try:
        async with asyncio.timeout(_TIMEOUT), httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT) as client:
            raw = b""
            async with client.stream("GET", url) as reply:
                reply.raise_for_status()
                async for chunk in reply.aiter_bytes():
                    raw += chunk
                    if len(raw) > _LARGEST_ANSWER:
                        return None
        answer = json.loads(raw)
    except (httpx.HTTPError, TimeoutError, OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def _url(peer: str) -> str:
    try:
        parts = urlsplit(f"//{peer}")
        host, port = parts.hostname, parts.port or StatusPart().port
    except ValueError:
        host = None
    if not host or parts.netloc != peer or parts.username is not None:
        raise UsageError(f"{peer!r} is no HOST or HOST:PORT of another router's status page")
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{DIGESTS}"
