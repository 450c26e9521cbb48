"""Producers and consumers: plain loops over the client protocol that write the ledger as its rules for writers say.

Each runs in a thread of its own with its own connection and session. A producer sends its next batch only when the one
before it is proven: after a rollback or an unknown outcome it sends the identical batch again, same ids, next attempt.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.client import (
    DONE,
    DUPLICATE,
    FAIL,
    OK,
    UNKNOWN,
    Aim,
    Batching,
    Client,
    ClientError,
    Delivery,
    Idling,
    Message,
    Outcome,
    Routed,
    Subscribing,
    known_as,
)
from brokerdrill.workload.config import ClientSpec, Endpoint, WorkerConfig
from brokerdrill.workload.header import sha
from brokerdrill.workload.ledger_writer import ClientLedger, Op

POLL_S = 0.2
RETRY_S = 0.1
PARTIAL_COMMIT_S = 0.2
_UNIQUE = 64 * 1024


@dataclass
class Counts:
    """One client's progress. In messages: `sent_ok` acknowledged, `received` processed; `sent_unknown` and `sent_fail`
    count every attempt with that outcome, `received_unknown` what was received and whose commit or acknowledgement got
    no answer: it was processed, or comes again. `last_ack_ns` is on the worker's ledger clock. `left_by`: the messages
    that earlier runs had left behind, by the tag of their run. `reached`: the instance that its newest connection is
    to."""

    sent_ok: int = 0
    sent_unknown: int = 0
    sent_fail: int = 0
    received: int = 0
    received_unknown: int = 0
    last_ack_ns: int | None = None
    left_by: dict[str, int] = field(default_factory=dict)
    reached: str | None = None


class Schedule:
    """When the batches of one of `share` producers are due, so that all of them keep `rate` messages a second.

    An open loop: due times depend on nothing but the start. `phase` (0 to 1) spreads the producers over an interval.
    """

    def __init__(self, rate: float, share: int, batch: int, phase: float) -> None:
        self._interval_s = batch * share / rate
        self._phase = phase

    def due_s(self, number: int) -> float:
        """Seconds from the start at which batch `number` (from 0) is due."""
        return (number + self._phase) * self._interval_s


class Payloads:
    """Bodies of random sizes that differ from each other: the message's id, then a piece of one random block."""

    def __init__(self, seed: str, sizes: Sequence[int]) -> None:
        self._random = random.Random(seed)
        self._sizes = sizes
        self._block = self._random.randbytes(max(sizes) + _UNIQUE)

    def make(self, message_id: str) -> tuple[bytes, str]:
        """Return (body, the first 16 hexadecimal digits of its SHA-256)."""
        sizes = self._sizes
        size = sizes[0] if len(sizes) == 1 else self._random.choice(sizes)
        start = self._random.randrange(_UNIQUE)
        name = message_id.encode()
        body = (name + self._block[start : start + size - len(name)]) if size > len(name) else name[:size]
        return body, sha(body)


class Stopped(Exception):
    """The client was told to stop before it could do what it was at."""


