"""What a conventional cluster of Open MQ does with subscriptions, destinations and messages that concern several of
its brokers, on real ones."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from brokerdrill.workload.client import ClientError
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
from tests.free_ports import free_port
from tests.workload import openmq_process as process
from tests.workload.certificate import make_certificate
from tests.workload.openmq_process import Clients
from tests.workload.standalone_openmq import PASSWORD, USER, OpenMq, cluster, own_address, unpack
from tests.workload.wire import listened

pytestmark = pytest.mark.long

# Two minutes by default: until a destination goes that was made by itself and is not used.
REAP_S = 3
DEADLINE_S = 120.0
COME_S = 20.0
# Long enough to see that a message does not come; where it would, it comes within milliseconds.
GONE_S = 2.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, OpenMq]]:
    """m1, the master, and m2 and m3."""
    home = unpack(tmp_path_factory.mktemp("openmq"))
    properties = {"imq.autocreate.queue": "true", "imq.autocreate.reaptime": REAP_S}
    with cluster(home, tmp_path_factory.mktemp("brokers"), ["m1", "m2", "m3"], properties) as made:
        yield made


@pytest.fixture(scope="module")
def clients(brokers: dict[str, OpenMq]) -> Iterator[Clients]:
    with process.clients(of(brokers["m2"])) as made:
        yield made


def of(broker: OpenMq, *, subscriptions: bool = False) -> WorkerConfig:
    return WorkerConfig(
        run_id="cluster",
        worker="w0",
        clock="w0",
        client="openmq",
        endpoints=(BrokerEndpoint(broker.address, broker.port, broker.name, broker.name),),
        credentials=ClientAccount(USER, PASSWORD),
        addresses=("q",),
        transaction=0,
        jars=str(broker.home / "lib"),
        subscriptions=subscriptions,
    )


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_without_the_master_no_subscription_is_made_or_ended(brokers: dict[str, OpenMq], clients: Clients) -> None:
    m1, m2, m3 = brokers.values()
    m1.command("create dst -t t -n news")
    for name in ("old", "other"):
        clients(process.open_client, of(m2, subscriptions=True), name, [], ["news"])
    clients(process.open_client, of(m3, subscriptions=True), "publisher", ["news"], [])
    m1.kill()
    # The client is told that it may not, the log why (B4094, no configuration server).
    with pytest.raises(ClientError, match="C4079"):
        clients(process.open_client, of(m3, subscriptions=True), "new", [], ["news"])
    assert "[B4094]" in m3.log.read_text()
    refused = clients(process.unsubscribe, "other", "news")
    assert refused.result != "ok" and refused.error
    # Whoever had one goes on with it, also from another connection and at another broker.
    assert clients(process.send, "publisher", "news") == ["ok"]
    assert clients(process.receive, "old", 1, COME_S) == 1
    clients(process.close, "old")
    assert clients(process.send, "publisher", "news") == ["ok"]
    clients(process.open_client, of(m3, subscriptions=True), "old", [], ["news"])
    assert clients(process.receive, "old", 1, COME_S) == 1
    # What is made by itself and what is temporary are not the master's business.
    clients(process.open_client, of(m2), "taker", [], ["made.meanwhile"])
    clients(process.open_client, of(m3), "giver", ["made.meanwhile"], [])
    assert clients(process.send, "giver", "made.meanwhile") == ["ok"]
    assert clients(process.receive, "taker", 1, COME_S) == 1
    clients(process.make_temporary, "taker", "reply")
    clients(process.reply, "giver", "reply")
    assert clients(process.receive, "taker", 1, COME_S) == 1
    m1.start()
    m1.until_linked(2)
    clients(process.close, "other")
    clients(process.open_client, of(m2, subscriptions=True), "other", [], ["news"])
    assert clients(process.unsubscribe, "other", "news").result == "ok"
    clients(process.open_client, of(m3, subscriptions=True), "new", [], ["news"])
    clients(process.close_all)


def test_a_destination_is_made_where_its_producer_is_and_everywhere_where_a_consumer_is(
    brokers: dict[str, OpenMq], clients: Clients
) -> None:
    _, m2, m3 = brokers.values()
    clients(process.open_client, of(m2), "giver", ["by.producer"], [])
    assert "by.producer" in m2.destinations()
    clients(process.open_client, of(m2), "taker", [], ["by.consumer"])
    until(lambda: "by.consumer" in m3.destinations())
    assert "by.producer" not in m3.destinations()
    clients(process.close_all)
    # Without a client and without messages it goes by itself.
    for one in (m2, m3):
        until(lambda one=one: not {"by.producer", "by.consumer"} & one.destinations())  # type: ignore[misc]


def test_a_temporary_destination_goes_with_its_connection(brokers: dict[str, OpenMq], clients: Clients) -> None:
    _, m2, m3 = brokers.values()
    clients(process.open_client, of(m2), "asker", [], [])
    name = clients(process.make_temporary, "asker", "reply")
    until(lambda: name in m3.destinations("-tmp"))
    clients(process.close, "asker")
    for one in (m2, m3):
        until(lambda one=one: name not in one.destinations("-tmp"))  # type: ignore[misc]


def test_a_temporary_destination_whose_client_does_not_come_back_goes_at_its_broker_alone(
    brokers: dict[str, OpenMq], clients: Clients
) -> None:
    m1, m2, m3 = brokers.values()
    # A client that says that it comes back: what it has is kept for it.
    lasting = replace(of(m2), url_params={"imqReconnectEnabled": "true"})
    with process.clients(lasting) as dying:
        dying(process.open_client, lasting, "asker", [], [])
        name = dying(process.make_temporary, "asker", "reply")
        until(lambda: name in m1.destinations("-tmp") & m3.destinations("-tmp"))
        m2.kill()
        dying.kill()
    m2.start()
    m2.until_linked(2)
    assert name in m2.destinations("-tmp"), "kept for its client"
    until(lambda: name not in m2.destinations("-tmp"))
    # FINDINGS.md: that it is gone is told to nobody.
    assert name in m1.destinations("-tmp") & m3.destinations("-tmp")


def test_limits_are_each_brokers_and_add_up(brokers: dict[str, OpenMq], clients: Clients) -> None:
    _, m2, m3 = brokers.values()
    m2.command("create dst -t q -n limited -o maxNumMsgs=10 -o limitBehavior=REJECT_NEWEST")
    for one in (m2, m3):
        clients(process.open_client, of(one), f"at {one.name}", ["limited"], [])
        results = clients(process.send, f"at {one.name}", "limited", 15)
        assert results[:10] == ["ok"] * 10
        assert len(results) == 15 and not {"ok"} & {*results[10:]}
    clients(process.open_client, of(m3), "taker", [], ["limited"])
    assert clients(process.receive, "taker", 20, COME_S) == 20
    assert clients(process.receive, "taker", 1, GONE_S) == 0
    clients(process.close_all)


def test_a_message_for_two_consumers_of_a_topic_crosses_once_and_for_two_durable_subscriptions_twice(
    brokers: dict[str, OpenMq], clients: Clients
) -> None:
    m1, m2, m3 = brokers.values()
    m1.command("create dst -t t -n wide")
    clients(process.open_client, of(m2, subscriptions=True), "publisher", ["wide"], [])
    size = 1_000_000

    def cost(*readers: OpenMq, durable: bool) -> float:
        """How often the publisher's broker sends a message that all of them read."""
        names = [f"reader {number}" for number, _ in enumerate(readers)]
        for name, at in zip(names, readers, strict=True):
            clients(process.open_client, of(at, subscriptions=durable), name, [], ["wide"] if durable else [])
            if not durable:
                clients(process.read_topic, name, "wide")
        before = m2.sent_bytes()
        assert clients(process.send, "publisher", "wide", 1, size) == ["ok"]
        assert [clients(process.receive, name, 1, COME_S) for name in names] == [1] * len(names)
        sent = m2.sent_bytes() - before
        for name in names:
            if durable:
                assert clients(process.unsubscribe, name, "wide").result == "ok"
            clients(process.close, name)
        return sent / size

    assert 1 <= cost(m3, m3, durable=False) < 1.5
    assert 2 <= cost(m1, m3, durable=False) < 2.5
    # FINDINGS.md: each durable subscription has a copy of its own sent.
    assert 2 <= cost(m3, m3, durable=True) < 2.5
    clients(process.close_all)


