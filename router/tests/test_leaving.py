"""A router that leaves closes its sessions at a rate, within its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from router_fakes import FakeSession
from router_support import config_of, local_router_of
from test_sessions import Client, FakeBroker

from amqp_session_router.amqp import codec
from amqp_session_router.base.model import Identity, Phase
from amqp_session_router.session.leaving import Leaving


class Loop:
    """An event loop's clock and timers, which go on when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Any] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, act: Callable[[], None]) -> Any:
        timer = asyncio.TimerHandle(when, act, (), self)  # type: ignore[arg-type]
        self.timers.append(timer)
        return timer

    def call_later(self, seconds: float, act: Callable[[], None]) -> Any:
        return self.call_at(self.now + seconds, act)

    def _timer_handle_cancelled(self, timer: Any) -> None:
        self.timers.remove(timer)

    def get_debug(self) -> bool:
        return False

    def run(self, until: float) -> None:
        """Let time pass."""
        while due := [timer for timer in self.timers if timer.when() <= until]:
            timer = min(due, key=lambda one: one.when())
            self.timers.remove(timer)
            self.now = max(self.now, timer.when())
            timer._callback()
        self.now = until


def leaving_of(count: int, early: int = 0) -> tuple[Leaving, Loop, list[FakeSession], list[float]]:
    """Return what closes so many open sessions and some that are not open yet, and when it cut the rest."""
    sessions = [FakeSession(Identity("v")) for _ in range(count + early)]
    for session in sessions[:count]:
        session.phase = Phase.OPEN
    loop, cut = Loop(), list[float]()
    live = {session.id: session for session in sessions}
    leaving = Leaving(loop, lambda: live, lambda: cut.append(loop.now))  # type: ignore[arg-type, return-value]
    return leaving, loop, sessions, cut


def told(sessions: list[FakeSession]) -> int:
    return sum(bool(session.told) for session in sessions)


def test_without_a_rate_all_at_once() -> None:
    leaving, loop, sessions, cut = leaving_of(50, early=3)
    leaving.begin(30.0, None)
    assert told(sessions) == 53 and sessions[0].told == [("disconnect", 320, "the router is leaving; connect again")]
    loop.run(200.0)
    assert cut == [130.0] and all(len(session.told) == 1 for session in sessions)


def test_so_many_a_second_and_those_that_are_not_open_at_once() -> None:
    leaving, loop, sessions, cut = leaving_of(100, early=3)
    leaving.begin(60.0, 5.0)
    assert told(sessions[100:]) == 3 and told(sessions[:100]) == 1
    for second in range(1, 20):
        loop.run(100.0 + second)
        assert 5 * second - 1 <= told(sessions[:100]) <= 5 * second + 1
    loop.run(121.0)
    assert told(sessions) == 103 and cut == []
    assert all(len(session.told) == 1 for session in sessions)


@pytest.mark.parametrize("count", [10, 1000, 30_000])
def test_all_have_their_close_in_four_fifths_of_the_time(count: int) -> None:
    leaving, loop, sessions, cut = leaving_of(count)
    leaving.begin(10.0, 1.0)
    most = 0
    for step in range(1, 81):
        before = told(sessions)
        loop.run(100.0 + step / 10)
        most = max(most, told(sessions) - before)
    loop.run(108.1)
    assert told(sessions) == count
    # No more at a time than that needs: 0.1 s of it, and what a tick gathers.
    assert most <= count / 80 * 2 + 1
    loop.run(111.0)
    assert cut == [110.0]


def test_asked_again_it_may_only_be_sooner() -> None:
    leaving, loop, sessions, cut = leaving_of(1000)
    leaving.begin(100.0, 10.0)
    loop.run(110.0)
    leaving.begin(500.0, 10.0)
    leaving.begin(20.0, 10.0)
    # 1000 in 80 s, and none by asking.
    assert told(sessions) <= 130
    loop.run(126.2)
    assert told(sessions) == 1000
    loop.run(700.0)
    assert cut == [130.0]


def test_one_that_ended_by_itself_takes_no_turn() -> None:
    leaving, loop, sessions, _ = leaving_of(20)
    leaving.begin(60.0, 1.0)
    for session in sessions[1:15]:
        session.phase = Phase.CLOSING
    loop.run(102.1)
    assert told(sessions) == 3


def closes(client: Client) -> None:
    """Wait for the Close of the client's session, and answer it."""
    assert client.closed() == (320, "the router is leaving; connect again")


def test_clients_are_told_one_after_the_other() -> None:
    def behave(broker: FakeBroker, peer: Any) -> None:
        broker.open(peer)
        peer.expect(codec.CLOSE)
        peer.send(codec.CLOSE_OK_FRAME)

    broker = FakeBroker(behave)
    config = config_of(broker.port, exit_rate=1)
    with local_router_of(config) as router:
        clients = [Client(router.port).opened() for _ in range(3)]
        router.exit(60.0)
        closes(clients[0])
        # The others have theirs only a second and two later.
        clients[2].sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            clients[2].frame()
        clients[2].sock.settimeout(20)
        closes(clients[1])
        closes(clients[2])
        router.thread.join(20)
        assert not router.thread.is_alive()
        (said,) = router.entries("leaving")
        assert (said["sessions"], said["rate"]) == (3, 1.0)