class Runner:
    """What producers, consumers and browsers share: the connection with its session number, and its rows."""

    def __init__(
        self, config: WorkerConfig, spec: ClientSpec, client: Client, ledger: ClientLedger, stop: threading.Event
    ) -> None:
        self.name = spec.name
        self.counts = Counts()
        # Set when it has its first connection, with what it sends to and receives from.
        self.connected = threading.Event()
        self._config = config
        self._addresses = spec.addresses
        self._client = client
        self._ledger = ledger
        self._stop = stop
        self._session = -1
        self._connection: int | None = None
        self._endpoint: Endpoint | None = None
        # When the library last had a new connection, on the ledger's clock.
        self._back_ns = 0
        self._abandon = threading.Event()

    def abandon(self) -> None:
        """Make the client end as soon as it can, what it is at unproven; from another thread."""
        self._abandon.set()
        self._stop.set()

    def sever(self) -> None:
        """Close the connection from another thread, so that a call that hangs ends."""
        self._client.close()

    def _over(self) -> bool:
        """Whether it is time to give up connecting."""
        return self._stop.is_set()

    def _pause(self) -> None:
        """Wait before another try. Raises Stopped."""
        self._ledger.flush()
        (self._abandon if self._stop.is_set() else self._stop).wait(RETRY_S)
        if self._over():
            raise Stopped

    def _connect(self, sends_to: Sequence[str], receives_from: Sequence[str]) -> None:
        """Open the connection, however often it takes. Raises Stopped."""
        if self._connection is not None:
            return
        self._session += 1
        while True:
            self._aim()
            begun = self._ledger.begin("connect", self._session)
            subscribing = self._subscribe()
            try:
                self._client.open(sends_to, receives_from, transacted=self._config.transaction > 0)
            except ClientError as error:
                outcome = Outcome(FAIL, str(error))
            else:
                outcome = self._reach()
                if outcome.result == OK:
                    self._connection = self._client.connection_id()
                    self._ledger.end(begun, outcome, self._endpoint, **self._led())
                    for one in subscribing:
                        self._ledger.end(one, outcome, self._endpoint)
                    self.connected.set()
                    return
                self._client.close()
            self._ledger.end(begun, outcome)
            for one in subscribing:
                # The connection may have failed after it.
                self._ledger.end(one, outcome._replace(result=UNKNOWN))
            self._pause()

    def _reach(self) -> Outcome:
        """Find who serves the connection now; the outcome says why nobody does."""
        outcome = DONE
        try:
            self._endpoint = self._client.served_by()
        except ClientError as error:
            self._endpoint = None
            outcome = Outcome(FAIL, str(error))
        self.counts.reached = self._endpoint.instance if self._endpoint else None
        return outcome

    def _subscribe(self) -> list[Op]:
        """Begin the subscriptions that opening the connection makes."""
        return []

    def _aim(self) -> None:
        """Choose whom the next attempt to connect asks; who is led by nobody has nothing to choose."""

    def _led(self) -> Mapping[str, Any]:
        """Return the columns of a connect that say by which key and whom the client was led."""
        return {}

    def _moved(self) -> bool:
        """Whether the client library has replaced the connection by itself; the new session is then recorded."""
        now = self._client.connection_id()
        if now == self._connection:
            return False
        self._connection = now
        self._session += 1
        outcome = self._reach()
        times = self._client.reconnect()
        clock = self._ledger.clock
        begun = self._ledger.begin("connect", self._session, start_ns=clock.at(times.lost_ns) if times else None)
        back_ns = clock.at(times.back_ns) if times else None
        self._back_ns = self._ledger.end(begun, outcome, self._endpoint, end_ns=back_ns, **self._led())
        return True

    def _disconnect(self) -> None:
        """Close the connection, if there is one, with its row."""
        if self._connection is None:
            return
        self._connection = None
        begun = self._ledger.begin("close", self._session)
        self._ledger.end(begun, self._client.close())
        self._ledger.flush()

    def _ack(self, messages: int, at_ns: int) -> None:
        self.counts.sent_ok += messages
        self.counts.last_ack_ns = at_ns


