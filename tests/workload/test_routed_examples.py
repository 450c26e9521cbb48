"""The examples of the documentation of Artemis' connection routers as they stand there, in a real broker with real
targets: the names, accounts and groups in them are what these brokers have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.workload.config import ClientAccount
from brokerdrill.workload.core_jms import CoreJms
from tests.workload.conftest import start_jvm
from tests.workload.routed_brokers import Routed, by_amqp, file_of, named, until, visit
from tests.workload.standalone_broker import Broker

pytestmark = pytest.mark.long

CONNECTORS = ("connector1", "connector2", "connector3")
STATIC = "".join(f"<connector-ref>{name}</connector-ref>" for name in CONNECTORS)
ROUTERS = {
    "local-partition": """
        <key-type>CLIENT_ID</key-type>
        <key-filter>^.{{3}}</key-filter>
        <local-target-filter>^FOO.*</local-target-filter>""",
    "simple-router": f"""
        <policy name="FIRST_ELEMENT"/>
        <pool>
          <static-connectors>{STATIC}</static-connectors>
        </pool>""",
    # Its policy stands there twice.
    "consistent-hash-router": """
        <key-type>USER_NAME</key-type>
        <local-target-filter>admin</local-target-filter>
        <policy name="CONSISTENT_HASH"/>
        <pool>
          <local-target-enabled>true</local-target-enabled>
          <discovery-group-ref discovery-group-name="dg1"/>
        </pool>
        <policy name="CONSISTENT_HASH"/>""",
    "evenly-balance": """
        <key-type>CLIENT_ID</key-type>
        <key-filter>^.{{3}}</key-filter>
        <policy name="LEAST_CONNECTIONS"/>
        <pool>
          <username>guest</username>
          <password>guest</password>
          <discovery-group-ref discovery-group-name="dg2"/>
        </pool>""",
    # The example of a pool alone, behind a policy that shows whom it has, in the order in which the broker takes it.
    "pool": f"""
        <policy name="ROUND_ROBIN"/>
        <pool>
          <check-period>1000</check-period>
          <quorum-size>2</quorum-size>
          <local-target-enabled>true</local-target-enabled>
          <static-connectors>{STATIC}</static-connectors>
        </pool>""",
}
AS_IT_STANDS = f"""<connection-routers>
    <connection-router name="pool">
      <policy name="ROUND_ROBIN"/>
      <pool>
        <quorum-size>2</quorum-size>
        <check-period>1000</check-period>
        <local-target-enabled>true</local-target-enabled>
        <static-connectors>{STATIC}</static-connectors>
      </pool>
    </connection-router>
  </connection-routers>"""
USERS = {f"user{number}": f"password {number}" for number in range(16)}
ACCOUNTS = {"admin": "the administrator's", "guest": "guest", **USERS}


@pytest.fixture(scope="module")
def routed(distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    """Where a pool has no account, its targets have to let in who has none."""
    made = Routed(
        distribution,
        tmp_path_factory.mktemp("examples"),
        ROUTERS,
        targets=CONNECTORS,
        secure=False,
        clustered=False,
        accounts=ACCOUNTS,
        anonymous=True,
        groups=("dg1", "dg2"),
    )
    try:
        made.start()
        yield made
    finally:
        made.kill()


def at(routed: Routed, name: str, **changes: Any) -> str:
    """Where a client gets by that router."""
    return visit(routed, name, "", key_type="SOURCE_IP", **changes)[0]


def of(user: str) -> dict[str, Any]:
    return {"credentials": ClientAccount(user, ACCOUNTS[user])}


def test_local_partition_serves_foo_here_and_refuses_others(routed: Routed) -> None:
    router = routed.endpoint("local-partition")
    ids = ("FOO", "FOOBAR", "FOO-1", "BAR", "BARFOO", "foo", "FO")
    found = {one: by_amqp(routed, router, one, "CLIENT_ID") for one in ids}
    assert found == {one: "router" if one.startswith("FOO") else None for one in ids}


def test_simple_router_leads_to_the_first_that_is_ready(routed: Routed) -> None:
    until(lambda: named(routed, "simple-router") == "connector1")
    assert at(routed, "simple-router") == "connector1"
    routed.targets["connector1"].stop()
    try:
        until(lambda: named(routed, "simple-router") == "connector2")
        assert at(routed, "simple-router") == "connector2"
    finally:
        routed.targets["connector1"].start()
    until(lambda: named(routed, "simple-router") == "connector1")


def test_consistent_hash_router_serves_admin_here_and_others_by_their_name(routed: Routed) -> None:
    """The local broker has its share of the names, too."""
    first, again = ({user: at(routed, "consistent-hash-router", **of(user)) for user in USERS} for _ in range(2))
    assert first == again
    assert "router" in first.values() and set(first.values()) & set(CONNECTORS)
    assert {at(routed, "consistent-hash-router", **of("admin")) for _ in range(3)} == {"router"}


def test_evenly_balance_leads_to_whom_has_the_fewest(routed: Routed) -> None:
    """By an account that the targets know, and by the counts of the last look."""
    router = routed.endpoint("evenly-balance")
    config = routed.config("evenly-balance")
    start_jvm(config)
    free, *busy = CONNECTORS
    direct = tuple(end for end in config.endpoints if end.instance in busy)
    with ExitStack() as held:
        for number in range(12):
            one = CoreJms(replace(config, routers=(), endpoints=direct[number % 2 :][:1]), f"held-{number}")
            held.callback(one.close)
            one.open(["drill.q0"], [], transacted=False)
        until(lambda: {by_amqp(routed, router, f"c{number}", "CLIENT_ID") for number in range(4)} == {free})


def test_the_example_of_a_pool_stops_the_broker_as_it_stands(distribution: Path, tmp_path: Path) -> None:
    """FINDINGS.md: its schema wants check-period first."""
    broker = Broker(distribution, tmp_path / "alone", ())
    written = file_of(broker).read_text()
    assert "<acceptors>" in written
    file_of(broker).write_text(written.replace("</acceptors>", f"</acceptors>{AS_IT_STANDS}", 1))
    with pytest.raises(AssertionError, match=r"AMQ214019(?s:.)*starting with element \S*check-period"):
        broker.start()
    assert not broker.running()


def test_a_pool_with_the_local_broker_and_three_connectors_has_all_four(routed: Routed) -> None:
    router = routed.endpoint("pool")
    until(lambda: {by_amqp(routed, router) for _ in range(4)} == {"router", *CONNECTORS})
    found = Counter(by_amqp(routed, router) for _ in range(8))
    assert found == {"router": 2, **dict.fromkeys(CONNECTORS, 2)}


def test_a_local_broker_in_a_pool_counts_for_its_quorum(routed: Routed) -> None:
    """Of two: with one of the three connectors it is there, without them all it is not."""
    for name in CONNECTORS[1:]:
        routed.targets[name].stop()
    try:
        until(lambda: {by_amqp(routed, routed.endpoint("pool")) for _ in range(4)} == {"router", "connector1"})
        routed.targets["connector1"].stop()
        until(lambda: by_amqp(routed, routed.endpoint("pool")) is None)
    finally:
        for name in CONNECTORS:
            if not routed.targets[name].running():
                routed.targets[name].start()
