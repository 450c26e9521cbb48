"""Clients that a connection router leads: real brokers, one that leads and two that are led to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import jpype
import pytest

from brokerdrill.workload.client import Aim, ClientError, Message
from brokerdrill.workload.config import ClientSpec, Router
from brokerdrill.workload.core_jms import CoreJms, url
from brokerdrill.workload.header import sha
from tests.workload.conftest import start_jvm
from tests.workload.routed_brokers import KEYS, PASSWORD, Routed, visit
from tests.workload.standalone_broker import USER, Relay
from tests.workload.worker_process import WorkerProcess, merged, rows_of

# By router: its elements.
ROUTERS = {
    **{key: f"<key-type>{key}</key-type><cache/><policy name='ROUND_ROBIN'/>{{static}}" for key in KEYS},
    "forgotten": "<key-type>SNI_HOST</key-type><policy name='ROUND_ROBIN'/>{static}",
    "clustered": "<key-type>SNI_HOST</key-type><cache/><policy name='ROUND_ROBIN'/>{cluster}",
    "discovered": "<key-type>SNI_HOST</key-type><cache/><policy name='ROUND_ROBIN'/>{discovery}",
    "filtered": "<key-type>SNI_HOST</key-type><key-filter>^[^-]+</key-filter><cache/>"
    "<policy name='ROUND_ROBIN'/>{static}",
    "first": "<key-type>SNI_HOST</key-type><policy name='FIRST_ELEMENT'/>{static}",
    "hashed": "<key-type>SNI_HOST</key-type><policy name='CONSISTENT_HASH'/>{static}",
    "least": "<key-type>SNI_HOST</key-type><policy name='LEAST_CONNECTIONS'/>{static}",
    "modulo": "<key-type>SNI_HOST</key-type><local-target-filter>0</local-target-filter>"
    "<policy name='CONSISTENT_HASH_MODULO'><property key='MODULO' value='2'/></policy>",
    "filtered-modulo": "<key-type>SNI_HOST</key-type><key-filter>^[a-z]+</key-filter>"
    "<local-target-filter>0</local-target-filter>"
    "<policy name='CONSISTENT_HASH_MODULO'><property key='MODULO' value='2'/></policy>",
    "keyless": "<key-type>SNI_HOST</key-type><key-filter>^known</key-filter>"
    "<local-target-filter>NULL</local-target-filter>",
    "nobody": "<key-type>SNI_HOST</key-type><local-target-filter>here</local-target-filter>",
}

# By target: the elements of its own router, of the last digits of the keys that it serves; it refuses all others.
OWN = {
    name: "<key-type>SNI_HOST</key-type><key-filter>[0-9]$</key-filter>"
    f"<local-target-filter>{digits}</local-target-filter>"
    for name, digits in {"t1": "[0-4]", "t2": "[5-9]"}.items()
}
OWN_KEYS = {"key-1": "t1", "key-2": "t1", "key-7": "t2", "key-8": "t2"}


@pytest.fixture(scope="module")
def routed(
    distribution: Path, certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Routed]:
    work = tmp_path_factory.mktemp("routed")
    made = Routed(distribution, work, ROUTERS, certificate=certificate, check_period_ms=500, own=OWN)
    try:
        made.start()
        yield made
    finally:
        made.kill()


@pytest.mark.parametrize(
    ("name", "known"), [("SNI_HOST", "anna"), ("SOURCE_IP", "127.0.0.1"), ("USER_NAME", USER), ("ROLE_NAME", "anna")]
)
def test_a_key_reaches_one_target_however_often_it_comes(routed: Routed, name: str, known: str) -> None:
    visits = [visit(routed, name, "anna") for _ in range(4)]
    assert len(set(visits)) == 1
    assert visits[0][0] in routed.targets
    assert visits[0][1] == known


def test_other_keys_reach_other_targets(routed: Routed) -> None:
    found = Counter(visit(routed, "SNI_HOST", f"other-{number}")[0] for number in range(8))
    assert found == {"t1": 4, "t2": 4}


def test_the_members_of_a_cluster_are_targets(routed: Routed) -> None:
    """The router's own broker is none, although it is a member."""
    found = [[visit(routed, "clustered", f"member-{number}")[0] for number in range(4)] for _ in range(2)]
    assert found[0] == found[1]
    assert set(found[0]) == set(routed.targets)