class Producer(Runner):
    """Sends batches to its addresses in turn until told to stop, then proves the last one within a bound.

    Where the load does not resend, a batch in doubt stays so, and the next one follows. Where it keeps a rate, batches
    that one held up follow at once, and the ledger says how late each began.
    """

    def __init__(
        self,
        config: WorkerConfig,
        spec: ClientSpec,
        client: Client,
        ledger: ClientLedger,
        stop: threading.Event,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(config, spec, client, ledger, stop)
        self._schedule = schedule
        self._batching = client if isinstance(client, Batching) else None
        self._idling = client if isinstance(client, Idling) else None
        self._size = max(1, config.transaction)
        self._payloads = Payloads(f"{config.seed}/{spec.name}", config.payload_bytes)
        self._sent = 0
        self._seqs = dict.fromkeys(spec.addresses, 0)
        self._in_doubt = False
        self._give_up_s: float | None = None
        # Where a rate is kept, on the monotonic clock: when the batch under way was due, and the next one is.
        self._due_s: float | None = None
        self._next_due_s: float | None = None

    def behind_s(self) -> float:
        """For how long a batch is due that has not begun, in s; from any thread."""
        due = self._next_due_s
        return 0.0 if due is None else max(0.0, time.monotonic() - due)

    def _late_ns(self) -> int:
        """How long ago the batch under way was due."""
        return 0 if self._due_s is None else max(0, int((time.monotonic() - self._due_s) * 1e9))

    def run(self) -> None:
        """Send until stopped, then close. Raises LedgerError."""
        number = 0
        try:
            self._arrive()
            start_s = time.monotonic()
            while self._wait_due(start_s, number):
                address = self._addresses[number % len(self._addresses)]
                self._deliver(address, self._batch(address))
                number += 1
        except Stopped:
            pass
        finally:
            self._next_due_s = None
            self._disconnect()

    def _arrive(self) -> None:
        """Connect before anything is due: a client's start is not a message's wait. Raises Stopped."""
        self._connect(self._addresses, ())

    def _wait_due(self, start_s: float, number: int) -> bool:
        """Wait until batch `number` is due, at once when it is late; False when told to stop."""
        if self._schedule:
            due_s = self._due_s = self._next_due_s = start_s + self._schedule.due_s(number)
            if due_s > time.monotonic():
                self._ledger.flush()
                self._wait_until(due_s)
            self._next_due_s = start_s + self._schedule.due_s(number + 1)
        return not self._stop.is_set()

    def _wait_until(self, due_s: float) -> None:
        """Wait until then on the monotonic clock, or told to stop, with what the connection wants done meanwhile."""
        if self._idling is not None:
            while time.monotonic() + POLL_S < due_s and not self._stop.wait(POLL_S):
                self._idling.idle()
        self._stop.wait(max(0.0, due_s - time.monotonic()))

    def _batch(self, address: str) -> list[Message]:
        seq = self._seqs[address]
        self._seqs[address] = seq + self._size
        keys = self._config.keys
        batch = []
        for place in range(seq, seq + self._size):
            message_id = f"{self.name}-{self._sent}"
            self._sent += 1
            body, digest = self._payloads.make(message_id)
            batch.append(Message(message_id, place, f"{self.name}-k{place % keys}" if keys else None, body, digest))
        return batch

    def _over(self) -> bool:
        """Told to stop and nothing in doubt, or for so long that an unproven batch is left unproven."""
        if not self._stop.is_set():
            return False
        if not self._in_doubt:
            return True
        if self._give_up_s is None:
            self._give_up_s = time.monotonic() + self._config.retry_after_stop_s
        return self._abandon.is_set() or time.monotonic() > self._give_up_s

    def _deliver(self, address: str, batch: list[Message]) -> None:
        """Send the identical batch until it is proven. Raises Stopped."""
        attempt = 0
        self._in_doubt = False
        while True:
            self._connect(self._addresses, ())
            outcome = self._attempt(address, batch, attempt)
            if not outcome.usable:
                self._disconnect()
            if outcome.result == OK:
                self._ack(len(batch), self._ledger.clock.now())
                return
            if outcome.result == UNKNOWN:
                self.counts.sent_unknown += len(batch)
                if not self._config.resend:
                    return
                self._in_doubt = True
            else:
                self.counts.sent_fail += len(batch)
            if self._over():
                raise Stopped
            # The first retry at once: it is what ends most failovers.
            if attempt > 0:
                self._pause()
            attempt += 1

    def _attempt(self, address: str, batch: list[Message], attempt: int) -> Outcome:
        """Send the batch once, in a transaction where there is one."""
        self._moved()
        ledger = self._ledger
        session = self._session
        transacted = self._config.transaction > 0
        txn = ledger.name("t") if transacted else None
        late_ns = self._late_ns()
        first = ledger.begin_sends(session, address, batch, attempt, txn, self._config.durable, late_ns)
        times = [ledger.clock.now()]
        outcome = self._send(address, batch, attempt, times)
        if outcome.result != OK:
            self._end_broken(session, first, len(batch), times, outcome)
            return self._roll_back(txn, outcome) if txn else outcome
        if not txn:
            self._moved()
            ledger.end_sends(session, first, times, outcome, self._endpoint)
            return outcome
        handed = self._handed_to(times)
        begun = ledger.begin_commit(session, txn, late_ns)
        outcome = self._client.commit(resent=attempt > 0)
        # A success across a failover was the new instance's: the library rolls back whatever the old one had begun, or
        # has told the new one all of it.
        if outcome.result == OK and self._client.connection_id() != self._connection:
            self._reach()
        sent = Outcome(OK, DUPLICATE) if outcome.error == DUPLICATE else DONE
        for endpoint, start, end in handed:
            ledger.end_sends(session, first + start, times[start : end + 1], sent, endpoint)
        ledger.end(begun, outcome, self._endpoint)
        return outcome

    def _send(self, address: str, batch: Sequence[Message], attempt: int, times: list[int]) -> Outcome:
        """Send up to the first message that is not ok; note when each call returned, and return the last outcome."""
        clock = self._ledger.clock
        if self._batching is not None:
            outcome, ends = self._batching.send_batch(address, batch, attempt)
            times += map(clock.at, ends)
            return outcome
        outcome = DONE
        for message in batch:
            outcome = self._client.send(address, message, attempt)
            times.append(clock.now())
            if outcome.result != OK:
                break
        return outcome

    def _handed_to(self, times: list[int]) -> list[tuple[Endpoint | None, int, int]]:
        """Return who took which of a transaction's sends, from one place in the batch up to before another: whoever
        takes the commit, a send that had returned before a failover was not made to the new instance."""
        before, size = self._endpoint, len(times) - 1
        if not self._moved():
            return [(before, 0, size)]
        split = sum(end <= self._back_ns for end in times[1:])
        return [(before, 0, split), (self._endpoint, split, size)]

    def _end_broken(self, session: int, first: int, size: int, times: list[int], outcome: Outcome) -> None:
        """Complete the sends of a batch whose last call made was refused or broke."""
        done = len(times) - 2
        self._ledger.end_sends(session, first, times[:-1], DONE, self._endpoint)
        self._ledger.end_sends(session, first + done, times[-2:], outcome, self._endpoint)
        never = [times[-1]] * (size - done)
        self._ledger.end_sends(session, first + done + 1, never, Outcome(FAIL, "not sent"), None)

    def _roll_back(self, txn: str, cause: Outcome) -> Outcome:
        """Roll back a transaction whose sends broke. Without a commit it certainly takes no effect: fail."""
        begun = self._ledger.begin("rollback", self._session, txn=txn)
        outcome = self._client.rollback()
        self._ledger.end(begun, outcome, self._endpoint)
        return Outcome(FAIL, cause.error, cause.usable and outcome.usable and outcome.result == OK)


class Visitor(Producer):
    """A producer that is led: it asks the routers in turn, anew for each batch, as the next of its routing keys; where
    it keeps its connection, only when that broke, with one key."""

    def __init__(
        self,
        config: WorkerConfig,
        spec: ClientSpec,
        client: Client,
        ledger: ClientLedger,
        stop: threading.Event,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(config, spec, client, ledger, stop, schedule)
        if not isinstance(client, Routed):
            raise InfrastructureError(f"clients of {client.protocol} follow no connection router")
        self._routed: Routed = client
        self._routers = itertools.cycle(config.routers)
        self._keys = itertools.cycle(spec.keys)
        self._key = ""
        self._aimed: Aim | None = None

    def _arrive(self) -> None:
        """Each batch has a connection of its own, for which it waits."""

    def _deliver(self, address: str, batch: list[Message]) -> None:
        self._key = next(self._keys)
        try:
            super()._deliver(address, batch)
        finally:
            if not self._config.keeps_connection:
                self._disconnect()

    def _aim(self) -> None:
        self._aimed = Aim(next(self._routers), self._key)
        self._routed.aim(*self._aimed)

    def _led(self) -> Mapping[str, Any]:
        assert self._aimed is not None
        return {"key": known_as(self._config, self._aimed), "via": self._aimed.router.instance}


class Consumer(Runner):
    """Receives and commits, or acknowledges one by one, until told to stop.

    An acknowledgement without an answer stays open until a later delivery proves it, or its connection ends. With
    subscriptions it has a durable one, by its own name, on each of its addresses until it has been told to stop.
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
        """Wait for a message at most `idle_s` (None: until told to stop). Raises ClientError.

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
                    return delivery, self._ledger.end_receive(begun, delivery, self._endpoint)
                if self._stop.is_set() or (limit_s is not None and time.monotonic() >= limit_s):
                    self._ledger.end(begun, Outcome(FAIL, "no message"))
                    return None, ""
        except ClientError as error:
            # In a transaction a message is taken by the commit only; without one a lost reply may have taken it.
            self._ledger.end(begun, Outcome(FAIL if txn else UNKNOWN, str(error)))
            raise
