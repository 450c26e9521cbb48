"""Limits of users: by default and by name, in all workers as in one, and only of who was let in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from router_support import config_of, local_router_of, wait_for
from test_limits import lease, limiter
from test_sessions import Client, FakeBroker, Peer
from test_shared import Clock, workers

from amqp_session_router.admission.limits import Limiter, VhostLease, describe, describe_user
from amqp_session_router.amqp import codec
from amqp_session_router.base.model import CONNECTION_FORCED, NOT_ALLOWED, Refusal
from amqp_session_router.config.schema import LimitsPart
from amqp_session_router.control.verbs.table import find


def test_connections_of_a_user_by_default_and_by_name() -> None:
    limits, _ = limiter(users={"default": {"connections": 1}, "names": {"big": {"connections": 3}}})
    one, two = lease(limits), lease(limits)
    assert one.open("v", "u") is None
    refused = Refusal(NOT_ALLOWED, "connection refused for user 'u': user connection limit (1) is reached")
    # Whichever vhost it is.
    assert two.may_open("w", "u") == two.open("w", "u") == refused
    assert limits.vhosts.count("w") == 0
    assert [lease(limits).open("v", "big") is None for _ in range(4)] == [True, True, True, False]
    two.release()
    one.release()
    assert limits.users.count("u") == 0
    assert lease(limits).open("w", "u") is None
    assert limits.violations.refused == {"user_connections": 3}


def test_rate_of_a_user_and_alarms(caplog: pytest.LogCaptureFixture) -> None:
    limits, clock = limiter(
        users={"default": {"connection_rate": 2, "connection_rate_alarm": 1, "connections_alarm": 1}},
        default={"connection_rate": 100},
    )
    found = [lease(limits).open("v", "u") for _ in range(3)]
    text = "connection refused for user 'u': more than 2 new connections a second; try again later"
    assert found == [None, None, Refusal(CONNECTION_FORCED, text)]
    assert lease(limits).may_open("v", "u") == Refusal(CONNECTION_FORCED, text)
    assert lease(limits).open("v", "other") is None
    clock.now += 0.5
    assert lease(limits).open("v", "u") is None
    told = {(one.__dict__["limit"], one.__dict__["of"]) for one in caplog.records}
    assert told == {
        (name, "u") for name in ("user_connection_rate", "user_connection_rate_alarm", "user_connections_alarm")
    }


def test_a_long_name_leaves_a_text_that_fits_a_close() -> None:
    limits, _ = limiter(users={"default": {"connections": 0}})
    refusal = lease(limits).open("v", "ü" * 127)
    assert refusal is not None and len(refusal.text.encode()) <= 255
    assert codec.close(refusal.code, refusal.text)


def admitted(limits: Limiter, vhost: str, user: str) -> VhostLease | None:
    found = lease(limits)
    if found.open(vhost, user) is None:
        found.authenticated()
        return found
    found.release()
    return None


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), st.sampled_from([0.0, 0.1, 0.5])), max_size=60))
def test_several_workers_let_in_whom_one_would(steps: list[tuple[int, int, float]]) -> None:
    clock = Clock()
    parts = {
        "users": {"default": {"connections": 2, "connection_rate": 4}, "names": {"u0": {"connections": 3}}},
        "default": {"connections": 4},
        "unauthenticated_per_address": None,
    }
    several, _ = workers(2, clock, **parts)
    alone = Limiter(LimitsPart.model_validate(parts), clock)
    held: list[tuple[VhostLease, VhostLease]] = []
    for worker, what, later in steps:
        clock.now += later
        if what < 4:
            vhost, user = f"v{what // 2}", f"u{what % 2}"
            one, reference = admitted(several[worker], vhost, user), admitted(alone, vhost, user)
            assert (one is None) == (reference is None)
            if one is not None and reference is not None:
                held.append((one, reference))
        elif held:
            for found in held.pop():
                found.release()
        for user in ("u0", "u1"):
            assert [one.users.count(user) for one in several] == [alone.users.count(user)] * 2


def test_those_a_process_took_over_count() -> None:
    limits, _ = limiter(users={"names": {"u": {"connections": 2}}})
    taken = [limits.adopt("v", "u", "b") for _ in range(2)]
    assert isinstance(lease(limits).open("v", "u"), Refusal)
    taken[0].release()
    assert lease(limits).open("v", "u") is None


@pytest.mark.parametrize("how", ["with a wrong password", "and hang"])
def test_strangers_use_up_nobodys_place(how: str) -> None:
    """Whoever says a user's name and does not know the word takes that user no place."""
    strangers = 6

    def behave(broker: FakeBroker, peer: Peer) -> None:
        if len(broker.vhosts) >= strangers:
            broker.open(peer)
            return
        broker.until_open(peer)
        if how == "and hang":
            peer.sock.recv(1)
        peer.send(codec.close(403, "ACCESS_REFUSED"))

    broker = FakeBroker(behave)
    limits = {"users": {"default": {"connections": 2, "connection_rate": 3}}}
    with local_router_of(config_of(broker.port, limits=limits)) as router:
        waiting = [Client(router.port, vhost=f"v{number}") for number in range(strangers)]
        if how == "and hang":
            wait_for("the strangers", lambda: len(broker.vhosts) == strangers)
        else:
            assert {client.closed()[0] for client in waiting} == {403}
        good = [Client(router.port).opened() for _ in range(2)]
        code, text = Client(router.port).closed()
        assert (code, text) == (530, "connection refused for user 'user': user connection limit (2) is reached")
        other = Client(router.port, response=("PLAIN", b"\0other\0word")).opened()
        del good, other


def test_verbs_and_what_is_shown() -> None:
    limits, _ = limiter(users={"default": {"connections": 5}, "names": {"u": {"connection_rate": 7}}})
    assert lease(limits).open("v", "u") is None
    assert describe_user(limits, "u") == [
        {"of": "u", "limit": "connection_rate", "value": 7, "now": None},
        {"of": "u", "limit": "connections", "value": 5, "now": 1},
    ]
    rows = describe(limits, limits.effective.router, None)
    assert {"of": "default of users", "limit": "connections", "value": 5, "now": None} in rows

    data: dict[str, object] = {}
    for words in ("LIMIT TOTAL_CONN USER u 5", "LIMIT CONN_RATE USER u 6", "LIMIT TOTAL_CONN USER_DEFAULT 9"):
        verb, arguments = find(words.split())
        assert verb.edit is not None
        verb.edit(data, arguments)
    assert data == {
        "limits": {"users": {"names": {"u": {"connections": 5, "connection_rate": 6}}, "default": {"connections": 9}}}
    }
    for words in ("DISABLE TOTAL_CONN USER u", "DISABLE CONN_RATE USER u", "DISABLE TOTAL_CONN USER_DEFAULT"):
        verb, arguments = find(["LIMIT", *words.split()])
        assert verb.edit is not None
        verb.edit(data, arguments)
    assert data == {"limits": {"users": {"names": {}, "default": {}}}}
