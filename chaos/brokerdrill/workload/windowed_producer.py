"""Producers with several messages in flight: each sends on while the broker has not answered."""

from __future__ import annotations

import threading
import time
from operator import attrgetter
from typing import NamedTuple

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.client import FAIL, OK, UNKNOWN, Client, ClientError, Message, Outcome, Windowed
from brokerdrill.workload.client_loop import POLL_S, Stopped
from brokerdrill.workload.config import BrokerEndpoint, ClientSpec, WorkerConfig
from brokerdrill.workload.ledger_writer import ClientLedger, Op
from brokerdrill.workload.producer import Producer, SendSchedule


class _Due(NamedTuple):
    """A message to be sent: its place among all of its producer's, and when it was due (monotonic s)."""

    number: int
    address: str
    message: Message
    due_s: float | None
    attempt: int = 0
    in_doubt: bool = False


class _InFlight(NamedTuple):
    """A message that was handed over at `since_s` (monotonic) and is not answered yet."""

    due: _Due
    begun: Op
    since_s: float


class WindowedProducer(Producer):
    """Sends message after message until stopped, up to the load's `window` in flight, then waits for their answers
    within a bound.

    What is refused or in doubt is sent again, in its order and before anything new; what is in doubt only where the
    load resends. Whenever the connection is lost, or an answer is not there in a call's time, all in flight is in
    doubt.
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
        super().__init__(config, spec, client, ledger, stop, schedule)
        if not isinstance(client, Windowed):
            raise InfrastructureError(f"clients of {client.protocol} have one message in flight")
        self._windowed: Windowed = client
        self._call_s = config.call_timeout_ms / 1000
        # By message id, in the order in which they were handed over.
        self._in_flight: dict[str, _InFlight] = {}
        self._again: list[_Due] = []

    def run(self) -> None:
        """Send until stopped, then close. Raises LedgerError."""
        number = 0
        try:
            self._arrive()
            start_s = time.monotonic()
            while self._wait_due(start_s, number):
                address = self._addresses[number % len(self._addresses)]
                self._make_room()
                if self._stop.is_set():
                    break
                (message,) = self._batch(address)
                self._hand_over(_Due(number, address, message, self._due_s))
                number += 1
            while self._in_flight or self._again:
                self._take(POLL_S)
                if self._over():
                    break
        except Stopped:
            pass
        finally:
            self._next_due_s = None
            self._give_up("no answer before the client was closed")
            self._disconnect()

    def _wait_until(self, due_s: float) -> None:
        while (left := due_s - time.monotonic()) > 0 and not self._stop.is_set():
            self._take(min(left, POLL_S))

    def _make_room(self) -> None:
        """Wait until the next message may be sent, or stopped. Raises Stopped."""
        self._take(0.0)
        while self._again or len(self._in_flight) >= self._config.window:
            self._take(POLL_S)
            if self._stop.is_set():
                return

    def _over(self) -> bool:
        self._in_doubt = bool(self._in_flight) or any(one.in_doubt for one in self._again)
        return super()._over()

    def _take(self, limit_s: float) -> None:
        """Take in the answers that come within `limit_s`, and send again what is to be. Raises Stopped."""
        if limit_s > 0:
            self._ledger.flush()
        before = self._endpoint
        try:
            self._connect(self._addresses, ())
            found = self._windowed.answers(limit_s)
        except ClientError as error:
            self._lose(str(error))
        else:
            # The library may have replaced its connection; what was answered before that, the old one answered.
            moved = self._moved()
            for answer in found:
                at_ns = self._ledger.clock.at(answer.at_ns)
                self._answered(
                    answer.message_id, answer.outcome, at_ns, before if moved and at_ns <= self._back_ns else None
                )
            oldest = next(iter(self._in_flight.values()), None)
            if oldest is not None and time.monotonic() - oldest.since_s > self._call_s:
                self._lose(f"no answer within {self._call_s:g} s")
        self._send_again()

    def _answered(self, message_id: str, outcome: Outcome, at_ns: int | None, by: BrokerEndpoint | None = None) -> None:
        """Complete a send that was handed over; `by`: who answered, None: who serves now."""
        one = self._in_flight.pop(message_id, None)
        if one is not None:
            self._ledger.end(one.begun, outcome, by or self._endpoint, end_ns=at_ns)
            self._became(one.due, outcome)

    def _became(self, due: _Due, outcome: Outcome) -> None:
        """Count what became of an attempt, and have it sent again where that is due."""
        if outcome.result == OK:
            self.counts.sent_ok += 1
            self._served(due.address)
            return
        if outcome.result == UNKNOWN:
            self.counts.sent_unknown += 1
            if not self._config.resend:
                return
        else:
            self.counts.sent_fail += 1
        self._again.append(due._replace(attempt=due.attempt + 1, in_doubt=due.in_doubt or outcome.result == UNKNOWN))
        self._again.sort(key=attrgetter("number"))

    def _give_up(self, error: str) -> None:
        """Leave all in flight in doubt."""
        now = self._ledger.clock.now()
        for message_id in list(self._in_flight):
            self._answered(message_id, Outcome(UNKNOWN, error), now)

    def _lose(self, error: str) -> None:
        """The connection is no good any more."""
        self._give_up(error)
        self._disconnect()

    def _send_again(self) -> None:
        """Send again what is to be, as far as the window goes. Raises Stopped.

        Not before the library has given back all that the lost connection had: it does so one by one, in any order.
        """
        if any(one.begun.session != self._session for one in self._in_flight.values()):
            return
        # The first retry at once: it is what ends most failovers.
        if self._again and self._again[0].attempt > 1:
            self._pause()
        while self._again and len(self._in_flight) < self._config.window:
            if self._over():
                raise Stopped
            self._connect(self._addresses, ())
            if not self._hand_over(self._again.pop(0)):
                return

    def _hand_over(self, due: _Due) -> bool:
        """Send a message without waiting for its answer; return whether it was handed over. Raises Stopped."""
        self._connect(self._addresses, ())
        self._moved()
        ledger, session, message = self._ledger, self._session, due.message
        late_ns = 0 if due.due_s is None else max(0, int((time.monotonic() - due.due_s) * 1e9))
        first = ledger.begin_sends(session, due.address, [message], due.attempt, None, self._config.durable, late_ns)
        begun = Op(first, session, "send", ledger.clock.now())
        outcome = self._windowed.hand_over(due.address, message, due.attempt)
        if outcome.result == OK:
            self._in_flight[message.message_id] = _InFlight(due, begun, time.monotonic())
            return True
        ledger.end(begun, outcome, self._endpoint)
        self._became(due, outcome)
        if not outcome.usable:
            self._lose(outcome.error or FAIL)
        return False
