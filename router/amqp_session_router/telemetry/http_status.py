"""HTTP for machines: `/metrics`, `/metrics.json`, `/health` (the process answers), `/ready` (it can take sessions),
`/digests` (by which configuration it runs)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

Answer = tuple[int, str, bytes]
"""Status, content type, body."""

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Error", 503: "Not Ready"}
_ASKED, _ANSWERED = 5.0, 30.0
"""Seconds that a client may take for its request, and to read the answer."""
_LARGE, _MOST = 1 << 16, 16
"""Bytes of an answer that a client has to read on for, and how many such answers may be under way."""
_LARGEST_REQUEST = 16 * 1024


def json_answer(status: int, data: object) -> Answer:
    """Return `data` as a JSON answer."""
    return status, "application/json", json.dumps(data).encode() + b"\n"


class StatusServer:
    """Answers GET and HEAD of the paths in `pages`, one request a connection."""

    def __init__(self, pages: dict[str, Callable[[], Awaitable[Answer]]]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._large = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_LARGEST_REQUEST)

    @property
    def port(self) -> int:
        """The port that is bound, 0 if none is."""
        return self._server.sockets[0].getsockname()[1] if self._server is not None and self._server.sockets else 0

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_ASKED):
                head = await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(_ANSWERED):
                await self._reply(head, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that does not speak HTTP, or does not read, gets no answer
        finally:
            # What it has not read by now is dropped.
            writer.transport.abort()

    async def _reply(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        method, (status, kind, body) = await self._answer(head)
        large = len(body) > _LARGE
        if large and self._large >= _MOST:
            large = False
            status, kind, body = json_answer(503, {"error": f"{_MOST} clients have not read their answer yet"})
        self._large += large
        try:
            await self._send(writer, status, kind, body if method != "HEAD" else b"", len(body))
        finally:
            self._large -= large

    async def _send(self, writer: asyncio.StreamWriter, status: int, kind: str, body: bytes, length: int) -> None:
        writer.write(
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        writer.close()
        await writer.wait_closed()

    async def _answer(self, head: bytes) -> tuple[str, Answer]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return "GET", json_answer(400, {"error": "not an HTTP request"})
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return method, json_answer(405, {"error": "GET and HEAD only"})
        page = self._pages.get(path)
        if page is None:
            return method, json_answer(404, {"error": "no such path", "paths": [*self._pages]})
        try:
            return method, await page()
        except Exception:
            log.exception("a status page failed")
            return method, json_answer(500, {"error": "the router's log says why"})