@pytest.mark.parametrize("preferred", [True, False])
def test_local_consumers_come_first_where_that_is_set(
    brokers: dict[str, OpenMq], clients: Clients, preferred: bool
) -> None:
    m1, m2, m3 = brokers.values()
    queue = f"local.{preferred}".lower()
    m1.command(f"create dst -t q -n {queue} -o localDeliveryPreferred={str(preferred).lower()} -o consumerFlowLimit=5")
    clients(process.open_client, of(m3), "far", [], [queue])
    clients(process.open_client, of(m2), "giver", [queue], [])
    # What it gets alone shows that the giver's broker knows of it.
    assert clients(process.send, "giver", queue, 1) == ["ok"]
    assert clients(process.receive, "far", 1, COME_S) == 1
    clients(process.open_client, of(m2), "near", [], [queue])
    assert clients(process.send, "giver", queue, 4) == ["ok"] * 4
    far = clients(process.receive, "far", 4, GONE_S)
    assert (far == 0) is preferred
    assert clients(process.receive, "near", 4 - far, COME_S) == 4 - far
    clients(process.close_all)


def test_what_is_prepared_is_kept_when_its_broker_dies(brokers: dict[str, OpenMq], clients: Clients) -> None:
    _, m2, m3 = brokers.values()
    m2.command("create dst -t q -n paid")
    clients(process.prepare, of(m2), "paid", 41)
    clients(process.prepare, of(m2), "paid", 42)
    clients(process.open_client, of(m3), "taker", [], ["paid"])
    m2.kill()
    m2.start()
    m2.until_linked(2)
    assert clients(process.prepared, of(m2)) == {41, 42}
    assert clients(process.receive, "taker", 1, GONE_S) == 0
    clients(process.commit_prepared, of(m2), 42)
    assert clients(process.receive, "taker", 1, COME_S) == 1
    assert clients(process.receive, "taker", 1, GONE_S) == 0
    assert clients(process.prepared, of(m2)) == {41}
    clients(process.close_all)


