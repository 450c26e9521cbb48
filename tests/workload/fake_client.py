"""A client without a broker: one queue in the process, and failures on order (`url_params`).

`commits` lists what the commits of each producer do, in order: `ok`, `lost` (it takes effect and the reply is lost:
unknown), `gone` (unknown, without effect), `refused` (proven rollback), `hang` (it returns only when the connection is
closed), `fatal` (a bug); after the last: ok. `moves` is how many connections a `lost` or `gone` costs: 1 moves to the
second endpoint.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import ClassVar

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.client import (
    DONE,
    FAIL,
    REFUSED_AS_DUPLICATE,
    UNKNOWN,
    Browsing,
    ClientError,
    Delivery,
    Message,
    Outcome,
    Reconnect,
)
from brokerdrill.workload.config import BrokerEndpoint, WorkerConfig
from brokerdrill.workload.header import sha


class FakeClient:
    """See the module."""

    protocol: ClassVar[str] = "core"
    browsing: ClassVar[Browsing] = "shows"
    queue: ClassVar[deque[tuple[Message, int]]] = deque()
    seen: ClassVar[set[str]] = set()
    lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def start_process(cls, config: WorkerConfig) -> None:
        cls.queue.clear()
        cls.seen.clear()
        if "no_process" in config.url_params:
            raise InfrastructureError("there can be no clients here")

    def __init__(self, config: WorkerConfig, name: str) -> None:
        self._config = config
        self._moves = int(config.url_params.get("moves", "0"))
        self._commits = (
            deque(config.url_params.get("commits", "").split(",")) if name.startswith("producer") else deque()
        )
        self._refuse_opens = int(config.url_params.get("refuse_opens", "0"))
        self._sent: list[tuple[Message, int]] = []
        self._taken: list[tuple[Message, int]] = []
        self._place = 0
        self._closed = threading.Event()

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        if self._refuse_opens:
            self._refuse_opens -= 1
            raise ClientError("NOT_CONNECTED: nobody there")
        self._address = next(iter((*sends_to, *receives_from)), "")
        self._transacted = transacted

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        self._sent.append((message, attempt))
        if self._transacted:
            return DONE
        return self._decide(resent=attempt > 0)

    def commit(self, *, resent: bool) -> Outcome:
        return self._decide(resent)

    def _decide(self, resent: bool) -> Outcome:
        order = self._commits.popleft() if self._commits else "ok"
        sent, self._sent, self._taken = self._sent, [], []
        if order == "hang":
            self._closed.wait()
        if order == "fatal":
            raise RuntimeError("a bug")
        if order == "refused":
            return Outcome(FAIL, "TRANSACTION_ROLLED_BACK: no")
        duplicate = any(message.message_id in self.seen for message, _ in sent)
        if order != "gone" and not (duplicate and self._config.duplicate_detection):
            with self.lock:
                self.queue.extend(sent)
                self.seen.update(message.message_id for message, _ in sent)
        if order in ("gone", "lost"):
            self._place += self._moves
            return Outcome(UNKNOWN, "TRANSACTION_OUTCOME_UNKNOWN: who knows", usable=self._moves > 0)
        if duplicate and self._config.duplicate_detection:
            return REFUSED_AS_DUPLICATE if resent else Outcome(FAIL, "DUPLICATE_ID_REJECTED: had it")
        return DONE

    def rollback(self) -> Outcome:
        self._sent = []
        with self.lock:
            self.queue.extendleft(reversed(self._taken))
        self._taken = []
        return DONE

    def receive(self, timeout_s: float) -> Delivery | None:
        with self.lock:
            if self.queue:
                message, attempt = self.queue.popleft()
                self._taken.append((message, attempt))
                body = sha(message.payload)
                return Delivery(self._address, message.message_id, attempt, message.seq, message.key, False, body, None)
        self._closed.wait(min(timeout_s, 0.02))
        return None

    def ack(self, delivery: Delivery) -> Outcome:
        return DONE

    def browse(self, address: str, *, own: bool = False) -> Iterable[Delivery]:
        return [Delivery(address, m.message_id, n, m.seq, m.key, False, sha(m.payload), None) for m, n in self.queue]

    def unsubscribe(self, address: str) -> Outcome:
        return DONE

    def connection_id(self) -> int:
        return self._place

    def reconnect(self) -> Reconnect | None:
        now = time.monotonic_ns()
        return Reconnect(now - 1000, now)

    def served_by(self) -> BrokerEndpoint | None:
        return self._config.endpoints[self._place % len(self._config.endpoints)]

    def close(self) -> Outcome:
        self._closed.set()
        return DONE
