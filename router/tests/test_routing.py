"""Decisions, what they mark, stickiness, and what becomes of live sessions on a reload."""

from __future__ import annotations

import asyncio
import collections
from pathlib import Path
from typing import Any

from router_fakes import FakeSession, members, open_session, settings

from amqp_session_router.base.model import CONNECTION_FORCED, NOT_ALLOWED, End, Identity, Reject, Route
from amqp_session_router.base.paced import now
from amqp_session_router.config.settings import Settings
from amqp_session_router.routing.routes import Routes

A = Identity(vhost="a", client_id="c1", source_ip="192.0.2.1")


def farm(*each: str, **part: Any) -> Settings:
    """Return settings with one farm of these members, for every vhost."""
    return settings(backends=members(*each), farms={"f": {"members": [*each], **part}}, default={"farm": "f"})


def names(routes: Routes, identity: Identity = A) -> list[str]:
    decision = routes.decide(identity)
    assert isinstance(decision, Route)
    return [backend.name for backend in decision.candidates]


def test_an_unknown_vhost_is_530_in_the_brokers_words() -> None:
    assert Routes(settings()).decide(A) == Reject(NOT_ALLOWED, "vhost 'a' not found")


def test_a_long_vhost_still_fits_a_short_string() -> None:
    decision = Routes(settings()).decide(Identity(vhost="ü" * 200))
    assert isinstance(decision, Reject)
    assert len(decision.text.encode()) <= 255


def test_targets() -> None:
    routes = Routes(
        settings(
            backends=members("b1") | {"b2": {"host": "x", "local": True, "vhost": "theirs"}},
            farms={"f": {"members": ["b1"]}},
            rules=[
                {"vhost": "a", "farm": "f", "rewrite": "ours"},
                {"vhost": "b", "backend": "b1"},
                {"vhost": "c", "local": True},
                {"vhost": "d", "reject": "closed for good"},
            ],
        )
    )
    to_farm, backend, local = (routes.decide(Identity(vhost=vhost)) for vhost in "abc")
    assert isinstance(to_farm, Route)
    assert isinstance(backend, Route)
    assert isinstance(local, Route)
    assert (to_farm.target, to_farm.vhost) == ("farm f", "ours")
    assert (backend.target, [b.name for b in backend.candidates]) == ("backend b1", ["b1"])
    chosen = next(local.candidates)
    assert (local.target, chosen.name, local.vhost_for(chosen)) == ("local", "b2", "theirs")
    assert routes.decide(Identity(vhost="d")) == Reject(NOT_ALLOWED, "closed for good")


def test_twelve_sessions_over_three_members_are_four_each() -> None:
    # The reference sent 12 of 12 to one member.
    routes = Routes(
        settings(
            backends=members("b1", "b2", "b3"), farms={"f": {"members": ["b1", "b2", "b3"]}}, default={"farm": "f"}
        )
    )
    got = collections.Counter(open_session(routes, A).backend.name for _ in range(12))  # type: ignore[union-attr]
    assert got == {"b1": 4, "b2": 4, "b3": 4}


def test_deciding_marks_nothing_until_a_candidate_is_taken() -> None:
    routes = Routes(
        settings(backends=members("b1", "b2"), farms={"f": {"members": ["b1", "b2"]}}, default={"farm": "f"})
    )
    for _ in range(5):
        routes.decide(A)
    assert [routes.markers.of(name).attempts for name in ("b1", "b2")] == [0, 0]
    first = routes.decide(A)
    assert isinstance(first, Route)
    next(first.candidates)
    assert [routes.markers.of(name).attempts for name in ("b1", "b2")] == [1, 0]
    assert names(routes) == ["b2", "b1"]


def test_a_draining_member_gets_none_and_a_farm_of_them_is_a_close_with_a_reason() -> None:
    parts = {"farms": {"f": {"members": ["b1", "b2"]}}, "default": {"farm": "f"}}
    backends = members("b1", "b2")
    backends["b1"]["drain"] = True
    routes = Routes(settings(backends=backends, **parts))
    assert names(routes) == ["b2"]
    backends["b2"]["drain"] = True
    routes.apply(settings(backends=backends, **parts))
    assert routes.decide(A) == Reject(CONNECTION_FORCED, "farm f takes no new sessions: all its members drain")


def test_quorum() -> None:
    routes = Routes(
        settings(
            backends=members("b1", "b2"), farms={"f": {"members": ["b1", "b2"], "quorum": 2}}, default={"farm": "f"}
        )
    )
    assert sorted(names(routes)) == ["b1", "b2"]
    routes.markers.checked("b1", False, "refused")
    assert routes.decide(A) == Reject(CONNECTION_FORCED, "farm f has 1 ready members of the 2 it needs")
    routes.markers.checked("b1", True)
    assert sorted(names(routes)) == ["b1", "b2"]


def test_a_fallback_comes_after_every_member_and_instead_of_a_farm_without_quorum() -> None:
    routes = Routes(
        settings(
            backends=members("b1", "b2", "b3"),
            farms={
                "f": {"members": ["b1", "b2"], "fallback": "g", "quorum": 1},
                "g": {"members": ["b2", "b3"], "selector": "first"},
            },
            default={"farm": "f"},
        )
    )
    assert names(routes) == ["b1", "b2", "b3"]
    for name in ("b1", "b2"):
        routes.markers.checked(name, False, "refused")
    assert names(routes) == ["b2", "b3"]


def sticky(**cache: object) -> dict[str, object]:
    return {
        "backends": members("b1", "b2", "b3"),
        "farms": {
            "f": {"members": ["b1", "b2", "b3"], "policies": ["health"], "key": {"type": "CLIENT_ID"}, "cache": cache}
        },
        "default": {"farm": "f"},
    }


