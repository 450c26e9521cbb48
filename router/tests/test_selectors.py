"""The seed's three-point contract for every selector, and what each is for."""

from __future__ import annotations

import collections
import os
import random
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_session_router.base.model import NO_KEY, Backend
from amqp_session_router.selection import partitions, selectors
from amqp_session_router.selection.markers import Markers


def backends(count: int, **each: int) -> list[Backend]:
    return [Backend(name=f"b{i}", host=f"h{i}", **each) for i in range(count)]


def _raises(partition: Sequence[Backend], markers: Markers, key: str) -> list[Backend]:
    raise RuntimeError("a user's selector")


HOSTILE = {
    "loses all": lambda partition, markers, key: [],
    "repeats": lambda partition, markers, key: [partition[0]] * 5,
    "makes up": lambda partition, markers, key: [Backend(name="stranger", host="x"), *reversed(partition)],
    "raises": _raises,
}
EVERY = selectors.OWN | HOSTILE


@st.composite
def farms(draw: st.DrawFn) -> tuple[list[tuple[Backend, ...]], Markers]:
    """Backends in partitions, with any marks."""
    names = draw(st.lists(st.integers(0, 30), unique=True, max_size=12))
    each = [Backend(name=f"b{n}", host="h", weight=draw(st.integers(0, 5))) for n in names]
    groups: list[list[Backend]] = [[] for _ in range(draw(st.integers(1, 4)))]
    for backend in each:
        groups[draw(st.integers(0, len(groups) - 1))].append(backend)
    markers = Markers()
    for backend in draw(st.lists(st.sampled_from(each), max_size=30)) if each else []:
        markers.attempt(backend.name)
        if draw(st.booleans()):
            markers.opened(backend.name)
        markers.checked(backend.name, draw(st.booleans()))
    return [tuple(group) for group in groups if group], markers


@pytest.mark.parametrize("name", EVERY)
@given(farm=farms(), key=st.text(max_size=10), others=st.randoms(use_true_random=False))
def test_contract(name: str, farm: tuple[list[tuple[Backend, ...]], Markers], key: str, others: random.Random) -> None:
    groups, markers = farm
    count = sum(map(len, groups))
    tried: list[Backend] = []
    candidates = selectors.ranking(groups, EVERY[name], markers, key)
    for _ in range(count):
        # 1. while one is left that was not attempted, a backend of the set is selected
        backend = next(candidates)
        assert any(backend in group for group in groups)
        # 2. none is selected twice
        assert backend not in tried
        # 3. all of the partitions before this one's have been attempted
        place = next(i for i, group in enumerate(groups) if backend in group)
        assert {b.name for group in groups[:place] for b in group} <= {b.name for b in tried}
        tried.append(backend)
        # Other sessions go on in the meantime.
        markers.attempt(others.choice(groups[place]).name)
    assert next(candidates, None) is None


@pytest.mark.parametrize("name", sorted(EVERY.keys() - {"weighted"}))
@given(farm=farms(), key=st.text(max_size=10))
def test_the_retry_count_is_the_index(name: str, farm: tuple[list[tuple[Backend, ...]], Markers], key: str) -> None:
    groups, markers = farm
    whole = [*selectors.ranking(groups, EVERY[name], markers, key)]
    assert [selectors.select(groups, EVERY[name], markers, key, retry) for retry in range(len(whole))] == whole
    assert selectors.select(groups, EVERY[name], markers, key, len(whole)) is None


def _sessions(
    selector: selectors.BackendSelector, each: list[Backend], count: int, down: Sequence[str] = ()
) -> collections.Counter[str]:
    """Open sessions one after the other, never closing; returns how many each backend got."""
    markers, got = Markers(), collections.Counter[str]()
    for number in range(count):
        for backend in selectors.ranking([each], selector, markers, f"key-{number}"):
            markers.attempt(backend.name)
            if backend.name not in down:
                markers.opened(backend.name)
                got[backend.name] += 1
                break
    return got


def test_round_robin_gives_each_member_its_share() -> None:
    # The reference marks a partition three times an attempt: 12 of 12 sessions over three members went to one.
    assert _sessions(selectors.round_robin, backends(3), 12) == {"b0": 4, "b1": 4, "b2": 4}


