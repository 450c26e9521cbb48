"""A worker that is killed while it takes over from one that was killed: the journal says all again to the next one."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
from router_support import Router, config_of, router_of, wait_for
from test_survival import Talk, children, echo, worker  # noqa: F401  (a fixture)

from amqp_session_router.net import tcp_info
from amqp_session_router.net.tcp_info import counts
from amqp_session_router.process.recovery import recovered, rescue
from amqp_session_router.relay.journal import (
    ACTIVE_FLOW,
    ACTIVE_PIPE,
    HEADROOM,
    STAGED,
    STAGED_FLAG,
    UNKNOWN,
    Journal,
    create,
)
from amqp_session_router.relay.pipes import PipePool


class Killed(Exception):
    """In the tests' own process: from here on nothing more is done."""


@dataclass
class Scene:
    """A session between two real TCP connections, in a journal that outlives its processes."""

    number: int
    slot: int
    journal: Journal
    peer: socket.socket
    client: socket.socket

    def next_worker(self) -> Journal:
        return Journal(self.number)

    def found(self) -> tuple[bytes, bytes]:
        """What the next worker finds on its way from the client to the broker: in a pipe, and in its memory."""
        journal = self.next_worker()
        over = rescue(journal, PipePool())
        (one,) = journal.sessions()
        (state, _), (pipe, _) = recovered(journal, one, over)
        return b"" if pipe is None else os.read(pipe.read, 1 << 20), bytes.fromhex(state["outbox"])


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    return near, far


@pytest.fixture
def scene() -> Iterator[Scene]:
    peer, client = connected()
    broker, far = connected()
    number = create()
    journal = Journal(number)
    slot = journal.opened({"id": "s"}, client.fileno(), broker.fileno(), (0, 0))
    assert slot is not None
    yield Scene(number, slot, journal, peer, client)
    for sock in (peer, client, broker, far):
        sock.close()


def stage(scene: Scene, data: bytes, headroom: int = HEADROOM, flag: int = STAGED_FLAG) -> None:
    """The worker has read `data` into the staging area, and is killed before it writes it."""
    scene.peer.sendall(data)
    wait_for("the bytes", lambda: len(scene.client.recv(65536, socket.MSG_PEEK)) == len(data))
    scene.client.recv_into(scene.journal.staging[headroom:], len(data))
    scene.journal.cells[ACTIVE_FLOW] = scene.journal.first_cell(scene.slot) | flag
    scene.journal.cells[STAGED] = len(data)


def test_what_was_staged_is_found_by_each_of_several_that_are_killed(scene: Scene) -> None:
    stage(scene, b"x" * 5000)
    journal = scene.next_worker()
    rescue(journal, PipePool())
    (one,) = journal.sessions()
    assert one.rest[0] == UNKNOWN and one.pipes[0], "in a pipe of its own, whatever becomes of this worker"
    assert scene.found() == (b"x" * 5000, b"")


def test_what_a_worker_of_before_an_upgrade_had_staged_is_found_where_it_staged_it(scene: Scene) -> None:
    """With 8 bytes of headroom. The supervisor of before starts the newer worker."""
    stage(scene, bytes(range(200)), headroom=8, flag=1 << 32)
    assert scene.found() == (bytes(range(200)), b"")


@pytest.mark.parametrize("step", ["rescued", "clear_active"])
def test_a_worker_killed_between_two_steps_loses_and_doubles_nothing(
    scene: Scene, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(scene, b"y" * 300)

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Journal, step, dies)
        rescue(scene.next_worker(), PipePool())
    assert scene.found() == (b"y" * 300, b"")


def test_what_was_being_spliced_becomes_the_sessions_own(scene: Scene) -> None:
    pool = PipePool()
    pipe = pool.free[-1]
    scene.peer.sendall(b"z" * 700)
    wait_for("the bytes", lambda: len(scene.client.recv(65536, socket.MSG_PEEK)) == 700)
    os.splice(scene.client.fileno(), pipe.write, 700)
    scene.journal.cells[ACTIVE_PIPE] = pipe.ends
    scene.journal.cells[ACTIVE_FLOW] = scene.journal.first_cell(scene.slot)
    rescue(scene.next_worker(), PipePool())
    (one,) = scene.next_worker().sessions()
    assert one.pipes == (pipe.ends, 0) and one.splicing == (False, False)
    assert scene.found() == (b"z" * 700, b"")


def test_an_empty_pipe_is_given_up(scene: Scene) -> None:
    pipe = PipePool().acquire()
    scene.journal.rescued(scene.slot, 0, pipe.ends)
    assert scene.found() == (b"", b"")
    (one,) = scene.next_worker().sessions()
    assert one.pipes == (0, 0), "its numbers may be another's soon"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pipe.read)


def test_bytes_that_died_with_a_process_end_their_session_with_a_word(scene: Scene) -> None:
    scene.peer.sendall(b"gone")
    wait_for("the bytes", lambda: len(scene.client.recv(65536, socket.MSG_PEEK)) == 4)
    scene.client.recv(4)
    assert counts(scene.client).read == 4
    with pytest.raises(OSError, match="4 bytes were in the memory of the process that died"):
        scene.found()


def test_a_client_that_is_gone_ends_its_session_where_bytes_were_on_their_way(scene: Scene) -> None:
    """After a reset the kernel's counts are one off: the broker would get a frame without its first byte."""
    stage(scene, b"w" * 50)
    reset(scene.peer)
    wait_for("the reset", lambda: tcp_info.over(scene.client))
    with pytest.raises(OSError, match="in flight is unknown"):
        scene.found()


def test_a_session_whose_staged_bytes_nobody_can_tell_is_lost_with_a_word(scene: Scene) -> None:
    stage(scene, b"v" * 50)
    scene.journal.cells[STAGED] = 10
    with pytest.raises(OSError, match="in flight is unknown"):
        scene.found()


def others(router: Router, gone: int) -> list[int]:
    return [pid for pid in children(router) if pid != gone]


def test_killed_again_before_it_serves(echo: int) -> None:  # noqa: F811
    """Under load, at whatever place each is: sessions live, and every byte comes once and in order."""
    rng = random.Random(7)
    with router_of(config_of(echo)) as router:
        talk = Talk(router.port, 12, 5)
        for _ in range(4):
            before = talk.echoed
            while talk.echoed < before + 1_000_000:
                talk.turn(True)
            gone = worker(router)
            os.kill(gone, signal.SIGKILL)
            for _ in range(3):
                (new,) = wait_for("the next worker", partial(others, router, gone))
                end = time.monotonic() + rng.uniform(0, 0.5)
                while time.monotonic() < end:
                    talk.turn(True)
                os.kill(new, signal.SIGKILL)
                gone = new
            talk.finish()
        assert not router.entries("a session is lost")
        talk.close()