def limit_of(broker: OpenMq, queue: str) -> str | None:
    """What the broker says is the most messages that the queue takes; None where it has no such queue."""
    if queue not in broker.destinations():
        return None
    found = re.search(r"Max Number of Messages\s+(\S+)", broker.command(f"query dst -t q -n {queue}"))
    assert found
    return found.group(1)


def test_a_change_of_a_destinations_properties_arrives_at_the_others(
    brokers: dict[str, OpenMq], clients: Clients
) -> None:
    _, m2, m3 = brokers.values()
    m2.command("create dst -t q -n narrowed -o maxNumMsgs=100 -o limitBehavior=REJECT_NEWEST")
    for one in brokers.values():
        until(lambda one=one: limit_of(one, "narrowed") == "100")  # type: ignore[misc]
    m2.command("update dst -t q -n narrowed -o maxNumMsgs=7")
    for one in brokers.values():
        until(lambda one=one: limit_of(one, "narrowed") == "7")  # type: ignore[misc]
    # Not only told: it counts there.
    clients(process.open_client, of(m3), "giver", ["narrowed"], [])
    results = clients(process.send, "giver", "narrowed", 9)
    assert results[:7] == ["ok"] * 7 and "ok" not in results[7:]
    clients(process.close_all)
    m2.command("destroy dst -t q -n narrowed")


@pytest.mark.parametrize("place", ["m2", "m3"])
def test_an_administrator_deletes_a_destination_that_was_made_by_itself(
    brokers: dict[str, OpenMq], clients: Clients, place: str
) -> None:
    _, m2, m3 = brokers.values()
    # What has messages at each of them goes nowhere by itself.
    for one in (m2, m3):
        clients(process.open_client, of(one), f"at {one.name}", ["unwanted"], [])
        assert clients(process.send, f"at {one.name}", "unwanted") == ["ok"]
    clients(process.close_all)
    time_is_up = time.monotonic() + 2 * REAP_S
    until(lambda: time.monotonic() > time_is_up)
    assert all("unwanted" in one.destinations() for one in (m2, m3))
    brokers[place].command("destroy dst -t q -n unwanted")
    # FINDINGS.md: not at that broker alone, and with the message that the other one has.
    until(lambda: all("unwanted" not in one.destinations() for one in brokers.values()))
    clients(process.open_client, of(m3), "taker", [], ["unwanted"])
    assert clients(process.receive, "taker", 1, GONE_S) == 0
    clients(process.close_all)


