"""The loops, against a client whose failures are ordered: what is sent, received, in doubt and tried again."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from brokerdrill.workload.client import UNKNOWN, ClientError, Delivery, Message, Outcome, Reconnect
from brokerdrill.workload.config import BrokerEndpoint, ClientSpec, Router, WorkerConfig
from brokerdrill.workload.consumer import Consumer
from brokerdrill.workload.ledger_writer import ClientLedger, LedgerClock
from brokerdrill.workload.producer import Producer, RoutedProducer
from tests.unit.workload.loop_bench import HEADER, Bench, config, first_batch, produced, rows_in, until_sent
from tests.workload.fake_client import FakeClient
from tests.workload.worker_process import judge, merged

pytestmark = pytest.mark.usefixtures("empty_queue")


def test_plain() -> None:
    bench = produced("ok")
    assert [op["producer_seq"] for op in bench.ops("send")] == list(range(len(FakeClient.queue)))
    said = judge(bench.rows)
    assert said.acknowledged == said.attempted == {message.message_id for message, _ in FakeClient.queue}
    assert bench.runner.counts.sent_ok == len(FakeClient.queue) and bench.runner.counts.sent_unknown == 0


@pytest.mark.parametrize("detection", [True, False])
def test_a_lost_reply(detection: bool) -> None:
    bench = produced("lost", duplicate_detection=detection)
    assert first_batch(bench) == [(0, "unknown", None), (1, "ok", "duplicate" if detection else None)]
    copies = sum(message.message_id == "producer-0-0" for message, _ in FakeClient.queue)
    assert copies == (1 if detection else 2)
    assert bench.runner.counts.sent_unknown == 2


def test_a_proven_rollback_is_retried_at_once_with_the_same_ids() -> None:
    bench = produced("refused,gone")
    assert first_batch(bench) == [(0, "fail", None), (1, "unknown", None), (2, "ok", None)]
    bodies = {op["payload_sha"] for op in bench.ops("send") if op["message_id"] == "producer-0-0"}
    assert len(bodies) == 1, "the identical batch"
    assert (bench.runner.counts.sent_fail, bench.runner.counts.sent_unknown) == (2, 2)


def test_no_rollback_row_follows_a_commit_in_doubt() -> None:
    """A rollback that is ok would turn the attempt into `fail`, and its delivery into a phantom."""
    bench = produced("lost,lost,gone")
    assert bench.ops("rollback") == []


def test_a_transparent_failover_counts_as_a_session_with_its_instance() -> None:
    bench = produced("ok,gone")
    connects = bench.ops("connect")
    assert [(op["session"], op["instance"]) for op in connects] == [(0, "a1"), (1, "a2")]
    assert connects[1]["start_ns"] <= connects[1]["end_ns"]
    by_session = {(op["session"], op["instance"]) for op in bench.ops("commit") if op["outcome"] == "ok"}
    assert by_session == {(0, "a1"), (1, "a2")}


class BatchingClient(FakeClient):
    """Takes batches, of which the first breaks with its second message."""

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self.batches = 0

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        raise AssertionError("a batch was sent one by one")

    def send_batch(self, address: str, batch: Sequence[Message], attempt: int) -> tuple[Outcome, list[int]]:
        self.batches += 1
        if self.batches == 1:
            return Outcome("fail", "ADDRESS_FULL: no room"), [time.monotonic_ns(), time.monotonic_ns()]
        self._sent += [(message, attempt) for message in batch]
        return Outcome("ok"), [time.monotonic_ns() for _ in batch]


def test_a_batch_that_breaks_is_rolled_back_and_sent_again() -> None:
    bench = Bench(Producer, config(transaction=3), 9, BatchingClient).run()
    sends = bench.ops("send")
    assert [(op["attempt"], op["outcome"], op.get("error")) for op in sends[:6]] == [
        (0, "ok", None),
        (0, "fail", "ADDRESS_FULL: no room"),
        (0, "fail", "not sent"),
        *[(1, "ok", None)] * 3,
    ]
    assert [op["op"] for op in bench.ops("commit", "rollback")][:2] == ["rollback", "commit"]
    assert all(one["end_ns"] <= other["end_ns"] for one, other in itertools.pairwise(sends[3:]))


class ReplayingClient(FakeClient):
    """Its library tells the second instance all of a transaction that the first one had begun: the failover comes with
    the call named `at` that follows the fifth of the producer's calls, before that call returns."""

    at: ClassVar[str]

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self._calls = 0
        self._back: Reconnect | None = None

    def _fail_over(self, call: str) -> None:
        self._calls += 1
        if self._calls > 5 and call == self.at and self._place == 0:
            self._back = Reconnect(time.monotonic_ns(), time.monotonic_ns())
            self._place = 1

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        self._fail_over("send")
        return super().send(address, message, attempt)

    def commit(self, *, resent: bool) -> Outcome:
        self._fail_over("commit")
        return super().commit(resent=resent)

    def reconnect(self) -> Reconnect | None:
        return self._back


