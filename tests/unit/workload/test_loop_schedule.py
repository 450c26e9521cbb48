"""When the loops send: a schedule that no reply moves, and payloads of drawn sizes."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence

import pytest

from brokerdrill.workload.client import Outcome
from brokerdrill.workload.config import ClientSpec, WorkerConfig
from brokerdrill.workload.ledger_writer import ClientLedger, LedgerClock
from brokerdrill.workload.producer import Payloads, Producer, SendSchedule
from tests.unit.workload.loop_bench import HEADER, config, produced, rows_in, until_sent
from tests.workload.fake_client import FakeClient
from tests.workload.worker_process import merged

pytestmark = pytest.mark.usefixtures("empty_queue")


def test_schedule_does_not_depend_on_replies() -> None:
    schedule = SendSchedule(rate=100.0, share=4, batch=10, phase=0.25)
    assert [schedule.due_s(n) for n in range(3)] == pytest.approx([0.1, 0.5, 0.9])


class Stalling(FakeClient):
    """A client whose third commit returns only when it is let."""

    def __init__(self, settings: WorkerConfig, name: str) -> None:
        super().__init__(settings, name)
        self.commits = 0
        self.let = threading.Event()

    def commit(self, *, resent: bool) -> Outcome:
        self.commits += 1
        if self.commits == 3:
            assert self.let.wait(30)
        return super().commit(resent=resent)


def test_who_waits_behind_a_call_that_hangs_waits_too() -> None:
    """An open loop: what a stall held up is sent at once, and the ledger says how late it was."""
    stop, data = threading.Event(), list[bytes]()
    settings = config(rate=200.0)
    ledger = ClientLedger(data.append, LedgerClock(), HEADER, "producer-0")
    client = Stalling(settings, "producer-0")
    # A batch of 2 each 10 ms, the first one in a second: there is time to begin.
    schedule = SendSchedule(rate=200.0, share=1, batch=2, phase=100.0)
    producer = Producer(settings, ClientSpec("producer-0", ("q",)), client, ledger, stop, schedule)
    assert producer.behind_s() == 0
    thread = threading.Thread(target=producer.run, daemon=True)
    thread.start()
    waits = threading.Event()
    end = time.monotonic() + 30
    while producer.behind_s() < 0.5:
        assert time.monotonic() < end and thread.is_alive()
        waits.wait(0.002)
    client.let.set()
    while producer.behind_s() > 0 or client.commits < 60:
        assert time.monotonic() < end and thread.is_alive()
        waits.wait(0.002)
    stop.set()
    thread.join(10)
    assert not thread.is_alive() and producer.behind_s() == 0
    ops = merged(rows_in(data))
    late = [op.get("late_ns", 0) / 1e9 for op in ops if op["op"] == "commit"]
    assert late[3] >= 0.48, "the fourth batch was due 10 ms after the third"
    assert late[-1] < late[3], "those that follow make up for it"
    sends = {op["txn"]: op.get("late_ns") for op in ops if op["op"] == "send"}
    assert sends == {op["txn"]: op.get("late_ns") for op in ops if op["op"] == "commit"}


class Slow(FakeClient):
    """A client that opens its connection only when it is let."""

    def __init__(self, settings: WorkerConfig, name: str) -> None:
        super().__init__(settings, name)
        self.let = threading.Event()

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        assert self.let.wait(30)
        super().open(sends_to, receives_from, transacted=transacted)


def test_a_client_that_takes_its_time_to_connect_makes_no_message_late() -> None:
    settings = config(rate=200.0)
    stop, data = threading.Event(), list[bytes]()
    ledger = ClientLedger(data.append, LedgerClock(), HEADER, "producer-0")
    client = Slow(settings, "producer-0")
    schedule = SendSchedule(rate=200.0, share=1, batch=2, phase=0.0)
    producer = Producer(settings, ClientSpec("producer-0", ("q",)), client, ledger, stop, schedule)
    thread = threading.Thread(target=producer.run, daemon=True)
    thread.start()
    # Long beside what a thread's start may take on a busy machine.
    assert not stop.wait(3)
    assert producer.behind_s() == 0
    client.let.set()
    until_sent(producer, 2, thread, stop)
    ops = merged(rows_in(data))
    connected = next(op for op in ops if op["op"] == "connect")
    first = next(op for op in ops if op["op"] == "send")
    assert first.get("late_ns", 0) < connected["end_ns"] - connected["start_ns"]


def test_a_resend_is_as_late_as_its_message() -> None:
    """From when it was due the second attempt is later than the first."""
    client = FakeClient(config(rate=200.0, url_params={"commits": "lost"}), "producer-0")
    stop, data = threading.Event(), list[bytes]()
    ledger = ClientLedger(data.append, LedgerClock(), HEADER, "producer-0")
    settings = config(rate=200.0)
    # Due long ago, as it were.
    schedule = SendSchedule(rate=200.0, share=1, batch=2, phase=-100.0)
    producer = Producer(settings, ClientSpec("producer-0", ("q",)), client, ledger, stop, schedule)
    thread = threading.Thread(target=producer.run, daemon=True)
    thread.start()
    until_sent(producer, 2, thread, stop)
    ops = merged(rows_in(data))
    late = {op["attempt"]: op["late_ns"] for op in ops if op.get("message_id") == "producer-0-0"}
    assert late[1] > late[0] >= 1_000_000_000


def test_a_closed_loop_is_never_late() -> None:
    bench = produced("lost")
    assert bench.runner.behind_s() == 0  # type: ignore[union-attr]
    assert not any("late_ns" in row for row in bench.rows)


@pytest.mark.parametrize("size", [0, 3, 12, 5000])
def test_payloads(size: int) -> None:
    payloads = Payloads("seed", [size])
    body, digest = payloads.make("producer-0-1")
    assert len(body) == size and digest == hashlib.sha256(body).hexdigest()[:16]
    if size > 12:
        assert body != payloads.make("producer-0-2")[0]
    assert Payloads("seed", [size]).make("producer-0-1") == (body, digest), "the seed decides"


def test_sizes_are_all_drawn() -> None:
    payloads = Payloads("seed", [10, 20, 30])
    assert {len(payloads.make(f"m-{n}")[0]) for n in range(100)} == {10, 20, 30}