def test_a_destination_that_was_made_by_itself_is_gone_after_a_restart_where_it_is_empty(
    brokers: dict[str, OpenMq], clients: Clients, tmp_path: Path
) -> None:
    """Long before the two minutes are over after which it goes anyway."""
    alone = OpenMq(brokers["m1"].home, tmp_path / "alone", "alone", properties={"imq.autocreate.queue": "true"})
    alone.start()
    try:
        clients(process.open_client, of(alone), "giver", ["is.empty", "has.one"], [])
        assert clients(process.send, "giver", "has.one") == ["ok"]
        closed = time.monotonic()
        clients(process.close_all)
        assert {"is.empty", "has.one"} <= alone.destinations()
        alone.kill()
        alone.start()
        assert alone.destinations() & {"is.empty", "has.one"} == {"has.one"}
        assert time.monotonic() - closed < 110
    finally:
        alone.kill()


def test_messages_of_a_broker_that_was_away_come_late_and_out_of_order(
    brokers: dict[str, OpenMq], clients: Clients
) -> None:
    """One producer's, who goes on at another broker."""
    _, m2, m3 = brokers.values()
    clients(process.open_client, of(m3), "first", ["in.order"], [])
    assert clients(process.send, "first", "in.order", 3) == ["ok"] * 3
    m3.kill()
    clients(process.open_client, of(m2), "then", ["in.order"], [])
    assert clients(process.send, "then", "in.order", 2) == ["ok"] * 2
    clients(process.open_client, of(m2), "taker", [], ["in.order"])
    before = clients(process.sequence, "taker", 5, 2 * GONE_S)
    assert len(before) == 2
    m3.start()
    m3.until_linked(2)
    after = clients(process.sequence, "taker", 3, COME_S)
    assert len(after) == 3
    assert before == sorted(before) and after == sorted(after) and after[-1] < before[0]
    clients(process.close_all)


def test_the_end_of_another_broker_is_known_before_anything_is_sent(brokers: dict[str, OpenMq]) -> None:
    """By the end of the connection: the documents have it that sending finds it out."""
    m1, m2, m3 = brokers.values()
    lost = {one.name: one.lost_links() for one in (m1, m2)}
    killed = time.monotonic()
    m3.kill()
    until(lambda: all(one.lost_links() > lost[one.name] for one in (m1, m2)))
    known_after = time.monotonic() - killed
    m3.start()
    m3.until_linked(2)
    # Links that are silent are asked once a minute.
    assert known_after < 15


def test_one_file_has_what_all_brokers_have_alike(brokers: dict[str, OpenMq], clients: Clients, tmp_path: Path) -> None:
    """Who is in the cluster, and a property that has nothing to do with it; no broker has them of its own."""
    address, ports = own_address(), {name: free_port() for name in ("f1", "f2")}
    members = {name: f"mq://{address}:{port}" for name, port in ports.items()}
    file = tmp_path / "cluster.properties"

    def write(made_by_itself: str) -> None:
        shared = {
            "imq.cluster.brokerlist": ",".join(members.values()),
            "imq.cluster.masterbroker": members["f1"],
            "imq.autocreate.queue": made_by_itself,
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in shared.items()))

    own = {"imq.cluster.url": file.as_uri()}
    home = brokers["m1"].home
    both = [
        OpenMq(home, tmp_path / name, name, address, {**own, "imq.portmapper.port": port})
        for name, port in ports.items()
    ]
    try:
        for made_by_itself in ("false", "true"):
            write(made_by_itself)
            for one in both:
                one.begin()
            for one in both:
                one.until_it_serves()
                one.until_linked(1)
            for one in both:
                if made_by_itself == "true":
                    clients(process.open_client, of(one), one.name, [f"by.{one.name}"], [])
                    assert clients(process.send, one.name, f"by.{one.name}") == ["ok"]
                else:
                    with pytest.raises(ClientError, match="C4077"):
                        clients(process.open_client, of(one), one.name, [f"by.{one.name}"], [])
            clients(process.close_all)
            # Whose orders both follow: the second one's master is the first.
            both[1].command(f"create dst -t q -n ordered.{made_by_itself}")
            until(lambda made=made_by_itself: f"ordered.{made}" in both[0].destinations())  # type: ignore[misc]
            both[0].kill()
            if made_by_itself == "true":
                with pytest.raises(subprocess.CalledProcessError):
                    both[1].command("create dst -t q -n without.a.master")
            both[1].kill()
    finally:
        for one in both:
            one.kill()


