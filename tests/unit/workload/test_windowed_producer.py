"""Producers with several messages in flight, against a client whose answers are ordered."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.client import Answer, Client, ClientError, Message, Outcome
from brokerdrill.workload.config import ClientSpec, WorkerConfig
from brokerdrill.workload.ledger_writer import ClientLedger, LedgerClock
from brokerdrill.workload.windowed_producer import WindowedProducer
from tests.unit.workload.loop_bench import HEADER, config, rows_in, until_sent
from tests.workload.fake_client import FakeClient
from tests.workload.in_flight import most_in_flight
from tests.workload.worker_process import merged


class Scripted(FakeClient):
    """Answers in the words of `told`, one a message handed over: ok, nack, fail, refused (it is not handed over),
    silent (no answer), lost (the connection ends before any answer that is due); afterwards ok."""

    told: deque[str]

    def __init__(self, settings: WorkerConfig, name: str) -> None:
        super().__init__(settings, name)
        self.told = deque(filter(None, settings.url_params.get("told", "").split(",")))
        self._due: list[tuple[str, Message]] = []
        self._lost = False

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        super().open(sends_to, receives_from, transacted=transacted)
        self._due, self._lost = [], False

    def hand_over(self, address: str, message: Message, attempt: int) -> Outcome:
        word = self.told.popleft() if self.told else "ok"
        if word == "refused":
            return Outcome("fail", "SECURITY: no")
        self._lost |= word == "lost"
        if word != "silent":
            self._due.append((word, message))
        return Outcome("ok")

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        if self._lost:
            raise ClientError("ConnectionLost: gone")
        # No answer is there at once.
        if timeout_s == 0:
            return []
        if not self._due:
            time.sleep(min(timeout_s, 0.01))
        # The last first: answers come in any order.
        due, self._due = self._due[::-1], []
        of = {"ok": Outcome("ok"), "nack": Outcome("unknown", "nack"), "fail": Outcome("fail", "returned: 312")}
        return [Answer(message.message_id, of[word], time.monotonic_ns()) for word, message in due]


def sent(told: str, messages: int = 12, **changes: object) -> tuple[list[dict[str, object]], WindowedProducer]:
    """Let a producer with a window of 4 send; return its sends in the order of their begins."""
    settings = config(transaction=0, window=4, url_params={"told": told}, **changes)
    data: list[bytes] = []
    stop = threading.Event()
    client: Client = Scripted(settings, "producer-0")
    ledger = ClientLedger(data.append, LedgerClock(), HEADER, "producer-0")
    runner = WindowedProducer(settings, ClientSpec("producer-0", ("q",)), client, ledger, stop)
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    until_sent(runner, messages, thread, stop)
    assert not thread.is_alive()
    ops = merged(rows_in(data))
    assert sorted(op["op_id"] for op in ops) == list(range(len(ops)))
    return sorted((op for op in ops if op["op"] == "send"), key=lambda op: op["op_id"]), runner


def told_of(ops: list[dict[str, object]], count: int) -> list[tuple[object, object, object]]:
    return [(op["producer_seq"], op["attempt"], op["outcome"]) for op in ops[:count]]


def test_so_many_are_in_flight_and_each_has_its_own_answer() -> None:
    ops, runner = sent("")
    assert {op["outcome"] for op in ops} == {"ok"}
    assert 1 < most_in_flight(ops) <= 4
    assert runner.counts.sent_ok == len(ops)


def test_what_is_refused_or_in_doubt_is_sent_again_before_anything_new() -> None:
    ops, runner = sent("ok,nack,fail,ok")
    again = [(op["producer_seq"], op["outcome"]) for op in ops if op["attempt"] == 1]
    assert again == [(1, "ok"), (2, "ok")]
    assert (runner.counts.sent_unknown, runner.counts.sent_fail) == (1, 1)


def test_a_lost_connection_leaves_all_in_flight_in_doubt_and_they_follow_in_order() -> None:
    ops, _ = sent("silent,silent,silent,lost")
    assert told_of(ops, 8) == [
        (seq, attempt, word) for attempt, word in ((0, "unknown"), (1, "ok")) for seq in range(4)
    ]
    assert [op["session"] for op in ops[:8]] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_what_is_in_doubt_stays_so_where_the_load_does_not_resend() -> None:
    ops, runner = sent("silent,silent,silent,lost", resend=False)
    assert told_of(ops, 5) == [*((seq, 0, "unknown") for seq in range(4)), (4, 0, "ok")]
    assert runner.counts.sent_unknown == 4


def test_an_answer_that_is_overdue_ends_the_connection() -> None:
    ops, _ = sent("silent", call_timeout_ms=50)
    assert (ops[0]["outcome"], ops[0]["error"]) == ("unknown", "no answer within 0.05 s")
    assert [op["session"] for op in ops if op["producer_seq"] == 0] == [0, 1]


def test_what_is_not_handed_over_has_failed_and_is_tried_again() -> None:
    ops, _ = sent("ok,refused")
    assert [(op["attempt"], op["outcome"], op.get("error")) for op in ops if op["producer_seq"] == 1] == [
        (0, "fail", "SECURITY: no"),
        (1, "ok", None),
    ]


def test_a_client_that_waits_for_each_answer_is_refused() -> None:
    settings = config(transaction=0, window=2)
    with pytest.raises(InfrastructureError, match="have one message in flight"):
        WindowedProducer(
            settings,
            ClientSpec("producer-0", ("q",)),
            FakeClient(settings, "producer-0"),
            ClientLedger(None, LedgerClock(), HEADER, "producer-0"),
            threading.Event(),
        )