def test_a_key_goes_back_to_where_it_was_as_long_as_that_is_ready() -> None:
    routes = Routes(settings(**sticky()))
    first = open_session(routes, A).backend
    assert first is not None
    for _ in range(5):
        open_session(routes, Identity(vhost="a", client_id="another"))
        assert names(routes)[0] == first.name
        assert sorted(names(routes)) == ["b1", "b2", "b3"]
    routes.markers.checked(first.name, False, "refused")
    second = open_session(routes, A).backend
    assert second is not None
    assert second.name != first.name
    routes.markers.checked(first.name, True)
    assert names(routes)[0] == second.name


def test_sessions_without_a_key_do_not_follow_each_other() -> None:
    routes = Routes(settings(**sticky()))
    got = collections.Counter(open_session(routes, Identity(vhost="a")).backend.name for _ in range(12))  # type: ignore[union-attr]
    assert got == {"b1": 4, "b2": 4, "b3": 4}


def test_stickiness_outlives_the_process_and_a_reload(tmp_path: Path) -> None:
    parts = sticky(persisted=True) | {"state_dir": str(tmp_path)}
    routes = Routes(settings(**parts))
    where = {f"c{n}": open_session(routes, Identity(vhost="a", client_id=f"c{n}")).backend for n in range(7)}
    routes.apply(settings(**parts, datacenter="moved"))
    again = Routes(settings(**parts))
    for each in (routes, again):
        for client, backend in where.items():
            assert backend is not None
            assert names(each, Identity(vhost="a", client_id=client))[0] == backend.name
    routes.sticky.close()
    again.sticky.close()


def test_sessions_are_counted_once_however_often_their_end_is_told() -> None:
    routes = Routes(settings(backends=members("b1"), default={"backend": "b1"}))
    session = open_session(routes, A)
    routes.opened(session)
    assert routes.markers.of("b1").active == 1
    for _ in range(2):
        routes.closed(session, End.CLIENT_CLOSED)
    assert routes.markers.of("b1").active == 0
    assert routes.sessions.live == {}
    never = FakeSession(None)
    routes.registered(never)
    routes.closed(never, End.HANDSHAKE_TIMEOUT, "no header")
    overall = now(routes.statistics.look({})).of("overall")
    assert overall.ended == {"client_closed": 1, "handshake_timeout": 1}
    assert overall.failures == 1


def test_old_sessions_stay_on_a_reload_and_are_still_counted_where_they_are() -> None:
    routes = Routes(settings(backends=members("b1"), default={"backend": "b1"}))
    session = open_session(routes, A)
    routes.apply(settings(backends=members("b2"), default={"backend": "b2"}))
    assert names(routes) == ["b2"]
    assert routes.sessions.live == {session.id: session}
    assert session.told == []
    assert routes.markers.of("b1").active == 1
    assert routes.planner.misplaced(session)
    routes.closed(session, End.BROKER_CLOSED)
    routes.apply(routes.settings)
    assert routes.markers.of("b1").attempts == 0  # nothing is kept of a backend that is gone


def test_misplaced() -> None:
    backends = members("b1", "b2")
    farms = {"f": {"members": ["b1"], "fallback": "g"}, "g": {"members": ["b2"]}, "h": {"members": ["b2"]}}
    routes = Routes(settings(backends=backends, farms=farms, default={"farm": "f"}))
    session = open_session(routes, A)
    for default, expected in (
        ({"farm": "g"}, True),
        ({"farm": "h"}, True),
        ({"farm": "f"}, False),
        ({"backend": "b1"}, False),
        ({"backend": "b2"}, True),
        ({"reject": "no"}, True),
        (None, True),
    ):
        routes.apply(settings(backends=backends, farms=farms, default=default))
        assert routes.planner.misplaced(session) is expected, default


def test_a_failed_attempt_asks_for_a_check() -> None:
    routes = Routes(settings(backends=members("b1"), default={"backend": "b1"}))
    told: list[str] = []
    routes.on_failure = told.append
    session = FakeSession(A)
    routes.attempted(session, routes.settings.backends["b1"], ok=False, reason="refused")
    assert told == ["b1"]
    assert (session.counters.attempts, routes.markers.of("b1").failures) == (1, 1)


def test_a_paused_vhost_lets_wait_and_go_on() -> None:
    async def story() -> list[str]:
        routes = Routes(settings())
        order: list[str] = []

        async def one(vhost: str) -> None:
            await routes.unpaused(vhost)
            order.append(vhost)

        routes.paused.pause("a")
        routes.paused.pause("a")
        tasks = [asyncio.create_task(one(vhost)) for vhost in ("a", "b")]
        await tasks[1]
        order.append("unpause")
        assert routes.paused.names == ["a"]
        assert routes.paused.unpause("a")
        assert not routes.paused.unpause("a")
        await tasks[0]
        return order

    assert asyncio.run(story()) == ["b", "unpause", "a"]


def test_a_session_that_was_connecting_when_its_vhost_was_paused_is_paused_once_it_is_open() -> None:
    async def story() -> list[tuple[Any, ...]]:
        routes = Routes(farm("b1"))
        decision = routes.decide(A)
        assert isinstance(decision, Route)
        session = FakeSession(A, decision, next(decision.candidates))
        routes.registered(session)
        routes.paused.pause("a")
        routes.opened(session)
        await asyncio.sleep(0)
        return session.told

    assert asyncio.run(story()) == [("pause",)]
