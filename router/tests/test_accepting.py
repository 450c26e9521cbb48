"""How many connections a listener takes in at once: one where there is one, many where there are many."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

import pytest
from test_flow import run
from test_poller import KINDS
from test_transport import until

from amqp_session_router.base.model import Listener
from amqp_session_router.session import acceptor as module_under_test
from amqp_session_router.session.acceptor import Acceptor, OpenListener


@KINDS
def test_a_listener_asks_for_more_only_where_there_was_more(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question that finds nothing costs as much as half a message, and in a storm sessions wait for each turn."""
    asked: Counter[int] = Counter()
    accept = module_under_test.accept

    async def scene() -> None:
        polled = module.Poller(asyncio.get_running_loop())

        def counted(number: int) -> Any:
            asked[polled.turn] += 1
            return accept(number)

        monkeypatch.setattr(module_under_test, "accept", counted)
        taken: list[socket.SocketType] = []
        loop = asyncio.get_running_loop()
        acceptor = Acceptor(loop, polled, lambda sock, peer, opened: taken.append(sock), lambda: ())
        with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
            listening.setblocking(False)
            address = listening.getsockname()
            clients = [socket.create_connection(address) for _ in range(200)]
            opened = OpenListener(Listener("plain", *address), [listening], None)
            acceptor.read(opened)
            await until(lambda: len(taken) == 200)
            assert [*asked.values()][:7] == [1, 2, 4, 8, 16, 32, 64] and len(asked) == 9
            await asyncio.sleep(0.02)
            for number in range(3):
                asked.clear()
                clients.append(socket.create_connection(address))
                await until(lambda number=number: len(taken) == 201 + number)  # type: ignore[misc]
                await asyncio.sleep(0.02)
                # Something else happens in between, as it does of each session.
                assert [*asked.values()] == [1]
                clients[-1].close()
                sock = taken[-1]
                polled.watch(sock.fileno(), opened)
                polled.read(sock.fileno(), lambda sock=sock: (sock.recv(1), polled.forget(sock.fileno())))
                await asyncio.sleep(0.02)
            acceptor.unread(opened)
        polled.close()
        for one in (*clients, *taken):
            one.close()

    run(scene)
