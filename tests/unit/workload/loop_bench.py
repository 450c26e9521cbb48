"""A loop on a bench: its configuration, a client whose failures are ordered, and the rows that it wrote."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from brokerdrill.ledger import spool
from brokerdrill.ledger.spool import Header
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, ClientSpec, WorkerConfig
from brokerdrill.workload.consumer import Consumer
from brokerdrill.workload.ledger_writer import ClientLedger, LedgerClock
from brokerdrill.workload.producer import Producer
from tests.workload.fake_client import FakeClient
from tests.workload.worker_process import merged


def config(**changes: Any) -> WorkerConfig:
    values: dict[str, Any] = {
        "run_id": "r",
        "worker": "w0",
        "clock": "w0",
        "client": "fake",
        "endpoints": (BrokerEndpoint("10.0.0.1", 1, "a1", "h1"), BrokerEndpoint("10.0.0.2", 1, "a2", "h2")),
        "credentials": ClientAccount("u", "p"),
        "addresses": ("q",),
        "transaction": 2,
    }
    return WorkerConfig(**{**values, **changes})


HEADER = Header("r", "w0", "core", ["q"])


def rows_in(data: Sequence[bytes]) -> list[dict[str, Any]]:
    """The rows that were handed over."""
    return [*spool.rows(b"".join([HEADER.line(), *data]).decode().split("\n")[:-1])]


class Bench:
    """One producer or consumer over the fake, and its rows; `batches` successes stop it."""

    def __init__(
        self,
        kind: type[Producer] | type[Consumer],
        settings: WorkerConfig,
        messages: int,
        client: type[FakeClient] = FakeClient,
    ) -> None:
        self._data: list[bytes] = []
        self._stop = threading.Event()
        name = "producer-0" if kind is Producer else "consumer-0"
        ledger = ClientLedger(self._data.append, LedgerClock(), HEADER, name)
        self.client = client(settings, name)
        self.runner = kind(settings, ClientSpec(name, settings.addresses), self.client, ledger, self._stop)
        self._messages = messages

    def run(self) -> Bench:
        thread = threading.Thread(target=self.runner.run, daemon=True)
        thread.start()
        ended = threading.Event()
        counts = self.runner.counts
        while counts.sent_ok + counts.received + sum(counts.left_by.values()) < self._messages and thread.is_alive():
            ended.wait(0.005)
        self._stop.set()
        thread.join(10)
        assert not thread.is_alive()
        return self

    @property
    def rows(self) -> list[dict[str, Any]]:
        return rows_in(self._data)

    def ops(self, *kinds: str) -> list[dict[str, Any]]:
        return [op for op in merged(self.rows) if op["op"] in kinds]


def until_sent(producer: Producer, messages: int, thread: threading.Thread, stop: threading.Event) -> None:
    """Let a producer that runs in `thread` send so many messages, and stop it."""
    end = time.monotonic() + 30
    while producer.counts.sent_ok < messages:
        assert time.monotonic() < end and thread.is_alive()
        stop.wait(0.002)
    stop.set()
    thread.join(10)


def produced(commits: str, messages: int = 20, **changes: Any) -> Bench:
    return Bench(Producer, config(url_params={"commits": commits, "moves": "1"}, **changes), messages).run()


def first_batch(bench: Bench) -> list[tuple[int, str, str | None]]:
    """(attempt, its commit's outcome, its sends' error) of each attempt of the first batch."""
    commits = {op["txn"]: op["outcome"] for op in bench.ops("commit")}
    sends = [op for op in bench.ops("send") if op["message_id"] == "producer-0-0"]
    return [(op["attempt"], commits[op["txn"]], op.get("error")) for op in sends]
