"""Which addresses are a drill's."""

from __future__ import annotations

from typing import Any

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.inventory.addresses import dead_letters, declared, refuse_undeclared
from brokerdrill.inventory.descriptors import Descriptor
from tests.unit.descriptors import broker

ORDERS = {"name": "orders", "dead_letter": "DLQ"}
Q = {"name": "q", "dead_letter": "DLQ", "drill": True}
R = {"name": "r", "dead_letter": "own", "drill": True}


def with_addresses(*each: list[dict[str, Any]]) -> list[Descriptor]:
    return [broker("artemis", f"a{number}", addresses=addresses) for number, addresses in enumerate(each)]


def test_what_says_so_is_a_drills_and_nothing_else() -> None:
    assert declared(with_addresses([ORDERS, Q, R])) == {"q", "r"}
    assert declared(with_addresses([ORDERS])) == declared([]) == frozenset()


def test_what_one_broker_does_not_give_to_drills_is_none_of_theirs_anywhere() -> None:
    assert declared(with_addresses([Q, R], [{**Q, "drill": False}, R])) == {"r"}
    assert declared(with_addresses([Q], [R])) == {"q", "r"}


def test_the_dead_letters_of_the_drills_addresses_alone() -> None:
    found = with_addresses([ORDERS, Q], [R])
    assert dead_letters(found, ["q"]) == ["DLQ"]
    assert dead_letters(found, ["q", "r"]) == ["DLQ", "own"]
    assert dead_letters(found, ["elsewhere"]) == []


def test_a_scenario_of_other_addresses_is_refused() -> None:
    found = with_addresses([ORDERS, Q, R])
    refuse_undeclared(["q", "r"], found, "ours")
    with pytest.raises(UsageError, match=r"^orders of ours is not declared a drill's, .*; a drill's are q, r$"):
        refuse_undeclared(["q", "orders"], found, "ours")
    with pytest.raises(UsageError, match=r"^q, r of ours are not .*; no address there is: deploy it anew, .*$"):
        refuse_undeclared(["q", "r"], with_addresses([ORDERS]), "ours")