@pytest.mark.parametrize(("at", "by"), [("commit", ["a1", "a1", "a1"]), ("send", ["a1", "a2", "a2"])])
def test_a_send_was_made_to_who_served_when_it_returned(
    monkeypatch: pytest.MonkeyPatch, at: str, by: list[str]
) -> None:
    """Also where the library replays the transaction, and the new instance takes the commit. Else sends by the new one
    lie between those of the old one: two brokers active at once."""
    monkeypatch.setattr(ReplayingClient, "at", at, raising=False)
    bench = Bench(Producer, config(transaction=3), 12, ReplayingClient).run()
    sends = bench.ops("send")
    assert [op["instance"] for op in sends if op["txn"] == sends[3]["txn"]] == by
    assert {op["instance"] for op in sends[:3]} == {"a1"}
    assert bench.ops("commit")[1]["instance"] == "a2"
    assert [op["instance"] for op in bench.ops("connect")] == ["a1", "a2"]


def test_an_unusable_connection_is_opened_anew() -> None:
    bench = Bench(Producer, config(url_params={"commits": "gone", "moves": "0"}), 20).run()
    assert [(op["op"], op["session"]) for op in bench.ops("connect", "close")] == [
        ("connect", 0),
        ("close", 0),
        ("connect", 1),
        ("close", 1),
    ]


def test_connecting_is_tried_until_it_works() -> None:
    bench = Bench(Producer, config(url_params={"refuse_opens": "2"}), 4).run()
    assert [(op["session"], op["outcome"]) for op in bench.ops("connect")] == [(0, "fail"), (0, "fail"), (0, "ok")]


class LeftClient(FakeClient):
    """Its library leaves it at a router that serves nobody, each second time that it connects."""

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self.calls: list[str] = []

    def served_by(self) -> BrokerEndpoint | None:
        self.calls.append("served_by")
        if self.calls.count("served_by") % 2:
            raise ClientError("neither served nor led on by r1")
        return super().served_by()

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        self.calls.append("open")
        super().open(sends_to, receives_from, transacted=transacted)

    def close(self) -> Outcome:
        self.calls.append("close")
        return super().close()


def test_who_is_left_at_a_router_has_not_connected() -> None:
    """Nor has one whom the library took back there by itself, for whom no router is then a broker that was reached."""
    bench = Bench(Producer, config(url_params={"commits": "ok,gone,gone", "moves": "1"}), 8, LeftClient).run()
    connects = [(op["session"], op["outcome"], op.get("instance")) for op in bench.ops("connect")]
    assert connects[:4] == [(0, "fail", None), (0, "ok", "a1"), (1, "fail", None), (2, "ok", "a1")]
    assert bench.ops("connect")[2]["error"] == "neither served nor led on by r1"
    assert isinstance(bench.client, LeftClient)
    opened = ["open", "served_by", "close", "open", "served_by"]
    assert bench.client.calls[:5] == opened, "a connection that is not used is closed"


def test_a_stopped_producer_proves_what_is_in_doubt() -> None:
    bench = produced(",".join(["gone"] * 3), messages=0)
    said = judge(bench.rows)
    assert said.attempted == said.acknowledged


def test_a_stopped_producer_gives_up_in_the_end() -> None:
    bench = produced(",".join(["gone"] * 1000), messages=0, retry_after_stop_s=0.3)
    assert judge(bench.rows).acknowledged == set()


def test_a_stopped_producer_does_not_go_on_with_a_refused_batch() -> None:
    bench = produced(",".join(["refused"] * 1000), messages=0)
    assert {op["outcome"] for op in bench.ops("commit")} <= {"fail"}


