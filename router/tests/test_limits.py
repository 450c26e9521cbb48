"""Each limit, its alarm, alarm-only mode, and that counts come back to nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_session_router.admission import address_limits, connection_counts
from amqp_session_router.admission.buckets import Bucket
from amqp_session_router.admission.limits import Limiter, VhostLease, describe
from amqp_session_router.base.model import CONNECTION_FORCED, NOT_ALLOWED, Refusal
from amqp_session_router.config.schema import LimitsPart


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def limiter(**parts: object) -> tuple[Limiter, Clock]:
    clock = Clock()
    return Limiter(LimitsPart.model_validate(parts), clock), clock


def lease(limits: Limiter, source: str = "192.0.2.1") -> VhostLease:
    found = limits.accept(source)
    assert isinstance(found, VhostLease), found
    return found


def test_without_limits_nothing_is_refused_or_delayed() -> None:
    limits, _ = limiter(unauthenticated_per_address=None)
    for _ in range(200):
        one = lease(limits)
        assert one.open("v", "u") is None
        assert not one.metered
        assert one.take(10**9) == 0.0


def test_unauthenticated_connections_of_one_address() -> None:
    limits, _ = limiter(unauthenticated_per_address=2)
    first, second = lease(limits), lease(limits)
    assert limits.accept("192.0.2.1") == Refusal(CONNECTION_FORCED, "192.0.2.1 has 2 connections that are not open yet")
    assert limits.connections == 2
    lease(limits, "192.0.2.2")
    first.authenticated()
    third = lease(limits)
    for one in (first, second, third):
        one.release()
        one.release()
    assert limits.connections == 1


def test_the_addresses_of_one_ipv6_network_are_one() -> None:
    limits = Limiter(LimitsPart(unauthenticated_per_address=2, connection_rate_per_address=5))
    accepted = [limits.accept(f"2001:db8:0:1::{number:x}") for number in range(20)]
    assert sum(isinstance(one, Refusal) for one in accepted) == 18
    assert not isinstance(limits.accept("2001:db8:0:2::1"), Refusal)
    limits = Limiter(LimitsPart(connection_rate_per_address=5))
    assert sum(isinstance(limits.accept(f"2001:db8::{number:x}%eth0"), Refusal) for number in range(20)) == 15
    assert not any(isinstance(limits.accept(f"192.0.2.{number}"), Refusal) for number in range(20))
    assert not any(isinstance(limits.accept(f"::ffff:192.0.3.{number}"), Refusal) for number in range(20))
    limits = Limiter(LimitsPart(connection_rate_per_address=5, ipv6_prefix=128))
    assert not any(isinstance(limits.accept(f"2001:db8::{number:x}"), Refusal) for number in range(20))


def test_new_connections_of_one_address_a_second() -> None:
    limits, clock = limiter(connection_rate_per_address=2, unauthenticated_per_address=None)
    told = "192.0.2.1 opens more than 2 connections a second; try again later"
    first, _ = lease(limits), lease(limits)
    assert limits.accept("192.0.2.1") == Refusal(CONNECTION_FORCED, told)
    lease(limits, "192.0.2.2")
    # One that goes gives nothing back: what counts is how often they come.
    first.release()
    assert limits.accept("192.0.2.1") == Refusal(CONNECTION_FORCED, told)
    assert limits.connections == 2
    clock.now += 0.5
    lease(limits)
    assert isinstance(limits.accept("192.0.2.1"), Refusal)
    assert limits.violations.refused == {"connection_rate_per_address": 3}
    # Behind a balancer the address comes with the PROXY header.
    proxied = limits.accept(None)
    assert isinstance(proxied, VhostLease)
    assert proxied.identify("192.0.2.1") == Refusal(CONNECTION_FORCED, told)
    # Connections that a restart hands on are none of the new ones.
    limits.adopt("v", "u", "b")
    limits.apply(LimitsPart())
    lease(limits)


def test_addresses_that_come_once_do_not_fill_the_memory() -> None:
    limits, clock = limiter(connection_rate_per_address=1, unauthenticated_per_address=None)
    most = 0
    for number in range(10 * address_limits._SWEEP_AT):
        lease(limits, f"address-{number}").release()
        clock.now += 0.01
        most = max(most, len(limits.addresses._rates))
    # Each is full again after a second, that is after a hundred others.
    assert most <= address_limits._SWEEP_AT
    assert limits.violations.refused == {}


def test_connections_of_the_router() -> None:
    limits, _ = limiter(connections=1)
    one = lease(limits)
    assert limits.accept("x") == Refusal(CONNECTION_FORCED, "the router's limit of 1 connections is reached")
    one.release()
    lease(limits)


def test_connections_of_a_vhost_and_its_own_limit() -> None:
    limits, _ = limiter(default={"connections": 1}, vhosts={"big": {"connections": 3}})
    one, two = lease(limits), lease(limits)
    assert one.open("v", "u") is None
    text = "access to vhost 'v' refused: connection limit (1) is reached"
    assert two.open("v", "u") == Refusal(NOT_ALLOWED, text)
    two.release()
    assert limits.vhosts.count("v") == 1
    one.release()
    assert lease(limits).open("v", "u") is None
    assert [lease(limits).open("big", "u") is None for _ in range(4)] == [True, True, True, False]


def test_a_vhosts_own_limit_leaves_the_other_defaults() -> None:
    limits, _ = limiter(default={"connections": 1, "frame_max": 8192}, vhosts={"v": {"connections": 5}})
    assert limits.effective.of("v").connections == 5
    assert limits.largest_frame("v") == 8192
    assert limits.largest_frame(None) == 8192


def test_connection_rate_is_an_average_with_a_second_at_once() -> None:
    limits, clock = limiter(default={"connection_rate": 5})
    assert [lease(limits).open("v", "u") is None for _ in range(6)] == [True] * 5 + [False]
    clock.now += 0.2
    assert [lease(limits).open("v", "u") is None for _ in range(2)] == [True, False]
    clock.now += 100
    assert [lease(limits).open("v", "u") is None for _ in range(6)] == [True] * 5 + [False]
    assert lease(limits).open("other", "u") is None


def test_less_than_one_connection_a_second_is_one_now_and_then() -> None:
    limits, clock = limiter(default={"connection_rate": 0.1})
    assert [lease(limits).open("v", "u") is None for _ in range(2)] == [True, False]
    clock.now += 10
    assert lease(limits).open("v", "u") is None


def test_data_rate_delays_and_is_shared_by_the_vhost() -> None:
    limits, clock = limiter(default={"data_rate": 1000})
    one, two = lease(limits), lease(limits)
    one.open("v", "u")
    two.open("v", "u")
    assert one.metered
    assert one.take(1000) == 0.0
    assert two.take(500) == pytest.approx(0.5)
    assert one.take(10_000) == pytest.approx(10.5)
    clock.now += 10.5
    assert one.take(1) == pytest.approx(0.001)


def test_a_connections_data_rate_delays_it_alone() -> None:
    limits, clock = limiter(default={"connection_data_rate": 1000})
    one, two = lease(limits), lease(limits)
    one.open("v", "u")
    two.open("v", "u")
    assert one.metered
    assert one.take(1000) == two.take(1000) == 0.0
    assert one.take(500) == pytest.approx(0.5)
    clock.now += 0.25
    # Half of what the first owes is paid by now; the other pays for its own alone.
    assert one.take(0) == pytest.approx(0.25)
    assert two.take(250) == 0.0
    assert limits.violations.refused == {"connection_data_rate": 2}


def test_of_two_data_rates_the_longer_wait_counts() -> None:
    limits, clock = limiter(default={"data_rate": 3000, "connection_data_rate": 1000})
    one, two = lease(limits), lease(limits)
    one.open("v", "u")
    two.open("v", "u")
    assert one.take(2000) == pytest.approx(1.0)
    assert two.take(1000) == 0.0
    # All have used up what the vhost has, this one not its own.
    clock.now += 0.5
    assert two.take(2000) == pytest.approx(1.5)
    assert one.take(600) == pytest.approx(1.1)


def test_a_connections_data_rate_may_be_one_of_its_vhost_and_only_warn(caplog: pytest.LogCaptureFixture) -> None:
    limits, _ = limiter(default={"connection_data_rate": 10}, vhosts={"big": {"connection_data_rate": 10_000}, "v": {}})
    one, two = lease(limits), lease(limits)
    one.open("big", "u")
    two.open("v", "u")
    assert one.take(10_000) == 0.0
    assert two.take(20) == pytest.approx(1.0)
    limits.apply(LimitsPart.model_validate({"default": {"connection_data_rate_alarm": 10}}))
    assert one.metered
    assert one.take(10) == one.take(10) == 0.0
    assert limits.violations.alarms == {"connection_data_rate_alarm": 1}
    assert caplog.records[-1].__dict__["limit"] == "connection_data_rate_alarm"


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 10**7)), max_size=50))
def test_a_reader_that_waits_as_told_never_exceeds_rate_and_burst(steps: list[tuple[float, int]]) -> None:
    clock = Clock()
    bucket, total, start = Bucket(1000.0, 1000.0, clock), 0, clock.now
    for idle, nbytes in steps:
        clock.now += idle
        total += nbytes
        clock.now += bucket.owe(nbytes)
        assert total <= 1000 + 1000 * (clock.now - start) * (1 + 1e-9) + 1


def test_alarms_warn_and_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    limits, _ = limiter(default={"connections_alarm": 1, "connection_rate_alarm": 1, "data_rate_alarm": 10})
    first, second = lease(limits), lease(limits)
    assert first.open("v", "alice") is None
    assert second.open("v", "bob") is None
    assert second.metered
    assert second.take(100) == second.take(100) == 0.0
    told = [(record.levelname, record.__dict__["limit"]) for record in caplog.records]
    assert told == [("WARNING", name) for name in ("connections_alarm", "connection_rate_alarm", "data_rate_alarm")]
    assert limits.violations.alarms == {"connections_alarm": 1, "connection_rate_alarm": 1, "data_rate_alarm": 1}


def test_alarm_only_mode_lets_every_limit_only_warn(caplog: pytest.LogCaptureFixture) -> None:
    limits, _ = limiter(
        alarm_only=True,
        connections=1,
        unauthenticated_per_address=1,
        connection_rate_per_address=1,
        default={"connections": 0, "connection_rate": 1, "data_rate": 1},
    )
    for _ in range(3):
        one = lease(limits)
        assert one.open("v", "u") is None
        assert one.take(1000) == 0.0
    assert limits.violations.refused == {}
    assert set(limits.violations.alarms) == {
        "connections of the router",
        "unauthenticated_per_address",
        "connection_rate_per_address",
        "connections",
        "connection_rate",
        "data_rate",
    }
    # One warning of each in ten seconds, however often it is passed.
    assert len(caplog.records) == 6


def test_a_reload_keeps_counts_and_takes_new_limits_on() -> None:
    limits, clock = limiter(default={"connections": 5})
    leases = [lease(limits) for _ in range(3)]
    assert all(one.open("v", "u") is None for one in leases)
    limits.apply(LimitsPart.model_validate({"default": {"connections": 3, "data_rate": 10}}))
    assert isinstance(lease(limits).open("v", "u"), Refusal)
    assert leases[0].metered
    leases[0].take(10)
    clock.now += 0.0
    limits.apply(LimitsPart.model_validate({"default": {"data_rate": 20}}))
    assert leases[0].take(20) == 0.0


def test_made_up_vhosts_do_not_fill_the_memory() -> None:
    limits, _ = limiter(unauthenticated_per_address=None)
    for number in range(5 * connection_counts.SWEEP_AT):
        one = lease(limits)
        one.open(f"made-up-{number}", "u")
        one.release()
    assert len(limits.vhosts._counted) <= connection_counts.SWEEP_AT
    assert limits.addresses._unauthenticated == {}


def test_description_for_a_table() -> None:
    limits, _ = limiter(default={"connections": 2}, vhosts={"v": {"data_rate": 5}}, connections=9)
    lease(limits).open("v", "u")
    assert describe(limits, limits.effective.router, "v") == [
        {"of": "v", "limit": "connections", "value": 2, "now": 1},
        {"of": "v", "limit": "data_rate", "value": 5, "now": None},
    ]
    assert {"of": "router", "limit": "connections", "value": 9, "now": 1} in describe(
        limits, limits.effective.router, None
    )
