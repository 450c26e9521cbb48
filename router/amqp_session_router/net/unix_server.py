"""Servers at Unix sockets that are not theirs alone."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def serve(handler: Handler, listening: socket.socket, **options: Any) -> asyncio.Server:
    """Return a server that hands each connection at `listening` to `handler`; `options`: asyncio's own.

    Its end leaves the socket's file where it is: from Python 3.13 on asyncio removes that, and the process that takes
    the socket over would serve where nobody finds it.
    """
    if sys.version_info >= (3, 13):
        options["cleanup_socket"] = False
    return await asyncio.start_unix_server(handler, sock=listening, **options)
