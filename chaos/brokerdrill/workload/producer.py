"""Producers: each sends its next batch only when the one before it is proven. After a rollback or an unknown outcome it
sends the identical batch again, same ids, next attempt."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Mapping, Sequence
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
    Idling,
    Message,
    Outcome,
    Routed,
    known_as,
)
from brokerdrill.workload.client_loop import POLL_S, ClientLoop, Stopped
from brokerdrill.workload.config import BrokerEndpoint, ClientSpec, WorkerConfig
from brokerdrill.workload.header import sha
from brokerdrill.workload.ledger_writer import ClientLedger

_UNIQUE = 64 * 1024


class SendSchedule:
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


class Producer(ClientLoop):
    """Sends batches to its addresses in turn until stopped, then proves the last one within a bound.

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
        schedule: SendSchedule | None = None,
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
        """Wait until batch `number` is due, at once when it is late; False when stopped."""
        if self._schedule:
            due_s = self._due_s = self._next_due_s = start_s + self._schedule.due_s(number)
            if due_s > time.monotonic():
                self._ledger.flush()
                self._wait_until(due_s)
            self._next_due_s = start_s + self._schedule.due_s(number + 1)
        return not self._stop.is_set()

    def _wait_until(self, due_s: float) -> None:
        """Wait until then on the monotonic clock, or stopped, with what the connection wants done meanwhile."""
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
        """Stopped and nothing in doubt, or for so long that an unproven batch is left unproven."""
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
                self.counts.sent_ok += len(batch)
                self._served(address)
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
        # has repeated all of it to the new one.
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

    def _handed_to(self, times: list[int]) -> list[tuple[BrokerEndpoint | None, int, int]]:
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


class RoutedProducer(Producer):
    """A producer that connects by way of routers: it asks them in turn, anew for each batch, as the next of its routing
    keys; where it keeps its connection, only when that broke, with one key."""

    def __init__(
        self,
        config: WorkerConfig,
        spec: ClientSpec,
        client: Client,
        ledger: ClientLedger,
        stop: threading.Event,
        schedule: SendSchedule | None = None,
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

    def _route_columns(self) -> Mapping[str, Any]:
        assert self._aimed is not None
        return {"key": known_as(self._config, self._aimed), "via": self._aimed.router.instance}
