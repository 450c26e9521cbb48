"""What one router process tells the next."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from amqp_session_router.app import Process
from amqp_session_router.handover import send
from amqp_session_router.journal import Journal
from amqp_session_router.plane import Plane
from amqp_session_router.server import Listeners
from amqp_session_router.service import Service


@pytest.mark.parametrize("words", [[{"settled": True}], [{"settled": True}, {"end": True}], []])
def test_a_predecessor_that_goes_without_reading_our_last_word(words: list[dict[str, Any]]) -> None:
    """Its end is an error then, of which libuv tells once and no more: the successor must not wait for ever."""

    async def scene() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = Process(cast(Service, None), 1.0, cast(Journal, None), ours)
        plane = Plane(asyncio.get_running_loop())
        process.server = cast(Listeners, SimpleNamespace(plane=plane))
        taking = asyncio.ensure_future(process._take_over(ours))
        # One turn: our word is sent, and the line is watched.
        await asyncio.sleep(0)
        for told in words:
            send(theirs, told)
        theirs.close()
        await asyncio.wait_for(taking, 5)
        await asyncio.sleep(0)
        plane.close()

    uvloop.run(scene())