def test_brokers_that_announce_themselves_are_targets(routed: Routed) -> None:
    found = [[visit(routed, "discovered", f"announced-{number}")[0] for number in range(4)] for _ in range(2)]
    assert found[0] == found[1]
    assert set(found[0]) == set(routed.targets)


def test_without_a_cache_each_turn_is_another_targets(routed: Routed) -> None:
    visits = [visit(routed, "forgotten", "anna")[0] for _ in range(4)]
    assert Counter(visits) == {"t1": 2, "t2": 2}


def test_the_first_target_gets_every_key(routed: Routed) -> None:
    assert len({visit(routed, "first", f"first-{number}")[0] for number in range(4)}) == 1


def test_a_hash_chooses_for_each_key_without_a_cache(routed: Routed) -> None:
    """However unevenly: with some brokers' ids all of twenty keys are one target's."""
    first, again = ({n: visit(routed, "hashed", f"hashed-{n}")[0] for n in range(20)} for _ in range(2))
    assert first == again


def test_the_target_with_the_fewest_connections_is_chosen(routed: Routed) -> None:
    """The pool counts them at each of its checks."""
    config = routed.config("least")
    start_jvm(config)
    ends = {item.instance: item for item in config.endpoints}
    for busy, free in (("t1", "t2"), ("t2", "t1")):
        held = [CoreJms(replace(config, routers=(), endpoints=(ends[busy],)), f"held-{n}") for n in range(12)]
        try:
            for one in held:
                one.open(["drill.q0"], [], transacted=False)
            # By counts of before another one is chosen; a visit that has just ended may still count.
            end = time.monotonic() + 60
            while {visit(routed, "least", f"least-{number}")[0] for number in range(6)} != {free}:
                assert time.monotonic() < end
        finally:
            for one in held:
                one.close()


def served(routed: Routed, name: str, key: str) -> bool:
    """Whether the router's own broker serves the key; else it is refused."""
    try:
        return visit(routed, name, key)[0] == "router"
    except ClientError as error:
        assert "rejected" in str(error)
        return False


def test_a_modulo_divides_the_keys_among_brokers_that_serve_their_own(routed: Routed) -> None:
    first, again = ([served(routed, "modulo", f"modulo-{number}") for number in range(12)] for _ in range(2))
    assert first == again
    assert 0 < sum(first) < 12


def test_a_key_is_filtered_first_and_then_made_a_number(routed: Routed) -> None:
    """What the filter leaves is one key with what is called so itself; a number that was made first would not match."""
    names = ["anna", "berta", "carla", "doris", "emma", "frida", "greta", "hanna"]
    whole = [served(routed, "modulo", name) for name in names]
    assert 0 < sum(whole) < len(names)
    for number in range(2):
        assert [served(routed, "filtered-modulo", f"{name}-{number}") for name in names] == whole
    assert not served(routed, "filtered-modulo", "1-anna"), "NULL is made no number"


def test_what_the_filter_does_not_match_is_the_key_null(routed: Routed) -> None:
    assert [served(routed, "keyless", key) for key in ("stranger", "known", "stranger")] == [True, False, True]


def test_the_filter_says_which_part_is_the_key(routed: Routed) -> None:
    assert len({visit(routed, "filtered", f"anna-{number}")[0] for number in range(4)}) == 1


def test_a_key_is_served_where_it_belongs_or_refused(routed: Routed) -> None:
    assert visit(routed, "nobody", "here")[0] == "router"
    with pytest.raises(ClientError, match="rejected"):
        visit(routed, "nobody", "there")


def refused_before(connect: Callable[[], None], most: int) -> int:
    """Connect however often it takes, at most so often; return how often the router refused it."""
    for number in range(most):
        try:
            connect()
            return number
        except ClientError as error:
            assert "rejected" in str(error)
    raise AssertionError(f"refused {most} times")