def test_round_robin_shares_what_a_dead_member_would_have_had() -> None:
    # A cursor over positions would give all of it to the next in line.
    assert _sessions(selectors.round_robin, backends(3), 12, down=["b0"]) == {"b1": 6, "b2": 6}


def test_least_connections_fills_up_the_emptiest() -> None:
    markers = Markers()
    for name, active in (("b0", 3), ("b1", 1), ("b2", 2)):
        for _ in range(active):
            markers.opened(name)
    assert [b.name for b in selectors.least_connections(backends(3), markers, NO_KEY)] == ["b1", "b2", "b0"]
    markers.closed("b0")
    markers.closed("b0")
    markers.closed("b0")
    assert selectors.least_connections(backends(3), markers, NO_KEY)[0].name == "b0"


def test_least_connections_does_not_herd_before_sessions_open() -> None:
    # Counts that are polled lag behind, and every client of a burst goes to the same member.
    markers, first = Markers(), []
    for _ in range(9):
        backend = next(selectors.ranking([backends(3)], selectors.least_connections, markers, NO_KEY))
        markers.attempt(backend.name)
        first.append(backend.name)
    assert collections.Counter(first) == {"b0": 3, "b1": 3, "b2": 3}


def test_least_connections_counts_by_weight() -> None:
    each = [Backend("small", "h", weight=1), Backend("big", "h", weight=3), Backend("last", "h", weight=0)]
    assert _sessions(selectors.least_connections, each, 40) == {"small": 10, "big": 30}


def test_rendezvous_hash_spreads_short_keys_evenly() -> None:
    # One ring point a node gave 28086, 1787 and 127 of 30 000 short ids.
    got = _sessions(selectors.rendezvous_hash, backends(3), 3000)
    assert all(900 < count < 1100 for count in got.values()), got


def test_rendezvous_hash_moves_only_the_keys_of_the_one_that_went() -> None:
    whole, markers = backends(5), Markers()
    for key in map(str, range(500)):
        before = selectors.rendezvous_hash(whole, markers, key)
        after = selectors.rendezvous_hash([b for b in whole if b.name != "b2"], markers, key)
        assert after == [b for b in before if b.name != "b2"]


def test_rendezvous_hash_is_the_same_in_every_process() -> None:
    # Python's own hash() of text is another one in each process.
    program = (
        "from amqp_session_router.selection import selectors as s;"
        "from amqp_session_router.selection.markers import Markers as M;"
        "from amqp_session_router.base.model import Backend as B;"
        "e = [B(f'b{i}', f'h{i}') for i in range(8)];"
        "print([[b.name for b in s.rendezvous_hash(e, M(), f'key-{k}')] for k in range(50)])"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_sessions_without_a_key_do_not_all_hash_to_one() -> None:
    markers, got = Markers(), collections.Counter[str]()
    for _ in range(12):
        backend = next(selectors.ranking([backends(3)], selectors.rendezvous_hash, markers, NO_KEY))
        markers.attempt(backend.name)
        got[backend.name] += 1
    assert got == {"b0": 4, "b1": 4, "b2": 4}


@pytest.mark.parametrize("name", ["weighted", "rendezvous-hash"])
def test_weights_are_proportions_and_0_comes_last(name: str) -> None:
    each = [Backend("one", "h", weight=1), Backend("four", "h", weight=4), Backend("none", "h", weight=0)]
    first, last = collections.Counter[str](), set()
    for number in range(5000):
        order = selectors.OWN[name](each, Markers(), f"key-{number}")
        first[order[0].name] += 1
        last.add(order[-1].name)
    assert first["none"] == 0
    assert last == {"none"}
    # 1 in 5 of 5000 is 1000, its standard deviation 28.
    assert 800 < first["one"] < 1200, first


@given(farm=farms(), datacenter=st.sampled_from(["", "fra"]), order=st.permutations(sorted(partitions.OWN)))
def test_partition_policies_keep_the_set(
    farm: tuple[list[tuple[Backend, ...]], Markers], datacenter: str, order: list[str]
) -> None:
    groups, markers = farm
    each = [b for group in groups for b in group]
    around = partitions.Surroundings(datacenter, markers)
    result = partitions.apply(each, [partitions.OWN[name] for name in order], around)
    assert sorted(b.name for group in result for b in group) == sorted(b.name for b in each)
    assert all(result)