@pytest.mark.parametrize("order", [("m3", "m2", "m1"), ("m3", "m1", "m2")])
def test_the_library_reconnects_in_the_order_of_its_list(
    brokers: dict[str, OpenMq], clients: Clients, order: tuple[str, ...]
) -> None:
    again = {"imqReconnectEnabled": "true", "imqReconnectAttempts": "1", "imqAddressListIterations": "-1"}
    ends = tuple(BrokerEndpoint(brokers[n].address, brokers[n].port, n, n) for n in order)
    config = replace(of(brokers["m3"]), endpoints=ends, url_params=again)
    clients(process.open_client, config, "lasting", ["lasting"], [])
    try:
        assert clients(process.served_by, "lasting") == "m3"
        brokers["m3"].kill()
        # Nobody opens it anew: the same client is at the next of the list, and sends there.
        until(lambda: clients(process.served_by, "lasting") == order[1])
        until(lambda: clients(process.send, "lasting", "lasting") == ["ok"])
        assert clients(process.served_by, "lasting") == order[1]
    finally:
        clients(process.close_all)
        if not brokers["m3"].running():
            brokers["m3"].start()
            brokers["m3"].until_linked(2)


@pytest.mark.parametrize("transport", ["tcp", "ssl"])
def test_a_message_can_be_read_between_brokers_without_tls_alone(
    brokers: dict[str, OpenMq], clients: Clients, tmp_path: Path, transport: str
) -> None:
    """On the wire, but for what the brokers' own clients send and get in plain text."""
    _, bundle = make_certificate(tmp_path)
    password = "of the key store"
    made = ["openssl", "pkcs12", "-export", "-in", str(bundle), "-name", "own", "-out", str(tmp_path / "keystore.p12")]
    subprocess.run([*made, "-passout", "stdin"], check=True, input=password, text=True)
    (tmp_path / "broker.passwords").write_text(f"imq.keystore.password={password}\n")
    (tmp_path / "broker.passwords").chmod(0o600)
    properties = {
        "imq.autocreate.queue": "true",
        "imq.cluster.transport": transport,
        "imq.keystore.file.dirpath": tmp_path,
        "imq.keystore.file.name": "keystore.p12",
        "imq.passfile.enabled": "true",
        "imq.passfile.dirpath": tmp_path,
        "imq.passfile.name": "broker.passwords",
    }
    text = b"nobody but the consumer reads this"
    with cluster(brokers["m1"].home, tmp_path, ["s1", "s2"], properties) as two:
        s1, s2 = two.values()
        clients(process.open_client, of(s2), "far", [], ["secret"])
        clients(process.open_client, of(s1), "giver", ["secret"], [])
        with listened() as wire:
            assert clients(process.send, "giver", "secret", 1, 0, text) == ["ok"]
            assert clients(process.receive, "far", 1, COME_S) == 1
            until(lambda: wire.has(text, to=[s2.port]))
        clients(process.close_all)
    assert wire.has(text, beside=[s1.port, s2.port]) is (transport == "tcp")


def test_a_cluster_on_loopback_is_refused(brokers: dict[str, OpenMq], tmp_path: Path) -> None:
    own = {"imq.cluster.brokerlist": "mq://127.0.0.1:7676,mq://127.0.0.1:7677"}
    alone = OpenMq(brokers["m1"].home, tmp_path / "m4", "m4", properties=own)
    alone.begin()
    try:
        alone.until("LoopbackAddressException")
    finally:
        alone.kill()