def test_single_sends() -> None:
    bench = produced("ok,lost", transaction=0)
    assert bench.ops("commit", "rollback") == [] and not any("txn" in op for op in bench.ops("send"))
    second = [op for op in bench.ops("send") if op["message_id"] == "producer-0-1"]
    assert [(op["attempt"], op["outcome"], op.get("error")) for op in second] == [
        (0, "unknown", "TRANSACTION_OUTCOME_UNKNOWN: who knows"),
        (1, "ok", "duplicate"),
    ]


def test_addresses_in_turn_each_with_its_own_order() -> None:
    bench = produced("ok", messages=12, addresses=("q", "r"))
    for address in ("q", "r"):
        own = [op["producer_seq"] for op in bench.ops("send") if op["address"] == address]
        assert own == list(range(len(own))) and own
    ids = [op["message_id"] for op in bench.ops("send")]
    assert len(ids) == len(set(ids))


def test_a_consumer_takes_all_and_its_idle_receive_ends() -> None:
    sent = produced("ok", messages=5 * 2).runner.counts.sent_ok
    bench = Bench(Consumer, config(transaction=3), sent).run()
    said = judge(bench.rows)
    assert len(said.processed) == sent and bench.runner.counts.received == sent
    assert all("end_ns" in op for op in merged(bench.rows)), "nothing is left open"
    assert {op["error"] for op in bench.ops("receive") if op["outcome"] == "fail"} <= {"no message"}


def test_what_is_in_doubt_is_not_sent_again_where_the_load_says_so() -> None:
    bench = produced("ok,lost,gone", transaction=0, resend=False)
    sends = bench.ops("send")
    assert {op["attempt"] for op in sends} == {0}
    assert [op["outcome"] for op in sends][:4] == ["ok", "unknown", "unknown", "ok"]
    assert [op["producer_seq"] for op in sends] == list(range(len(sends)))


class OneWay(FakeClient):
    """Acknowledgements have no answer; from the third delivery on each proves the oldest."""

    _count = 0

    def receive(self, timeout_s: float) -> Delivery | None:
        found = super().receive(timeout_s)
        if found is None:
            return None
        self._count += 1
        return found._replace(proves=int(self._count > 2))

    def ack(self, delivery: Delivery) -> Outcome:
        return Outcome(UNKNOWN, "one-way")


def test_an_acknowledgement_without_an_answer_is_open_until_it_is_proven() -> None:
    sent = produced("ok", transaction=0, messages=6).runner.counts.sent_ok
    bench = Bench(Consumer, config(transaction=0), sent, OneWay).run()
    acks = bench.ops("ack")
    assert [op["outcome"] for op in acks] == ["ok"] * (sent - 2) + ["unknown"] * 2
    assert [op.get("error") for op in acks] == [None] * (sent - 2) + ["one-way"] * 2
    assert all("end_ns" in op for op in acks), "nothing is left open"
    brought = {op["delivery"]: op["end_ns"] for op in bench.ops("receive") if op["outcome"] == "ok"}
    later = sorted(brought.values())[2:]
    assert all(op["end_ns"] >= proof for op, proof in zip(acks, later, strict=False))


class Unanswered(FakeClient):
    """What was received is taken, and the first reply to that lost."""

    _asked = False

    def _first(self) -> bool:
        first, self._asked = not self._asked, True
        return first

    def commit(self, *, resent: bool) -> Outcome:
        done = super().commit(resent=resent)
        return Outcome(UNKNOWN, "TRANSACTION_OUTCOME_UNKNOWN: who knows") if self._first() else done

    def ack(self, delivery: Delivery) -> Outcome:
        return Outcome(UNKNOWN, "NOT_CONNECTED: gone", usable=False) if self._first() else super().ack(delivery)


@pytest.mark.parametrize(("transaction", "unanswered"), [(0, 1), (3, 3)])
def test_what_was_received_without_an_answer_is_counted_apart(transaction: int, unanswered: int) -> None:
    """It is not missing: with it as many were received as sent."""
    sent = produced("ok", transaction=0, messages=9).runner.counts.sent_ok
    counts = Bench(Consumer, config(transaction=transaction), sent - unanswered, Unanswered).run().runner.counts
    assert (counts.received, counts.received_unknown) == (sent - unanswered, unanswered)


