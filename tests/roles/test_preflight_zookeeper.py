"""Preflight of an ensemble: each rule by the smallest inventory that breaks it, and each in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.test_plugins import plugin

zookeeper = plugin("filter", "zookeeper")


def ensemble(count: int, **more: Any) -> dict[str, Any]:
    return {f"zk{number}": {"id": number, "tick_ms": 500, **more} for number in range(1, count + 1)}


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_sound_ensemble_passes(count: int) -> None:
    assert zookeeper.zookeeper_problems(ensemble(count)) == []


@pytest.mark.parametrize(
    ("count", "words"), [(1, "at least 3"), (2, "at least 3"), (4, "no more failures than one of 3")]
)
def test_an_ensemble_too_small_or_even_is_refused(count: int, words: str) -> None:
    assert any(words in problem for problem in zookeeper.zookeeper_problems(ensemble(count)))


def test_a_drill_may_ask_for_one_member() -> None:
    assert zookeeper.zookeeper_problems(ensemble(1), allow_small=True) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["zk1", "zk2", "zk3"], ["zk1", "zk2", "zk3", "zk10", "zk11"]),
        (["zk1", "zk2", "zk3"], ["zk2", "zk3", "zk4"]),
        (["zk-a-07", "zk-a-08"], ["zk-a-06", "zk-a-07", "zk-a-08"]),
    ],
)
def test_who_joins_or_replaces_another_renumbers_nobody(before: list[str], after: list[str]) -> None:
    old, new = zookeeper.zookeeper_ids(before), zookeeper.zookeeper_ids(after)
    assert {host: new[host] for host in before if host in new} == {host: old[host] for host in before if host in new}
    assert len(set(new.values())) == len(after)


def test_who_joins_with_an_id_of_its_own_renumbers_nobody() -> None:
    """load1 ends in zk1's number: with an id that its inventory gives it is no reason to count by places."""
    said = {"zk1": {}, "zk2": {}, "zk3": {}, "load1": {"zookeeper_id": 4}, "north": {"zookeeper_id": "5"}}
    assert zookeeper.zookeeper_ids(list(said), said) == {
        "zk1": 1, "zk2": 2, "zk3": 3, "load1": 4, "north": "5",
    }  # fmt: skip
    defaults = {"client_port": 1, "quorum_port": 2, "election_port": 3, "tick_time_ms": 500}
    addresses = {host: {"zookeeper_address": f"192.0.2.{place}", **of} for place, (host, of) in enumerate(said.items())}
    members = zookeeper.zookeeper_members(list(said), addresses, defaults)
    assert {host: member["id"] for host, member in members.items()} == {
        "zk1": 1, "zk2": 2, "zk3": 3, "load1": 4, "north": 5,
    }  # fmt: skip


@pytest.mark.parametrize("hosts", [["b", "a"], ["a1", "b1"], ["zk1", "zk300"], ["zk0", "zk1"], ["zk1", "north"]])
def test_names_without_numbers_of_their_own_count_by_place(hosts: list[str]) -> None:
    assert zookeeper.zookeeper_ids(hosts) == {host: place for place, host in enumerate(sorted(hosts), start=1)}


def test_a_server_that_has_an_id_keeps_it() -> None:
    assert zookeeper.zookeeper_renumbered("zk2", "2\n", 2) == ""
    assert zookeeper.zookeeper_renumbered("zk2", "", 4) == ""
    assert zookeeper.zookeeper_renumbered("north", "2", "4") == (
        "the server on north has the id 2 and would become 4: a server that runs keeps its id; give north "
        "zookeeper_id: 2 in the inventory, and new servers others"
    )


def test_members_with_one_id_or_other_ticks_are_refused() -> None:
    members = ensemble(3)
    members["zk3"] = {"id": 1, "tick_ms": 2000}
    assert zookeeper.zookeeper_problems(members) == [
        "zk1 and zk3 share the zookeeper_id 1",
        "the members of the ensemble have different zookeeper_tick_time_ms: [500, 2000]",
    ]


@pytest.mark.parametrize("outside", [["zk4"], ["zk1"]])
def test_who_is_outside_is_no_member_and_changes_no_id(outside: list[str]) -> None:
    hosts = ["zk1", "zk2", "zk3", "zk4"]
    hostvars = {host: {"zookeeper_address": "192.0.2.1", "zookeeper_outside": outside} for host in hosts}
    defaults = {"client_port": 1, "quorum_port": 2, "election_port": 3, "tick_time_ms": 500}
    members = zookeeper.zookeeper_members(hosts, hostvars, defaults)
    inside = [host for host in hosts if host not in outside]
    assert {host: member["id"] for host, member in members.items()} == {host: int(host[2:]) for host in inside}
    assert [server["host"] for server in zookeeper.zookeeper_servers(hosts, hostvars, 2281)] == inside
    assert zookeeper.zookeeper_problems(members) == []
