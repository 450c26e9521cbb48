"""What one router process tells the next, and what becomes of sessions that it cannot tell."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from router_support import config_of, local_router_of, wait_for
from test_sessions import Client, FakeBroker, Peer, received
from test_transport import until

from amqp_session_router.amqp import codec
from amqp_session_router.base.model import Backend
from amqp_session_router.control.saved_state import Running
from amqp_session_router.net import event_loop
from amqp_session_router.process.config_store import ConfigStore
from amqp_session_router.process.lifecycle import Death, Step, after
from amqp_session_router.process.place import ALONE
from amqp_session_router.process.shared_memory import SharedMemory
from amqp_session_router.process.successor import Successor
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.journal import SERVING, STARTING, TAKING_OVER, Journal
from amqp_session_router.session import handover
from amqp_session_router.session.handing_over import HandingOver
from amqp_session_router.session.handover import MOST_DESCRIPTORS, receive, send, send_when_possible
from amqp_session_router.session.listeners import Listeners
from amqp_session_router.session.session_table import SessionTable


@pytest.mark.parametrize("words", [[{"settled": True}], [{"settled": True}, {"end": True}], []])
def test_a_predecessor_that_goes_without_reading_our_last_word(words: list[dict[str, Any]]) -> None:
    """Its end is an error then, of which libuv tells once and no more: the successor must not wait for ever."""

    async def scene() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        relay = RelayContext(asyncio.get_running_loop())
        successor = Successor(
            ours,
            cast(Journal, SimpleNamespace(cells=[0] * 16)),
            SharedMemory(ALONE, 0, anew=True),
            cast(Listeners, None),
            cast(SessionTable, SimpleNamespace(relay=relay, live={})),
            lambda name: Backend(name, ""),
        )
        taking = asyncio.ensure_future(successor.take_over())
        # Two turns: the line is watched, and our word is sent.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for word in words:
            send(theirs, word)
        theirs.close()
        await asyncio.wait_for(taking, 5)
        await asyncio.sleep(0)
        relay.close()

    event_loop.run(scene())


async def taken() -> None:
    """Say at once that what was sent has been taken."""


def test_a_process_whose_only_session_nobody_takes_goes_on_with_it() -> None:
    broker = FakeBroker()
    with local_router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()

        async def send_nothing(message: dict[str, Any], numbers: Sequence[int] = ()) -> None:
            if "sessions" in message:
                raise BrokenPipeError(errno.EPIPE, "Broken pipe")

        async def give() -> None:
            with pytest.raises(BrokenPipeError):
                await HandingOver(router.listeners, router.sessions, send_nothing, taken).give_all()

        router.do(give())
        assert not router.sessions.gone.is_set()
        client.send(codec.HEARTBEAT)
        assert received(broker.opened[0].sock, len(codec.HEARTBEAT)) == codec.HEARTBEAT
        for one in (client, broker.opened[0]):
            one.sock.close()
        wait_for("end of the session", router.sessions.gone.is_set)


def test_a_session_that_opens_while_listeners_are_given_is_given_once() -> None:
    """It is met twice: as one that has just opened, and among all that are open."""
    opens = threading.Event()

    def late(broker: FakeBroker, peer: Peer) -> None:
        broker.until_open(peer)
        broker.opened.append(peer)
        assert len(broker.opened) == 1 or opens.wait(20)
        peer.send(codec.OPEN_OK_FRAME)

    broker = FakeBroker(late)
    packets: list[list[str]] = []
    with local_router_of(config_of(broker.port)) as router:
        clients = [Client(router.port).opened(), Client(router.port)]

        async def give() -> None:
            given = HandingOver(router.listeners, router.sessions, send_slowly, all_met)
            handing_over.append(given)
            assert await given.give_all() == 1

        async def send_slowly(message: dict[str, Any], numbers: Sequence[int] = ()) -> None:
            if "listener" in message:
                opens.set()
                await until(lambda: packets)
            else:
                packets.append([one["id"] for one in message["sessions"]])

        async def all_met() -> None:
            if len(packets) == 1:
                await until(lambda: handing_over[0]._batch)

        handing_over: list[HandingOver] = []
        wait_for("second session", lambda: len(broker.opened) == 2)
        router.do(give())
        wait_for("end of all", router.sessions.gone.is_set)
        for client in clients:
            client.sock.close()
    assert [len(packet) for packet in packets] == [1, 1] and packets[0] != packets[1]


def channel() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for one in (ours, theirs):
        one.setblocking(False)
    return ours, theirs


@pytest.mark.parametrize("size", [10, 80_000, 4_000_000])
def test_a_packet_of_any_size_goes_whole_with_its_descriptors(size: int) -> None:
    """A SOCK_SEQPACKET socket takes some 200 kB: the text goes beside it."""
    ours, theirs = channel()
    read, write = os.pipe()
    send(ours, {"config": "x" * size}, [write] * (MOST_DESCRIPTORS - 1))
    found = receive(theirs)
    assert found is not None and found[0] == {"config": "x" * size} and len(found[1]) == MOST_DESCRIPTORS - 1
    os.write(found[1][-1], b"through")
    assert os.read(read, 10) == b"through"
    for number in (read, write, *found[1]):
        os.close(number)
    with pytest.raises(BlockingIOError):
        receive(theirs)
    ours.close()
    assert receive(theirs) is None
    theirs.close()


def test_who_sends_waits_for_room_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        ours, theirs = channel()
        sent = 0

        async def many(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                await send_when_possible(ours, {"sessions": "x" * 80_000})
                sent += 1

        sending = asyncio.ensure_future(many(2000))
        got = 0
        while not sending.done() or got < sent:
            await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError):
                while receive(theirs):
                    got += 1
        assert got == 2000
        # Nobody reads any more.
        monkeypatch.setattr(handover, "TIMEOUT", 0.2)
        with pytest.raises(TimeoutError):
            await many(10_000)
        theirs.close()
        with pytest.raises(OSError):
            await many(1)
        ours.close()

    event_loop.run(scene())


def test_the_last_good_configuration_is_whole_or_not_there() -> None:
    store = ConfigStore(number := os.memfd_create("test"))
    assert store.load() is None
    running = Running("base", {"a": 1}, ("v",))
    store.save("text" * 1000, running)
    assert ConfigStore(number).load() == ("text" * 1000, running)
    store.save("short", Running("b", None))
    assert store.load() == ("short", Running("b", None))
    os.pwrite(number, b"x", 40)
    assert store.load() is None
    os.close(number)


ALIVE, DEAD = True, False


@pytest.mark.parametrize(
    ("progress", "status", "predecessor", "protected", "served", "step"),
    [
        # The first worker never came to serve: its file is wrong, or it was killed.
        (STARTING, 64, DEAD, True, False, Step.END),
        (STARTING, None, DEAD, True, False, Step.START),
        # A successor that has taken nothing yet.
        (STARTING, 64, ALIVE, True, True, Step.FALL_BACK),
        (STARTING, None, ALIVE, True, True, Step.FALL_BACK),
        # ... and the predecessor died too: no file on disk ends a router that has served.
        (STARTING, 64, DEAD, True, True, Step.START),
        # A successor that has begun to take: what it took is in its journal, the rest still comes.
        (TAKING_OVER, None, ALIVE, True, True, Step.RECOVER),
        (TAKING_OVER, 70, ALIVE, True, True, Step.RECOVER),
        (TAKING_OVER, None, DEAD, True, True, Step.RECOVER),
        # One that serves, alone or while its predecessor lingers.
        (SERVING, None, DEAD, True, True, Step.RECOVER),
        (SERVING, None, ALIVE, True, True, Step.RECOVER),
        (SERVING, 70, DEAD, True, True, Step.RECOVER),
        (SERVING, 64, DEAD, True, True, Step.RECOVER),
        # After a restart that failed nobody holds its descriptors.
        (STARTING, None, DEAD, False, True, Step.START),
        (SERVING, None, DEAD, False, True, Step.START),
        # It was asked to leave.
        *[(progress, 0, DEAD, True, True, Step.END) for progress in (STARTING, TAKING_OVER, SERVING)],
    ],
)
def test_what_follows_a_death(
    progress: int, status: int | None, predecessor: bool, protected: bool, served: bool, step: Step
) -> None:
    assert after(Death(progress, status, predecessor, protected, served)) is step