class OneWayBroken(OneWay):
    """The connection breaks once, after four deliveries."""

    _broken = False

    def receive(self, timeout_s: float) -> Delivery | None:
        if self._count == 4 and not self._broken:
            self._broken = True
            raise ClientError("NOT_CONNECTED: gone")
        return super().receive(timeout_s)


def test_one_way_acknowledgements_of_a_connection_that_broke_are_counted_apart() -> None:
    sent = produced("ok", transaction=0, messages=9).runner.counts.sent_ok
    bench = Bench(Consumer, config(transaction=0), sent - 2, OneWayBroken).run()
    assert (bench.runner.counts.received, bench.runner.counts.received_unknown) == (sent - 2, 2)


class LeftBehind(FakeClient):
    """Every message is another run's."""

    def receive(self, timeout_s: float) -> Delivery | None:
        found = super().receive(timeout_s)
        return found and found._replace(left_by="b9d17232", message_id="foreign-ID:7")


@pytest.mark.parametrize("transaction", [0, 3])
def test_what_an_earlier_run_left_behind_is_taken_away_and_counted_apart(transaction: int) -> None:
    sent = produced("ok", transaction=0, messages=6).runner.counts.sent_ok
    bench = Bench(Consumer, config(transaction=transaction), sent, LeftBehind).run()
    assert bench.runner.counts.received == 0
    assert bench.runner.counts.left_by == {"b9d17232": sent}
    assert not [op for op in bench.ops("receive") if op["outcome"] == "ok"], "no delivery of this run"
    assert "left behind by run b9d17232" in {op.get("error") for op in bench.ops("receive")}
    assert not bench.ops("ack")


class Led(FakeClient):
    """A client that is led; its third send breaks its connection."""

    def __init__(self, settings: WorkerConfig, name: str) -> None:
        super().__init__(settings, name)
        self._sends = 0

    def aim(self, router: Router, key: str) -> None:
        """Go where the fake goes."""

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        self._sends += 1
        if self._sends == 3:
            return Outcome(UNKNOWN, "broken", usable=False)
        return super().send(address, message, attempt)


def led_by_a_router(**more: Any) -> WorkerConfig:
    router = Router("10.0.0.9", 1, "r1", "h9")
    return config(transaction=0, resend=False, key_type="SNI_HOST", routers=(router,), **more)


def test_a_connect_that_is_refused_says_whom_it_asked() -> None:
    """In its first row, which is there before the call: one that never returns says it, too."""
    settings = led_by_a_router(url_params={"refuse_opens": "2"})
    stop, data = threading.Event(), list[bytes]()
    spec = ClientSpec("producer-0", ("q",), keys=("anna",))
    ledger = ClientLedger(data.append, LedgerClock(), HEADER, "producer-0")
    visitor = RoutedProducer(settings, spec, Led(settings, "producer-0"), ledger, stop)
    thread = threading.Thread(target=visitor.run, daemon=True)
    thread.start()
    until_sent(visitor, 1, thread, stop)
    begun = [op for op in rows_in(data) if op["op"] == "connect" and op.get("end_ns") is None]
    outcomes = [op["outcome"] for op in merged(rows_in(data)) if op["op"] == "connect"]
    assert outcomes[:3] == ["fail", "fail", "ok"]
    assert {(op.get("key"), op.get("via")) for op in begun} == {("anna", "r1")}


@pytest.mark.parametrize("keeps", [False, True])
def test_who_keeps_its_connection_is_led_anew_only_when_it_broke(keeps: bool) -> None:
    settings = led_by_a_router(keeps_connection=keeps)
    stop, data = threading.Event(), list[bytes]()
    client = Led(settings, "producer-0")
    spec = ClientSpec("producer-0", ("q",), keys=("anna",))
    visitor = RoutedProducer(
        settings, spec, client, ClientLedger(data.append, LedgerClock(), HEADER, "producer-0"), stop
    )
    thread = threading.Thread(target=visitor.run, daemon=True)
    thread.start()
    until_sent(visitor, 6, thread, stop)
    ops = merged(rows_in(data))
    connects = [(op["key"], op["via"]) for op in ops if op["op"] == "connect"]
    assert set(connects) == {("anna", "r1")}
    assert len(connects) == (2 if keeps else len([op for op in ops if op["op"] == "send"]))
