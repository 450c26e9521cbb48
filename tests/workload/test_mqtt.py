"""MQTT clients, alone and in worker processes, against a real Artemis with the addresses and accounts of the roles."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.workload import header
from brokerdrill.workload.client import ClientError, Delivery, Message
from brokerdrill.workload.config import WorkerConfig
from brokerdrill.workload.mqtt import PREFETCH, Mqtt
from tests.pausing import pause
from tests.workload.conftest import config_for, specs
from tests.workload.standalone_broker import QUEUES, Broker
from tests.workload.worker_process import WorkerProcess, merged, rows_of

StartWorker = Callable[..., WorkerProcess]
WAIT_S = 10.0
QUEUE = QUEUES[0]


def set_up(broker: Broker) -> None:
    """No queue or address is made for whoever names one, as the role has it; and there is one that nobody may use."""
    file = broker.directory / "etc" / "broker.xml"
    text = file.read_text()
    for what in ("queues", "addresses"):
        text = text.replace(f"<auto-create-{what}>true", f"<auto-create-{what}>false")
    closed = '<security-setting match="closed"><permission type="browse" roles="amq"/></security-setting>'
    address = '<address name="closed"><anycast><queue name="closed"/></anycast></address>'
    text = text.replace("</security-settings>", f"{closed}</security-settings>", 1)
    file.write_text(text.replace("</addresses>", f"{address}</addresses>", 1))


@pytest.fixture
def artemis(distribution: Path, tmp_path: Path) -> Iterator[Broker]:
    made = Broker(distribution, tmp_path / "m1", QUEUES)
    set_up(made)
    try:
        made.start()
        yield made
    finally:
        made.kill()


def config(broker: Broker, **changes: Any) -> WorkerConfig:
    return config_for(broker, **{"client": "mqtt", "transaction": 0, "call_timeout_ms": 3000, **changes})


def message(number: int) -> Message:
    body = b"body %d" % number
    return Message(f"m-{number}", number, None, body, header.sha(body))


def taken(client: Mqtt) -> Delivery:
    found = client.receive(WAIT_S)
    assert found is not None
    return found


def test_messages_come_as_they_were_sent_once_to_all_consumers(artemis: Broker) -> None:
    own = config(artemis)
    sender = Mqtt(own, "sender")
    sender.open(QUEUES, (), transacted=False)
    many = PREFETCH + 20
    for number in range(many):
        assert sender.send(QUEUE, message(number), number % 2) == ("ok", None, True)
    other = Mqtt(config(artemis, run_id="other"), "sender")
    other.open([QUEUE], (), transacted=False)
    assert other.send(QUEUE, message(many), 0).result == "ok"
    other.close()
    looker = Mqtt(own, "looker")
    looker.open((), (), transacted=False)
    assert len(list(looker.browse(QUEUE))) == many + 1
    assert looker.close().result == "ok"

    first, second = (Mqtt(own, f"consumer-{number}") for number in range(2))
    first.open((), QUEUES, transacted=False)
    held = [taken(first) for _ in range(PREFETCH)]
    assert first.receive(0.5) is None, "no more than the prefetch without an acknowledgement"
    second.open((), [QUEUE], transacted=False)
    rest = [taken(second) for _ in range(21)]
    assert second.receive(0.5) is None
    found = [*held, *rest[:-1]]
    assert sorted(one.seq for one in found if one.seq is not None) == list(range(many))
    for one in found:
        sent = message(one.seq or 0)
        assert one[:7] == (QUEUE, sent.message_id, sent.seq % 2, sent.seq, None, False, sent.sha)
    assert rest[-1].left_by == header.tag_of("other")
    for client, its in ((first, held[:10]), (second, rest)):
        for one in its:
            assert client.ack(one) == ("unknown", "one-way", True), "there is no answer to it"
    assert second.close().result == "ok"
    assert first.close().result == first.close().result == "ok"
    with pytest.raises(ClientError, match="closed"):
        first.receive(0.1)
    assert first.ack(held[10]).result == "fail"

    again = Mqtt(own, "consumer-0")
    again.open((), [QUEUE], transacted=False)
    back = [taken(again) for _ in range(PREFETCH - 10)]
    assert [one.seq for one in back] == [one.seq for one in held[10:]]
    assert again.receive(0.5) is None
    for number in range(30):
        sender.send(QUEUE, message(number), 0)
    back += [taken(again) for _ in range(10)]
    assert not any(one.proves for one in back)
    assert again.receive(0.5) is None
    for one in back[:20]:
        again.ack(one)
    assert [taken(again).proves for _ in range(20)] == [1] * 20, "there was no room for it before"
    again.close()
    sender.close()
    assert sender.send(QUEUE, message(0), 0) == ("fail", "the connection is closed", False)


def test_what_the_broker_refuses_is_said_with_its_reason(artemis: Broker) -> None:
    own = config(artemis)
    client = Mqtt(own, "client")
    client.open(["closed"], (), transacted=False)
    assert client.send("closed", message(0), 0) == ("fail", "PUBACK: Not authorized", True)
    assert client.send(QUEUE, message(1), 0).result == "ok", "the connection can be used on"
    with pytest.raises(ClientError, match="a1: SUBACK: Not authorized"):
        Mqtt(own, "refused").open((), ["closed"], transacted=False)
    with pytest.raises(ClientError, match="a1: disconnected"):
        Mqtt(own, "nowhere").open((), ["no.such.queue"], transacted=False)
    stranger = Mqtt(config(artemis, credentials=own.credentials.__class__("drill", "wrong")), "stranger")
    with pytest.raises(ClientError, match="a1: CONNACK: ") as caught:
        stranger.open([QUEUE], (), transacted=False)
    assert "wrong" not in str(caught.value)
    client.close()


def test_what_a_stopped_or_killed_broker_leaves_without_an_answer_is_unknown(artemis: Broker) -> None:
    own = config(artemis, call_timeout_ms=1000)
    client = Mqtt(own, "client")
    client.open([QUEUE], (), transacted=False)
    pause(artemis.pid)
    assert client.send(QUEUE, message(0), 0) == ("unknown", "no PUBACK within 1 s", False)
    client.close()
    artemis._process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
    client.open([QUEUE], [QUEUE], transacted=False)
    artemis.kill()
    with pytest.raises(ClientError, match="disconnected"):
        while True:
            client.receive(WAIT_S)
    assert client.send(QUEUE, message(1), 0)[::2] == ("fail", False), "it was not sent, for there was no connection"
    assert client.close().result == "unknown"
    with pytest.raises(ClientError, match="a1: ConnectionRefusedError"):
        client.open([QUEUE], (), transacted=False)
    assert client.connection_id() == 2


def test_a_worker_writes_a_whole_ledger_across_a_kill(artemis: Broker, worker: StartWorker, tmp_path: Path) -> None:
    spool = tmp_path / "w0.spool"
    one = worker(
        config(
            artemis,
            producers=specs("producer", 2, QUEUE),
            consumers=specs("consumer", 2, QUEUE),
            payload_bytes=(0, 3000),
            rate=100.0,
            spool=str(spool),
        )
    )
    one.begin()
    one.until_status(lambda status: status["received"] >= 100)
    artemis.kill()
    artemis.start()
    behind = one.status["sent_ok"]
    one.until_status(lambda status: status["sent_ok"] >= behind + 100)
    one.tell("stop_producers")
    one.until("producers_stopped")
    one.until_status(lambda status: not lost(merged(rows_of(spool))))
    one.finish(looks=[{"address": "DLQ", "instance": "a1", "drills": True}])
    ops = merged(rows_of(spool))
    assert {op["protocol"] for op in ops} == {"mqtt"}
    assert {op["outcome"] for op in ops if op["op"] == "send"} <= {"ok", "unknown", "fail"}
    assert {op["outcome"] for op in ops if op["op"] == "ack"} <= {"ok", "unknown", "fail"}
    sent = {op["message_id"]: op["payload_sha"] for op in ops if op["op"] == "send"}
    got = [op for op in ops if op["op"] == "receive" and op["outcome"] == "ok"]
    assert all(sent[op["message_id"]] == op["payload_sha"] for op in got)
    for name in ("producer-0", "consumer-0"):
        connects = [op for op in ops if op["client"] == name and op["op"] == "connect" and op["outcome"] == "ok"]
        assert len(connects) >= 2, f"{name} has noticed the kill"


def lost(ops: list[dict[str, Any]]) -> set[str]:
    """Messages that were acknowledged and have not been delivered."""
    delivered = {op["message_id"] for op in ops if op["op"] == "receive" and op["outcome"] == "ok"}
    return {op["message_id"] for op in ops if op["op"] == "send" and op["outcome"] == "ok"} - delivered
