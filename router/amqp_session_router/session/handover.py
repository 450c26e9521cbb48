"""The channel between two workers during a planned restart: packets of JSON with file descriptors.

A SOCK_SEQPACKET pair. The successor asks `state`, prepares itself, then says `go`, and `more` for each packet of
sessions that it took. A packet is one byte with descriptors beside it (SCM_RIGHTS); the first is a memfd with the JSON,
so a packet is always sent whole and may be of any size.
"""

from __future__ import annotations

import array
import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

log = logging.getLogger(__name__)

MOST_DESCRIPTORS = 252
"""Of one packet: the kernel passes at most 253, one of which is the JSON."""
TIMEOUT = 30.0
"""Seconds that the other end may take to make room for a packet, or to answer."""

Message = dict[str, Any]
Send = Callable[[Message, Sequence[int]], Awaitable[None]]


def send(line: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send one packet; raises BlockingIOError or TimeoutError if there is no room, OSError."""
    payload = os.memfd_create("amqp-session-router-handover")
    try:
        with os.fdopen(os.dup(payload), "wb") as out:
            out.write(json.dumps(message, separators=(",", ":")).encode())
        rights = array.array("i", [payload, *descriptors])
        line.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    finally:
        os.close(payload)


async def send_when_possible(line: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send one packet on a non-blocking socket, once there is room; raises TimeoutError, OSError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                send(line, message, descriptors)
                return
            except BlockingIOError:
                room: asyncio.Future[None] = loop.create_future()
                loop.add_writer(line.fileno(), _resolve, room)
                try:
                    await room
                finally:
                    loop.remove_writer(line.fileno())


async def say(line: socket.socket, message: Message) -> None:
    """Send to the process at the other end, which may be gone and need no answer."""
    try:
        await send_when_possible(line, message)
    except OSError as error:
        log.info("the other process is gone: a message was not sent: %s", error, extra=message)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def receive(line: socket.socket) -> tuple[Message, list[int]] | None:
    """Return one packet with its descriptors, None at the end. Raises BlockingIOError or TimeoutError, OSError."""
    space = socket.CMSG_SPACE((MOST_DESCRIPTORS + 1) * array.array("i").itemsize)
    data, ancillary, _, _ = line.recvmsg(1, space, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    numbers = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    if not numbers:
        raise OSError(0, "a packet came without its content: there are no descriptors left")
    payload, *descriptors = numbers
    with os.fdopen(payload, "rb") as file:
        file.seek(0)
        found: Message = json.load(file)
    return found, descriptors
