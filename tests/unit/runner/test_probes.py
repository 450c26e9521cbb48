"""What probes wait for, and when a system is served and in sync."""

from __future__ import annotations

import pytest

from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.runner.probes import even, failed_back, failed_over, kept, lasting, proven, unchanged
from brokerdrill.runner.system import in_sync, served


def instance(name: str, store: str) -> Descriptor:
    return Descriptor.model_validate(
        {"schema": 1, "product": "artemis", "instance": name, "host": name, "store": store}
    )


A1, A2, B1, B2 = (instance("a1", "a"), instance("a2", "a"), instance("b1", "b"), instance("b2", "b"))
ALL = (A1, A2, B1, B2)


def roles(*of: str) -> dict[str, str]:
    return dict(zip(("a1", "a2", "b1", "b2"), of, strict=True))


@pytest.mark.parametrize(
    ("now", "over", "back"),
    [
        (roles("active", "passive", "active", "passive"), False, True),
        (roles("down", "starting", "active", "passive"), False, False),
        (roles("down", "active", "active", "passive"), True, False),
        (roles("active", "active", "active", "passive"), True, True),
    ],
)
def test_another_pair_that_is_active_is_no_failover(now: dict[str, str], over: bool, back: bool) -> None:
    assert failed_over([A1], ALL, now) is over
    assert failed_back([A1], now) is back


def test_a_link_has_no_original_that_could_come_back() -> None:
    assert not failed_back([], roles("active", "passive", "active", "passive"))


def test_what_serves_no_store_on_a_host_that_was_hit_is_neither_awaited_nor_another_one() -> None:
    files, router = (instance(name, "").model_copy(update={"store": None}) for name in ("files1", "router1"))
    now = roles("active", "passive", "active", "passive") | {"files1": "member", "router1": "active"}
    assert failed_back([A1, files], now)
    assert not failed_back([files], now)
    assert not failed_over([A1, files], [*ALL, files, router], now)
    assert failed_over([A1, files], [*ALL, files, router], now | {"a1": "down", "a2": "active"})


def test_kept_asks_for_those_that_were_active_only() -> None:
    before = roles("active", "passive", "active", "passive")
    assert kept(ALL, before, roles("active", "down", "active", "syncing"))
    assert not kept(ALL, before, roles("active", "passive", "passive", "active"))


@pytest.mark.parametrize(
    ("now", "reached", "expected"),
    [
        (roles("active", "passive", "active", "passive"), {"a1": 5, "b1": 4}, True),
        (roles("active", "passive", "active", "passive"), {"a1": 6, "b1": 4}, False),
        # The store is one, whichever of its members clients reached; a store that nobody serves does not count
        (roles("down", "active", "active", "passive"), {"a2": 5, "b1": 5}, True),
        (roles("active", "passive", "down", "passive"), {"a1": 9}, True),
        (roles("active", "passive", "active", "passive"), {"a1": 9}, False),
        (roles("down", "passive", "down", "passive"), {}, False),
    ],
)
def test_even_compares_the_stores_that_are_served(now: dict[str, str], reached: dict[str, int], expected: bool) -> None:
    assert even(reached, ALL, now, most=1) is expected


def test_stores_are_not_even_while_a_role_is_not_known() -> None:
    now = roles("active", "passive", "active", "passive")
    assert not even({"a1": 5, "b1": 5}, ALL, {name: role for name, role in now.items() if name != "b1"}, most=1)


def test_a_router_gets_no_connections_that_would_have_to_be_even() -> None:
    led = {"name": "led", "address": "192.0.2.1", "port": 1, "protocol": "core", "router": "r", "key": "SNI_HOST"}
    router = Descriptor.model_validate(
        {"schema": 1, "product": "artemis", "instance": "r1", "host": "r1", "store": "r1", "listeners": [led]}
    )
    now = {**roles("active", "passive", "active", "passive"), "r1": "active"}
    assert even({"a1": 5, "b1": 5}, [*ALL, router], now, most=1)


def test_messages_of_before_the_new_place_prove_nothing() -> None:
    place, acknowledged = [False], [0]
    holds = proven(lambda: place[0], lambda: acknowledged[0], 2)
    acknowledged[0] = 10
    assert not holds()
    place[0] = True
    assert not holds()
    acknowledged[0] = 12
    assert holds()
    place[0] = False
    assert not holds()
    place[0] = True
    assert not holds()  # it lost its place: it counts anew


def test_held_back_is_nothing_new_for_so_long() -> None:
    acknowledged, clock = [5], [0]
    holds = unchanged(lambda: acknowledged[0], 10, lambda: clock[0])
    clock[0] = 9_999_999_999
    assert not holds()
    acknowledged[0] = 6
    clock[0] = 10_000_000_000
    assert not holds()  # something new: it counts anew
    clock[0] = 19_999_999_999
    assert not holds()
    clock[0] = 20_000_000_000
    assert holds()


def test_lasting_is_held_for_so_long_on_end() -> None:
    waits, clock = [True], [0]
    holds = lasting(lambda: waits[0], 10, lambda: clock[0])
    assert not holds()
    clock[0] = 9_000_000_000
    waits[0] = False
    assert not holds()
    waits[0] = True
    assert not holds()  # it counts anew
    clock[0] = 18_999_999_999
    assert not holds()
    clock[0] = 19_000_000_000
    assert holds()


@pytest.mark.parametrize(
    ("stores", "is_served", "is_in_sync"),
    [
        ([["active", "passive"], ["passive", "active"]], True, True),
        ([["active", "syncing"], ["active"]], True, False),
        ([["active", "down"]], False, False),
        ([["active", "active"]], False, False),
        ([["active", "passive"], ["passive", "passive"]], False, False),
    ],
)
def test_one_active_instance_a_store(stores: list[list[str]], is_served: bool, is_in_sync: bool) -> None:
    assert (served(stores), in_sync(stores)) == (is_served, is_in_sync)
