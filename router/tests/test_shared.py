"""What workers tell each other in shared memory: limits and keys of all as of one, whoever dies meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_session_router.admission import shared_counts
from amqp_session_router.admission.limits import Limiter, VhostLease
from amqp_session_router.admission.other_workers import ROUTER, VHOST
from amqp_session_router.admission.shared_counts import SharedCounts
from amqp_session_router.base import shared_table
from amqp_session_router.base.model import Refusal
from amqp_session_router.base.shared_table import SharedTable
from amqp_session_router.config.schema import LimitsPart
from amqp_session_router.routing import stickiness
from amqp_session_router.routing.stickiness import SharedKeys, Stickiness

SLOTS = 64


@pytest.fixture
def tables() -> Iterator[list[SharedTable]]:
    """A table of three regions, as each of them sees it; a number below 0 says nothing."""
    number = shared_table.create([shared_table.size(3, SLOTS, 2)])
    yield [SharedTable(number, 0, region, 3, SLOTS, 2, lambda values: values[0] < 0) for region in range(3)]
    os.close(number)


def test_all_regions_are_read_and_only_ones_own_is_written(tables: list[SharedTable]) -> None:
    name = tables[0].id_of("a", "b")
    assert name == tables[2].id_of("a", "b") != tables[0].id_of("ab", "")
    assert tables[0].write(name, 1, 2)
    assert tables[2].write(name, 3, 4)
    assert tables[0].write(name, 5, 6)
    assert [*tables[1].read(name)] == [[5, 6], [3, 4]]
    assert [*tables[0].read(name, others=True)] == [[3, 4]]
    tables[0].forget(name)
    tables[1].forget(name)
    assert [*tables[1].read(name)] == [[3, 4]]
    tables[0].clear(2, lambda values: values[1] == 4)
    assert not [*tables[1].read(name)]


def test_a_place_is_given_away_when_it_says_nothing_any_more(tables: list[SharedTable]) -> None:
    table = tables[0]
    same = [name for name in range(SLOTS, 100 * SLOTS) if name % SLOTS == 7]
    full = [name for name in same if table.write(name, 1, 0)]
    assert 0 < len(full) < len(same)
    assert not table.write(same[-1], 1, 0) and not [*table.read(same[-1])]
    assert table.write(full[3], -1, 0)
    assert table.write(same[-1], 8, 9) and [*table.read(same[-1])] == [[8, 9]]
    assert not [*table.read(full[3])]


@given(st.lists(st.tuples(st.sampled_from(["say", "forget", "clear"]), st.integers(0, 80)), max_size=200))
def test_names_that_want_the_same_places(steps: list[tuple[str, int]]) -> None:
    """A table against a dictionary: what was said is read by the others, whatever came and went around it."""
    number = shared_table.create([shared_table.size(2, SLOTS, 1)])
    writer, reader = (SharedTable(number, 0, region, 2, SLOTS, 1, lambda values: False) for region in range(2))
    os.close(number)
    expected: dict[int, float] = {}
    for count, (what, which) in enumerate(steps):
        name = (2 + which // 2) * SLOTS + 5 + which % 2
        if what == "say":
            if writer.write(name, count):
                expected[name] = count
            else:
                assert name not in expected and len(expected) >= shared_table._WINDOW
        elif what == "forget":
            writer.forget(name)
            expected.pop(name, None)
        elif which % 10 == 0:
            writer.clear(0, lambda values: values[0] % 2 == 0, but={name})
            expected = {one: value for one, value in expected.items() if value % 2 or one == name}
        for one in (writer, reader):
            assert all(one.read(known) == [[value]] for known, value in expected.items())
            assert one.read(name) == ([[expected[name]]] if name in expected else [])


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def workers(count: int, clock: Clock, **parts: object) -> tuple[list[Limiter], list[SharedCounts]]:
    """Return the limits of so many workers, and what each tells the others."""
    number = shared_table.create([shared_counts.size(count)])
    counts = [SharedCounts(number, 0, region, count) for region in range(count)]
    os.close(number)
    part = LimitsPart.model_validate(parts)
    found = [Limiter(part, clock, one) for one in counts]
    for one in found:
        one.publish_all()
    return found, counts


def admitted(limiter: Limiter, vhost: str, source: str = "192.0.2.1") -> VhostLease | None:
    """Open a connection; None if a limit refuses it."""
    lease = limiter.accept(source)
    if isinstance(lease, Refusal):
        return None
    if lease.open(vhost, "u") is not None:
        lease.release()
        return None
    lease.authenticated()
    return lease


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60))
def test_connections_of_a_vhost_and_of_the_router(steps: list[tuple[int, bool]]) -> None:
    """Whoever comes and goes at whichever worker: there are as many as one worker would let in."""
    several, _ = workers(3, Clock(), default={"connections": 3}, connections=5)
    alone = Limiter(LimitsPart.model_validate({"default": {"connections": 3}, "connections": 5}), Clock())
    held: list[tuple[VhostLease, VhostLease]] = []
    for index, (worker, comes) in enumerate(steps):
        if comes:
            vhost = f"v{index % 2}"
            one, reference = admitted(several[worker], vhost), admitted(alone, vhost)
            assert (one is None) == (reference is None)
            if one is not None and reference is not None:
                held.append((one, reference))
        elif held:
            for lease in held.pop(index % len(held)):
                lease.release()
        assert all(one.all_connections == alone.connections for one in several)
        assert all(one.vhosts.count("v0") == alone.vhosts.count("v0") for one in several)


def test_connections_of_an_address_that_are_not_open_yet() -> None:
    several, _ = workers(2, Clock(), unauthenticated_per_address=3)
    leases = [several[index % 2].accept("192.0.2.1") for index in range(3)]
    refusal = several[1].accept("192.0.2.1")
    assert isinstance(refusal, Refusal) and refusal.text == "192.0.2.1 has 3 connections that are not open yet"
    assert isinstance(several[0].accept("192.0.2.2"), VhostLease)
    assert isinstance(leases[0], VhostLease)
    leases[0].authenticated()
    assert isinstance(several[1].accept("192.0.2.1"), VhostLease)
    assert isinstance(several[0].accept("192.0.2.1"), Refusal)


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.1, 0.25, 0.5, 3.0])), max_size=60))
def test_a_rate_is_one_of_all_workers(steps: list[tuple[int, float]]) -> None:
    clock = Clock()
    several, _ = workers(2, clock, default={"connection_rate": 4}, connection_rate_per_address=6)
    alone = Limiter(
        LimitsPart.model_validate({"default": {"connection_rate": 4}, "connection_rate_per_address": 6}), clock
    )
    for worker, later in steps:
        clock.now += later
        one, reference = admitted(several[worker], "v"), admitted(alone, "v")
        assert (one is None) == (reference is None)


def test_a_vhosts_bytes_are_counted_in_all_workers_and_a_connections_in_its_own() -> None:
    clock = Clock()
    several, _ = workers(2, clock, default={"data_rate": 1000, "connection_data_rate": 10_000})
    first, second = (admitted(one, "v") for one in several)
    assert first is not None and second is not None
    assert first.take(1000) == 0.0
    assert second.take(500) == pytest.approx(0.5)
    assert first.take(500) == pytest.approx(1.0)
    clock.now += 1.0
    assert second.take(0) == 0.0
    # A rate that is another by now begins with a full bucket, as in one worker.
    for one in several:
        one.apply(LimitsPart.model_validate({"default": {"data_rate": 2000}}))
    assert first.take(1500) == 0.0 and second.take(500) == 0.0 and second.take(1000) == pytest.approx(0.5)


def test_a_worker_that_is_gone_leaves_its_rates_and_not_its_connections() -> None:
    clock = Clock()
    several, counts = workers(2, clock, default={"connections": 2, "data_rate": 10})
    for _ in range(2):
        lease = admitted(several[0], "v")
        assert lease is not None
    clock.now = 1e9
    assert lease.take(1000) == pytest.approx(99.0)
    assert admitted(several[1], "v") is None
    counts[0].clear(0)
    late = admitted(several[1], "v")
    assert late is not None and late.take(10) == pytest.approx(100.0)


def test_a_limit_that_is_set_later_counts_what_is_there_already() -> None:
    """Nothing is told that no limit looks at."""
    several, counts = workers(2, Clock())
    for one in several:
        assert admitted(one, "v") is not None and admitted(one, "w") is not None
    assert [one.count(VHOST, "v") for one in counts] == [0, 0]
    for one in several:
        one.apply(LimitsPart.model_validate({"vhosts": {"v": {"connections": 3}}, "connections": 6}))
    assert [one.count(VHOST, "v") for one in counts] == [1, 1]
    assert [one.count(VHOST, "w") for one in counts] == [0, 0]
    assert admitted(several[1], "v") is not None and admitted(several[0], "v") is None
    assert admitted(several[0], "w") is not None and admitted(several[1], "w") is None
    for one in several:
        one.apply(LimitsPart())
    assert [one.count(kind, name) for one in counts for kind, name in ((VHOST, "v"), (ROUTER, ""))] == [0] * 4


def test_what_a_worker_had_counts_until_its_successor_has_it_all() -> None:
    part = LimitsPart.model_validate({"default": {"connections": 2}})
    number = shared_table.create([shared_counts.size(2)])
    try:
        dead, other = (Limiter(part, Clock(), SharedCounts(number, 0, region, 2)) for region in range(2))
        for one in (dead, other):
            one.publish_all()
        assert admitted(dead, "v") is not None and admitted(dead, "v") is not None
        successor = Limiter(part, Clock(), SharedCounts(number, 0, 0, 2))
    finally:
        os.close(number)
    assert admitted(other, "v") is None
    successor.adopt("v", "u", "b")
    assert admitted(other, "v") is None
    successor.publish_all()
    assert other.vhosts.count("v") == 1
    assert admitted(other, "v") is not None and admitted(other, "v") is None and admitted(successor, "v") is None


def test_too_many_names_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(shared_counts, "_SLOTS", 16)
    monkeypatch.setattr(shared_counts.log, "warning", said.append)
    several, _ = workers(2, Clock(), unauthenticated_per_address=1)
    for index in range(200):
        assert isinstance(several[0].accept(f"192.0.2.{index}"), VhostLease)
    assert isinstance(several[0].accept("192.0.2.199"), Refusal)
    assert said == ["a limit holds for one worker only: there are too many names"]


def caches(clock: Clock, **more: int) -> list[Stickiness]:
    """Return the cache of a farm in two workers."""
    number = shared_table.create([stickiness.shared_size(2)])
    found = []
    for region in range(2):
        shared = SharedKeys(number, 0, region, 2)
        found.append(Stickiness(10.0, clock=clock, shared=shared, farm="f", **more))
        found[-1].know(["b1", "b2"])
    os.close(number)
    return found


def test_where_a_key_was_at_last_in_any_worker_counts() -> None:
    clock = Clock()
    first, second = caches(clock)
    first.put("k", "b1")
    assert second.get("k") == "b1"
    clock.now += 1
    second.put("k", "b2")
    assert (first.get("k"), second.get("k")) == ("b2", "b2")
    # A backend that the configuration has no more is none.
    for cache in (first, second):
        cache.know(["b1"])
    assert first.get("k") == "b1"
    clock.now += 9.5
    assert first.get("k") is None


def test_a_farm_is_forgotten_in_all_workers() -> None:
    clock = Clock()
    first, second = caches(clock)
    first.put("k", "b1")
    second.put("l", "b2")
    assert first.clear() + second.clear() == 2
    assert [cache.get(key) for cache in (first, second) for key in ("k", "l")] == [None] * 4
    clock.now += 1
    second.put("k", "b2")
    assert first.get("k") == "b2"


def test_the_bound_of_a_cache_holds_for_what_it_tells() -> None:
    clock = Clock()
    first, second = caches(clock, most=3)
    for index in range(5):
        first.put(f"k{index}", "b1")
    assert [second.get(f"k{index}") for index in range(5)] == [None, None, "b1", "b1", "b1"]


def test_a_clock_that_is_set_back_makes_no_old_key_newer() -> None:
    clock = Clock()
    first, second = caches(clock)
    first.put("k", "b1")
    first.put("other", "b1")
    clock.now -= 500
    second.put("k", "b2")
    assert (first.get("k"), second.get("k")) == ("b2", "b2")
    first.put("k", "b1")
    assert (first.get("k"), second.get("k")) == ("b1", "b1")
    second.clear()
    assert (second.get("k"), second.get("other")) == (None, None)
    second.put("other", "b2")
    assert second.get("other") == "b2"
