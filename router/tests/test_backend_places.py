"""The most sessions of a backend, and its slow start."""

from __future__ import annotations

import collections
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from router_fakes import settings
from router_support import config_of, local_router_of, wait_for
from test_limits import lease, limiter
from test_sessions import Client, FakeBroker, Peer
from test_shared import Clock, workers

from amqp_session_router.amqp import codec
from amqp_session_router.base.model import NO_KEY, Backend, Identity, Route
from amqp_session_router.config.schema import LimitsPart
from amqp_session_router.routing.routes import Routes
from amqp_session_router.selection import selectors
from amqp_session_router.selection.markers import Markers

FULL = "farm all has as many sessions as it may; try again later"


@pytest.mark.parametrize("selector", selectors.OWN)
def test_a_full_backend_is_passed_over_by_every_selector(selector: str) -> None:
    brokers = FakeBroker(), FakeBroker()
    config = config_of(*(one.port for one in brokers))
    config["farms"]["all"] |= {"selector": selector, "key": {"type": "VHOST"}, "cache": {}}
    config["backends"]["b0"]["connections"] = 2
    config["backends"]["b1"]["connections"] = 3
    with local_router_of(config) as router:
        clients = [Client(router.port).opened() for _ in range(5)]
        assert [len(one.opened) for one in brokers] == [2, 3]
        assert Client(router.port).closed() == (320, FULL)
        rows = {row["name"]: row for row in router.ctl("BACKEND", "PRINT")}
        assert [(rows[name]["connections"], rows[name]["active"]) for name in ("b0", "b1")] == [(2, 2), (3, 3)]
        # Who was passed over was not attempted, and has not failed.
        assert sum(row["attempts"] for row in rows.values()) == 5
        assert router.ctl("STAT", "PRINT", "overall")["overall"]["failures"] == 0
        wait_for("its end", lambda: [one["how"] for one in router.entries("closed")] == ["limited"])
        # A place that is free is given to the next one.
        router.ctl("SESSION", router.ctl("CONN")[0]["id"], "FORCE_DISCONNECT")
        wait_for("its end", lambda: len(router.ctl("CONN")) == 4)
        clients.append(Client(router.port).opened())
        # More may come at once, and fewer leaves those that are there.
        router.ctl("BACKEND", "CONNECTIONS", "b0")
        clients.append(Client(router.port).opened())
        router.ctl("BACKEND", "CONNECTIONS", "b0", "1")
        assert Client(router.port).closed() == (320, FULL)
        assert len(router.ctl("CONN", "phase=open")) == 6


def test_an_attempt_has_a_place_until_it_has_failed() -> None:
    def behave(broker: FakeBroker, peer: Peer) -> None:
        if len(broker.vhosts) < 1:
            broker.until_open(peer)
            peer.sock.recv(1)
            peer.send(codec.close(403, "ACCESS_REFUSED"))
        else:
            broker.open(peer)

    broker = FakeBroker(behave)
    config = config_of(broker.port, timeouts={"backend_handshake": 60, "handshake": 60})
    config["backends"]["b0"]["connections"] = 1
    with local_router_of(config) as router:
        hangs = Client(router.port)
        wait_for("the attempt", lambda: broker.vhosts)
        assert Client(router.port).closed() == (320, FULL)
        hangs.sock.close()
        wait_for("its end", lambda: not router.ctl("CONN"))
        Client(router.port).opened()


def test_the_fallback_has_room_for_those_that_find_none() -> None:
    brokers = FakeBroker(), FakeBroker()
    config = config_of(*(one.port for one in brokers))
    config["backends"]["b0"]["connections"] = 1
    config["farms"] = {"all": {"members": ["b0"], "fallback": "spare"}, "spare": {"members": ["b1"]}}
    with local_router_of(config) as router:
        clients = [Client(router.port).opened() for _ in range(3)]
        assert [len(one.opened) for one in brokers] == [1, 2]
        del clients


@given(st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=25))
def test_several_workers_have_as_many_places_as_one(steps: list[tuple[int, bool]]) -> None:
    several, _ = workers(2, Clock(), unauthenticated_per_address=None)
    for one in several:
        one.apply(LimitsPart(unauthenticated_per_address=None), {"b": Backend("b", "h", connections=3)})
    held = []
    for worker, comes in steps:
        if comes:
            found = lease(several[worker])
            assert found.occupy("b") == (len(held) < 3)
            if len(held) < 3:
                held.append(found)
        elif held:
            held.pop(0).release()
        assert [one.places.count("b") for one in several] == [len(held)] * 2


