"""Preflight of ActiveMQ Classic and of the lease database: each rule by the smallest configuration that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.test_plugins import plugin

classic = plugin("filter", "activemq_classic_preflight")
database = plugin("filter", "lease_db")


def member(host: str, **change: Any) -> dict[str, Any]:
    return {
        "pair": "p1",
        "broker_name": host,
        "holder": host,
        "store_dir": "/srv/p1",
        "adapter": "kahadb",
        "locker": "shared_file",
        **change,
    }


def pair(**change: Any) -> dict[str, Any]:
    shared = {name: change[name] for name in ("adapter", "locker") if name in change}
    return {
        "version": "5.18.3",
        "archive": {"coordinate": "g:a:v", "sha256": "0"},
        "members": {host: member(host, **shared) for host in ("c1", "c2")},
        "adapter": "kahadb",
        "locker": "shared_file",
        "locker_class": "",
        "sleep_ms": 1000,
        "lease_ms": None,
        "keep_alive_ms": 500,
        "fail_if_locked": None,
        "use_lock": None,
        "max_diff_ms": None,
        "holder": None,
        "handler": "default",
        "statements": {},
        "jdbc_url": "jdbc:postgresql://a:5432,b:5432/broker?targetServerType=primary",
        "allow": [],
        **change,
    }


def lease(**change: Any) -> dict[str, Any]:
    return pair(**{"locker": "lease_database", "handler": "lease_locker", "adapter": "jdbc", **change})


def one_holder() -> dict[str, Any]:
    members = {host: member(host, holder="same", adapter="jdbc", locker="lease_database") for host in ("c1", "c2")}
    return lease(members=members)


def two(**change: Any) -> dict[str, Any]:
    return pair(members={"c1": member("c1"), "c2": member("c2", **change)})


@pytest.mark.parametrize(
    "config",
    [
        pair(),
        pair(locker="database", keep_alive_ms=0),
        pair(fail_if_locked=True),
        lease(),
        lease(adapter="kahadb"),
        lease(adapter="kahadb", handler="com.example.Own"),
        lease(max_diff_ms=500),
        lease(lease_ms=0),
        lease(lease_ms=1000),
        lease(lease_ms=3000, sleep_ms=200),
        lease(jdbc_url="jdbc:mysql://db/broker?useJDBCCompliantTimezoneShift=true"),
        pair(locker="custom", locker_class="com.example.Locker"),
    ],
)
def test_a_sound_pair_passes(config: dict[str, Any]) -> None:
    assert classic.activemq_classic_problems(config) == []


BROKEN = [
    ("lease_shorter_than_keep_alive", lease(sleep_ms=1000, keep_alive_ms=1000), "runs out in between"),
    ("lease_shorter_than_keep_alive", lease(sleep_ms=5000, keep_alive_ms=None), "renewed every 30000 ms"),
    ("lease_shorter_than_keep_alive", lease(lease_ms=1500, keep_alive_ms=800), "lost by one late renewal"),
    ("lease_shorter_than_sleep", lease(lease_ms=900), "at least once in each lease"),
    ("no_keep_alive", lease(lease_ms=3000, keep_alive_ms=0), "never be renewed"),
    ("ignored", lease(lease_ms=3000, statements={"leaseUpdateStatement": "x"}), "itself (leaseUpdateStatement)"),
    ("ignored", pair(lease_ms=3000), "activemq_classic_lease_duration_ms is set"),
    ("no_keep_alive", pair(keep_alive_ms=0), "would give the store to two masters"),
    ("no_keep_alive", pair(keep_alive_ms=None), "would give the store to two masters"),
    ("no_keep_alive", lease(keep_alive_ms=0), "never be renewed"),
    ("shared_holder", one_holder(), "c1 and c2 hold a lease under one name"),
    ("kahadb_lease_handler", lease(adapter="kahadb", handler="default"), "does not know the lease"),
    ("kahadb_lease_handler", lease(adapter="kahadb", handler="jdbc"), "does not know the lease"),
    ("fail_if_locked_ignored", lease(fail_if_locked=True), "waits all the same"),
    ("fail_if_locked_ignored", pair(locker="database", fail_if_locked=True), "waits all the same"),
    ("no_lock", pair(use_lock=False), "open the store at once"),
    ("no_class", pair(locker="custom"), "activemq_classic_locker_class"),
    ("ignored", pair(holder="x"), "activemq_classic_lease_holder_id is set"),
    ("ignored", pair(max_diff_ms=5), "activemq_classic_max_allowable_diff_from_db_time_ms is set"),
    ("different_store", two(store_dir="/srv/other"), "c1 and c2 have different activemq_classic_store_dir"),
    ("different_store", two(locker="database"), "c1 and c2 have different activemq_classic_locker"),
    ("no_database", lease(jdbc_url="jdbc:postgresql:///broker?x=y"), "group lease_db"),
    ("timezone_shift", lease(jdbc_url="jdbc:mysql://db/broker"), "useJDBCCompliantTimezoneShift=true"),
]


@pytest.mark.parametrize(("rule", "config", "words"), BROKEN)
def test_each_rule_is_said_once_and_a_drill_may_break_it(rule: str, config: dict[str, Any], words: str) -> None:
    (problem,) = classic.activemq_classic_problems(config)
    assert words in problem
    assert classic.activemq_classic_problems({**config, "allow": [rule]}) == []


def test_an_unknown_version_is_refused_whatever_a_drill_allows() -> None:
    (problem,) = classic.activemq_classic_problems(pair(archive=None, allow=["archive"]))
    assert "5.18.3 is not known" in problem


def clocks(*offsets: float, uncertainty: float = 5) -> dict[str, dict[str, float]]:
    return {f"c{i}": {"offset_ms": one, "uncertainty_ms": uncertainty} for i, one in enumerate(offsets)}


def test_clocks_may_be_apart_by_what_a_lease_allows() -> None:
    assert classic.clock_problems(clocks(0, 2000), 2000) == []
    assert classic.clock_problems(clocks(0, 2009), 2000) == [], "within what the measurement leaves open"
    (problem,) = classic.clock_problems(clocks(-1500, 40, 900), 2000)
    assert "c0 and c2 are 2400 ms apart" in problem
    assert classic.clock_problems(clocks(5), 0) == []


def db(**change: Any) -> dict[str, Any]:
    return {
        "members": {"d1": {"instance": "d1"}, "d2": {"instance": "d2"}},
        "zookeeper_servers": [{}, {}, {}],
        "allow_small": False,
        "ttl_s": 6,
        "loop_wait_s": 1,
        "retry_timeout_s": 2,
        "tick_ms": 500,
        "metrics_ports": {"artemis": 9404},
        **change,
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"members": {"d1": {"instance": "d1"}}}, "has no standby"),
        ({"zookeeper_servers": [{}]}, "3 or more ZooKeeper servers, not 1"),
        ({"retry_timeout_s": 3}, "lose its place"),
        ({"ttl_s": 11}, "outside 1 to 10"),
        ({"members": {"d1": {"instance": "x"}, "d2": {"instance": "x"}}}, "d1 and d2 have one lease_db_instance x"),
        ({"metrics_ports": {"lease_db": 9187}}, "Patroni serves the metrics at lease_db_rest_port"),
    ],
)
def test_a_database_that_cannot_hold_is_refused(change: dict[str, Any], words: str) -> None:
    assert database.lease_db_problems(db()) == []
    (problem,) = database.lease_db_problems(db(**change))
    assert words in problem


def test_a_drill_may_ask_for_a_small_ensemble() -> None:
    assert database.lease_db_problems(db(zookeeper_servers=[{}], allow_small=True)) == []
