"""The surplus of a farm's sessions, after a broker came back."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any

import pytest
from router_fakes import FakeSession, members, open_session, settings
from router_support import config_of, local_router_of, wait_for
from test_sessions import Client, FakeBroker

from amqp_session_router.amqp import codec
from amqp_session_router.base.errors import UsageError
from amqp_session_router.base.model import Identity, Phase
from amqp_session_router.base.paced import now
from amqp_session_router.control.rebalancing import Rebalancing
from amqp_session_router.routing.routes import Routes


def routes_of(counts: dict[str, int], backends: dict[str, Any], **farm: Any) -> tuple[Routes, list[FakeSession]]:
    """Return routes whose members have so many open sessions, the later ones younger."""
    farm = {"members": [*backends], "selector": "least-connections"} | farm
    routes = Routes(settings(backends=backends, farms={"f": farm}, default={"farm": "f"}, datacenter="here"))
    sessions = []
    for name, count in counts.items():
        for _ in range(count):
            session = open_session(routes, Identity("v"))
            session.backend, session.started = routes.settings.backends[name], float(len(sessions))
            sessions.append(session)
    return routes, sessions


def surplus(routes: Routes) -> dict[str, int]:
    """Return how many sessions each member has too many."""
    found = now(Rebalancing(routes).surplus(routes.settings.farms["f"]))
    return dict(collections.Counter(one.backend.name for one in found if one.backend is not None))


def test_what_is_beyond_a_members_part() -> None:
    assert surplus(routes_of({"a": 9, "b": 3, "c": 0}, members("a", "b", "c"))[0]) == {"a": 5}
    assert surplus(routes_of({"a": 4, "b": 4, "c": 3}, members("a", "b", "c"))[0]) == {}
    assert surplus(routes_of({"a": 8, "b": 0}, members("a") | members("b", weight=3))[0]) == {"a": 6}
    assert surplus(routes_of({"a": 8, "b": 0}, members("a", "b", weight=0))[0]) == {"a": 4}
    assert surplus(routes_of({"a": 5}, members("a"))[0]) == {}
    assert surplus(routes_of({}, members("a", "b"))[0]) == {}


def test_the_youngest_go() -> None:
    routes, sessions = routes_of({"a": 6, "b": 0}, members("a", "b"))
    assert now(Rebalancing(routes).surplus(routes.settings.farms["f"])) == sessions[:2:-1]


def test_nobody_is_sent_away_once_that_leads_nowhere() -> None:
    """The farm is deleted, made one that remembers, or its other member fails, when the first has gone."""

    async def after(change: Callable[[Routes], None]) -> int:
        routes, sessions = routes_of({"a": 6, "b": 0}, members("a", "b"), policies=["health"])
        rebalancing = Rebalancing(routes)
        assert await rebalancing.begin(routes.settings.farms["f"], 200) == 3
        while not any(one.phase is not Phase.OPEN for one in sessions):
            await asyncio.sleep(0.001)
        change(routes)
        while len(asyncio.all_tasks()) > 1:  # it is over
            await asyncio.sleep(0.001)
        return sum(one.phase is not Phase.OPEN for one in sessions)

    def remembers(routes: Routes) -> None:
        other, _ = routes_of({}, members("a", "b"), selector="rendezvous-hash")
        routes.settings = other.settings

    def is_gone(routes: Routes) -> None:
        routes.settings = settings(backends=members("a", "b"), default={"backend": "a"}, datacenter="here")

    def fails(routes: Routes) -> None:
        routes.markers.checked("b", False)

    assert asyncio.run(after(lambda _: None)) == 3
    assert [asyncio.run(after(change)) for change in (remembers, is_gone, fails)] == [1, 1, 1]


def test_who_takes_no_sessions_is_left_alone() -> None:
    three = members("a", "b") | members("c", drain=True)
    assert surplus(routes_of({"a": 6, "b": 0, "c": 9}, three)[0]) == {"a": 3}
    routes, _ = routes_of({"a": 6, "b": 0, "c": 9}, members("a", "b", "c"), policies=["health"])
    routes.markers.checked("c", False)
    assert surplus(routes) == {"a": 3}
    # Where no other is able there is nowhere to go.
    routes.markers.checked("b", False)
    assert surplus(routes) == {}
    routes.markers.checked("a", False)
    assert surplus(routes) == {}


def test_all_outside_of_the_preferred_partition_come_home() -> None:
    both = members("near", datacenter="here") | members("far", datacenter="there")
    assert surplus(routes_of({"near": 1, "far": 7}, both, policies=["datacenter-affinity"])[0]) == {"far": 7}


def test_sessions_of_other_rules_and_those_that_end_are_none_of_it() -> None:
    routes, sessions = routes_of({"a": 8, "b": 0}, members("a", "b"))
    for session in sessions[:2]:
        session.phase = Phase.CLOSING
    for session in sessions[2:4]:
        assert session.route is not None
        session.route.target = "backend a"
    assert surplus(routes) == {"a": 2}


def test_a_farm_is_level_once_its_clients_have_come_back() -> None:
    def behave(broker: FakeBroker, peer: Any) -> None:
        broker.open(peer)
        peer.expect(codec.CLOSE)
        peer.send(codec.CLOSE_OK_FRAME)

    brokers = FakeBroker(behave), FakeBroker(behave)
    config = config_of(*(one.port for one in brokers))
    config["farms"]["all"]["selector"] = "least-connections"
    config["backends"]["b1"]["drain"] = True
    with local_router_of(config) as router:
        clients = [Client(router.port).opened() for _ in range(6)]
        router.ctl("BACKEND", "UNDRAIN", "b1")
        assert router.ctl("FARM", "REBALANCE", "all", "2")["sessions"] == 3
        for client in clients[:2:-1]:
            assert client.closed() == (320, "the router's operator balances the brokers; connect again")
        again = [Client(router.port).opened() for _ in range(3)]
        (said,) = wait_for("its end", lambda: router.entries("rebalanced"))
        assert said["sessions"] == 3
        found = {row["name"]: row["active"] for row in router.ctl("BACKEND", "PRINT")}
        assert found == {"b0": 3, "b1": 3}
        assert router.ctl("FARM", "REBALANCE", "all")["sessions"] == 0
        del again


def test_farms_that_bring_their_sessions_back_are_refused() -> None:
    config = config_of(1)
    config["farms"]["cached"] = {"members": ["b0"], "key": {}, "cache": {}}
    config["farms"]["first"] = {"members": ["b0"], "selector": "first"}
    with local_router_of(config) as router:
        for name, why in (("cached", "its cache"), ("first", "its selector")):
            with pytest.raises(UsageError, match=f"the farm '{name}' cannot be balanced: {why} brings sessions back"):
                router.ctl("FARM", "REBALANCE", name)
        with pytest.raises(UsageError, match="no farm is called 'al'"):
            router.ctl("FARM", "REBALANCE", "al")
        with pytest.raises(UsageError, match="a rate is above 0"):
            router.ctl("FARM", "REBALANCE", "all", "0")