def test_those_a_process_took_over_count_and_a_most_that_comes_later_counts_all() -> None:
    limits, _ = limiter()
    taken = [limits.adopt("v", "u", "b") for _ in range(2)]
    assert lease(limits).occupy("b")
    limits.apply(LimitsPart(), {"b": Backend("b", "h", connections=3)})
    assert not lease(limits).occupy("b")
    taken[0].release()
    taken[0].release()
    again = lease(limits)
    assert again.occupy("b") and again.occupy("b") and not lease(limits).occupy("b")
    assert limits.violations.alarms == {"backend_connections": 2}


def test_it_is_passed_over_unmarked() -> None:
    routes = Routes(
        settings(
            backends={"a": {"host": "h"}, "b": {"host": "h"}},
            farms={"f": {"members": ["a", "b"]}},
            default={"farm": "f"},
        )
    )
    decision = routes.decide(Identity("v"), lambda name: name == "b")
    assert isinstance(decision, Route)
    assert [one.name for one in decision.candidates] == ["b"]
    assert (routes.markers.of("a").attempts, routes.markers.of("b").attempts) == (0, 1)


# --- slow start ---


@pytest.mark.parametrize("name", ["weighted", "rendezvous-hash"])
def test_a_backend_that_is_ready_again_gets_its_share_little_by_little(name: str) -> None:
    now = [0.0]
    each = [Backend("old", "h", slow_start=10), Backend("back", "h", slow_start=10)]
    markers = Markers(lambda: now[0])
    markers.checked("back", False)
    markers.checked("back", True)

    def share() -> float:
        got = collections.Counter(selectors.OWN[name](each, markers, f"key-{number}")[0].name for number in range(4000))
        return got["back"] / 4000

    # Its weight of 0, 1/4, 1 against 1; the standard deviation is below 0.008.
    for at, expected in ((0.0, 0.0), (2.5, 0.2), (10.0, 0.5), (1000.0, 0.5)):
        now[0] = at
        assert share() == pytest.approx(expected, abs=0.04)


def test_by_connections_it_is_filled_little_by_little() -> None:
    now = [0.0]
    each = [Backend("old", "h", slow_start=100), Backend("back", "h", slow_start=100, weight=2)]
    markers = Markers(lambda: now[0])
    for _ in range(200):
        markers.opened("old")
    markers.checked("back", False)
    markers.checked("back", True)
    came = []
    for second in range(101):
        now[0] = float(second)
        for _ in range(20):
            backend = selectors.least_connections(each, markers, NO_KEY)[0]
            markers.attempt(backend.name)
            markers.opened(backend.name)
        came.append(markers.of("back").active)
    # Never more than its share of the weight then, of those that are there.
    for second, count in enumerate(came):
        assert count <= 2 * max(0.01, second / 100) * markers.of("old").active + 1
    assert came[-1] == pytest.approx(2 * markers.of("old").active, rel=0.1)


def test_who_begins_slowly() -> None:
    now = [100.0]
    slow = {"host": "h", "slow_start": 10}
    parts = {"backends": {"a": slow, "b": slow | {"drain": True}}, "farms": {"f": {"members": ["a", "b"]}}}
    routes = Routes(settings(**parts))
    routes.markers._clock = lambda: now[0]
    a, b, c = Backend("a", "h", slow_start=10), Backend("b", "h", slow_start=10), Backend("c", "h", slow_start=10)
    # All at a start.
    assert [routes.markers.share(one) for one in (a, b)] == [1.0, 1.0]
    routes.apply(settings(backends={"a": slow, "b": slow, "c": slow}))
    assert [routes.markers.share(one) for one in (a, b, c)] == [1.0, 0.01, 0.01]
    now[0] += 5
    routes.apply(settings(backends={"a": slow, "b": slow | {"weight": 2}, "c": slow}))
    assert [routes.markers.share(one) for one in (a, b, c)] == [1.0, 0.5, 0.5]
    assert routes.markers.share(Backend("c", "h")) == 1.0
    # What a check found twice is no news.
    routes.markers.checked("a", True)
    assert routes.markers.share(a) == 1.0
    assert routes.markers.copy().share(b) == 0.5


def test_least_connections_without_slow_start_is_as_it_was() -> None:
    rng = random.Random(3)
    markers = Markers()
    each = [Backend(f"b{number}", "h", weight=number) for number in range(4)]
    for _ in range(200):
        name = f"b{rng.randrange(4)}"
        markers.attempt(name)
        markers.opened(name)
        ranked = selectors.least_connections(each, markers, NO_KEY)
        assert ranked[-1].name == "b0"
        loads = [markers.of(one.name).active / one.weight for one in ranked[:-1]]
        assert loads == sorted(loads)
