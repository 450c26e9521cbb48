"""Consumers: each receives and commits, or acknowledges one by one, until stopped."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.client import DONE, FAIL, OK, UNKNOWN, Client, ClientError, Delivery, Outcome, Subscribing
from brokerdrill.workload.client_loop import POLL_S, ClientLoop, Stopped
from brokerdrill.workload.config import ClientSpec, WorkerConfig
from brokerdrill.workload.ledger_writer import ClientLedger, Op

PARTIAL_COMMIT_S = 0.2


class Consumer(ClientLoop):
    """Receives and commits, or acknowledges one by one, until stopped.

    An acknowledgement without an answer stays open until a later delivery proves it, or its connection ends. With
    subscriptions it has a durable one, by its own name, on each of its addresses until it has been stopped.
    """

    def __init__(
        self, config: WorkerConfig, spec: ClientSpec, client: Client, ledger: ClientLedger, stop: threading.Event
    ) -> None:
        super().__init__(config, spec, client, ledger, stop)
        self._unanswered: dict[str, deque[tuple[Op, Outcome]]] = {name: deque() for name in spec.addresses}
        self._subscription = spec.name if config.subscriptions else None
        self._subscriber: Subscribing | None = None
        if config.subscriptions:
            if not isinstance(client, Subscribing):
                raise InfrastructureError(f"clients of {client.protocol} have no durable subscriptions")
            self._subscriber = client

    def run(self) -> None:
        """Receive until stopped, then close. Raises LedgerError."""
        try:
            while not self._stop.is_set():
                self._connect((), self._addresses)
                try:
                    if self._config.transaction > 0:
                        self._transaction(self._config.transaction)
                    else:
                        self._single()
                except ClientError:
                    self._disconnect()
                    self._pause()
            self._unsubscribe()
        except Stopped:
            pass
        finally:
            self._disconnect()

    def _subscribe(self) -> list[Op]:
        if self._subscription is None:
            return []
        return [self._subscribing("subscribe", address, durable=True) for address in self._addresses]

    def _subscribing(self, op: str, address: str, **columns: Any) -> Op:
        return self._ledger.begin(op, self._session, address=address, subscription=self._subscription, **columns)

    def _unsubscribe(self) -> None:
        """End the subscriptions, where there is a connection to do so: what nobody reads would fill the broker."""
        if self._subscriber is None or self._connection is None or self._abandon.is_set():
            return
        for address in self._addresses:
            begun = self._subscribing("unsubscribe", address)
            self._ledger.end(begun, self._subscriber.unsubscribe(address), self._endpoint)

    def _transaction(self, size: int) -> None:
        """Receive up to `size` messages and commit; commit fewer when no more come. Raises ClientError."""
        self._moved()
        session = self._session
        txn = self._ledger.name("t")
        taken = own = 0
        while taken < size:
            delivery, _ = self._receive(txn, PARTIAL_COMMIT_S if taken else None)
            if delivery is None:
                break
            if taken == 0:
                session = self._session
            taken += 1
            own += not delivery.left_by
        if taken == 0:
            return
        if self._session != session:
            # The old connection's transaction is gone, and the messages come again: nothing here may be committed.
            begun = self._ledger.begin("rollback", self._session, txn=txn)
            outcome = self._client.rollback()
            self._ledger.end(begun, outcome, self._endpoint)
        else:
            begun = self._ledger.begin_commit(session, txn)
            outcome = self._client.commit(resent=False)
            self._ledger.end(begun, outcome, self._endpoint)
            if outcome.result == OK:
                self.counts.received += own
            elif outcome.result == UNKNOWN:
                self.counts.received_unknown += own
        if not outcome.usable:
            raise ClientError(outcome.error or "the connection cannot be used on")

    def _single(self) -> None:
        self._moved()
        delivery, name = self._receive(None, None)
        if delivery is None:
            return
        self._proven(delivery)
        if delivery.left_by:
            # Taken away, and no part of this run: it has no row that an acknowledgement could name.
            if not (outcome := self._client.ack(delivery)).usable:
                raise ClientError(outcome.error or "the connection cannot be used on")
            return
        begun = self._ledger.begin(
            "ack", self._session, address=delivery.address, delivery=name, subscription=self._subscription
        )
        outcome = self._client.ack(delivery)
        if outcome.result == UNKNOWN and outcome.usable:
            self._unanswered[delivery.address].append((begun, outcome))
            self.counts.received += 1
            return
        self._ledger.end(begun, outcome, self._endpoint)
        if outcome.result == OK:
            self.counts.received += 1
        elif outcome.result == UNKNOWN:
            self.counts.received_unknown += 1
        if not outcome.usable:
            raise ClientError(outcome.error or "the connection cannot be used on")

    def _proven(self, delivery: Delivery) -> None:
        """Complete the acknowledgements that the coming of `delivery` proves."""
        waiting = self._unanswered.get(delivery.address, deque())
        for _ in range(min(delivery.proves, len(waiting))):
            begun, _outcome = waiting.popleft()
            self._ledger.end(begun, DONE, self._endpoint)

    def _disconnect(self) -> None:
        """Close the connection; what it has not proven until now stays unknown."""
        for waiting in self._unanswered.values():
            # They counted as received when they were acknowledged; a connection that broke may have lost that.
            if not self._stop.is_set():
                self.counts.received -= len(waiting)
                self.counts.received_unknown += len(waiting)
            while waiting:
                begun, outcome = waiting.popleft()
                self._ledger.end(begun, outcome, self._endpoint)
        super()._disconnect()

    def _receive(self, txn: str | None, idle_s: float | None) -> tuple[Delivery | None, str]:
        """Wait for a message at most `idle_s` (None: until stopped). Raises ClientError.

        One operation however often it polls. One that finds its connection replaced ends as `fail`, and what it
        brought counts for the new session.
        """
        address = self._addresses[0] if len(self._addresses) == 1 else None
        of: dict[str, Any] = {"address": address, "subscription": self._subscription, "txn": txn}
        begun = self._ledger.begin("receive", self._session, **of)
        limit_s = None if idle_s is None else time.monotonic() + idle_s
        try:
            while True:
                delivery = self._client.receive(POLL_S)
                if self._moved():
                    self._ledger.end(begun, Outcome(FAIL, "the connection was replaced"))
                    begun = self._ledger.begin("receive", self._session, **of)
                if delivery is not None and delivery.left_by:
                    self.counts.left_by[delivery.left_by] = self.counts.left_by.get(delivery.left_by, 0) + 1
                    self._ledger.end(begun, Outcome(FAIL, f"left behind by run {delivery.left_by}"))
                    return delivery, ""
                if delivery is not None:
                    self._served(delivery.address)
                    return delivery, self._ledger.end_receive(begun, delivery, self._endpoint)
                if self._stop.is_set() or (limit_s is not None and time.monotonic() >= limit_s):
                    self._ledger.end(begun, Outcome(FAIL, "no message"))
                    return None, ""
        except ClientError as error:
            # In a transaction a message is taken by the commit only; without one a lost reply may have taken it.
            self._ledger.end(begun, Outcome(FAIL if txn else UNKNOWN, str(error)))
            raise