def test_behind_a_balancer_each_key_gets_to_its_own_broker(routed: Routed) -> None:
    """It takes the brokers in turn: with two of them a key is there at the second try at the latest."""
    config = routed.config("nobody")
    start_jvm(config)
    ends = {item.instance: item for item in config.endpoints}
    balancer = Relay(*routed.own_ports.values())
    refused = 0
    try:
        for key, own in OWN_KEYS.items():
            client = CoreJms(config, "test")
            client.aim(Router("127.0.0.1", balancer.port, "balancer", "h0"), key)
            refused += refused_before(partial(client.open, ["drill.q0"], [], transacted=False), most=2)
            assert client.send("drill.q0", Message(key, 0, None, key.encode(), sha(key.encode())), 0).result == "ok"
            client.close()
            consumer = CoreJms(replace(config, routers=(), endpoints=(ends[own],)), "test")
            consumer.open([], ["drill.q0"], transacted=False)
            got = consumer.receive(10)
            assert got is not None and got.message_id == key, "its message is at its own broker"
            assert consumer.ack(got).result == "ok"
            consumer.close()
    finally:
        balancer.close()
    assert refused > 0


def test_with_the_list_of_all_urls_each_key_gets_to_its_own_broker(routed: Routed) -> None:
    """The library begins at any of the list, and a refusal is the end of that try: the application tries again."""
    config = routed.config("nobody")
    start_jvm(config)
    ends = [Router("127.0.0.1", port, name, name) for name, port in routed.own_ports.items()]
    kind = jpype.JClass("org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory")
    for key, own in OWN_KEYS.items():
        reached: list[str] = []

        def connect(key: str = key, reached: list[str] = reached) -> None:
            factory = kind(url(config, ends, Aim(ends[0], key)))
            try:
                connection = factory.createConnection(USER, PASSWORD)
                reached.append(str(connection.createSession().getCoreSession().getConnection().getRemoteAddress()))
            except jpype.JClass("javax.jms.JMSException") as error:
                raise ClientError(str(error.getMessage())) from None
            finally:
                factory.close()

        # Never served by another; that each of 60 tries begins at the wrong one is as good as impossible.
        refused_before(connect, most=60)
        assert [one.rpartition(":")[2] for one in reached] == [str(routed.own_ports[own])]


@pytest.mark.parametrize(
    ("protocol", "key_type"),
    [
        ("core", "SNI_HOST"),
        ("openwire", "CLIENT_ID"),
        ("amqp", "CLIENT_ID"),
        ("stomp", "SNI_HOST"),
        ("mqtt", "SNI_HOST"),
    ],
)
def test_what_a_worker_records(
    routed: Routed, worker: Callable[..., WorkerProcess], tmp_path: Path, protocol: str, key_type: str
) -> None:
    """Each connect has its key, whom it asked and whom it reached; consumers dial the targets themselves."""
    keys = tuple(f"{protocol}-{number}" for number in range(6))
    spool = tmp_path / "w0.spool"
    config = routed.config(
        key_type,
        client=protocol,
        producers=(ClientSpec("producer-0", ("drill.q0",), keys=keys),),
        consumers=tuple(ClientSpec(f"consumer-{name}", ("drill.q0",), instances=(name,)) for name in routed.targets),
        spool=str(spool),
        resend=False,
    )
    one = worker(config)
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 3 * len(keys))
    one.tell("stop_producers")
    one.until("producers_stopped")
    one.until_status(lambda status: status["received"] == status["sent_ok"])
    one.finish()
    rows = merged(rows_of(spool))
    connects = [row for row in rows if row["op"] == "connect" and row["outcome"] == "ok"]
    led = [row for row in connects if row["client"] == "producer-0"]
    assert [row["key"] for row in led[:12]] == [*keys, *keys]
    assert {row["via"] for row in led} == {"router"}
    assert {row["protocol"] for row in connects} == {protocol}
    by_key = {key: {row["instance"] for row in led if row["key"] == key} for key in keys}
    assert all(len(reached) == 1 for reached in by_key.values())
    assert {name for reached in by_key.values() for name in reached} == set(routed.targets)
    direct = {row["client"]: row["instance"] for row in connects if row["client"] != "producer-0"}
    assert direct == {"consumer-t1": "t1", "consumer-t2": "t2"}
    assert not any("via" in row or "key" in row for row in connects if row["client"] != "producer-0")
