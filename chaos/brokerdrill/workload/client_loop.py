"""What producers, consumers and browsers have in common.

Each is a plain loop over the client protocol that writes the ledger as its rules for writers say, in a thread of its
own with its own connection and session.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brokerdrill.workload.client import DONE, FAIL, OK, UNKNOWN, Client, ClientError, Outcome
from brokerdrill.workload.config import BrokerEndpoint, ClientSpec, WorkerConfig
from brokerdrill.workload.ledger_writer import ClientLedger, Op

POLL_S = 0.2
RETRY_S = 0.1


@dataclass
class ClientCounts:
    """One client's progress. In messages: `sent_ok` acknowledged, `received` processed; `sent_unknown` and `sent_fail`
    count every attempt with that outcome, `received_unknown` what was received and whose commit or acknowledgement got
    no answer: it was processed, or comes again. `served`: how often each address had a success, as `available` counts
    them: a batch acknowledged, a message delivered. `left_by`: the messages that earlier runs had left behind, by the
    tag of their run. `reached`: the instance that its newest connection is to."""

    sent_ok: int = 0
    sent_unknown: int = 0
    sent_fail: int = 0
    received: int = 0
    received_unknown: int = 0
    served: dict[str, int] = field(default_factory=dict)
    left_by: dict[str, int] = field(default_factory=dict)
    reached: str | None = None


class Stopped(Exception):
    """The client was stopped before it could finish what it was doing."""


class ClientLoop:
    """What producers, consumers and browsers share: the connection with its session number, and its rows."""

    def __init__(
        self, config: WorkerConfig, spec: ClientSpec, client: Client, ledger: ClientLedger, stop: threading.Event
    ) -> None:
        self.name = spec.name
        self.counts = ClientCounts()
        # Set when it has its first connection, with what it sends to and receives from.
        self.connected = threading.Event()
        self._config = config
        self._addresses = spec.addresses
        self._client = client
        self._ledger = ledger
        self._stop = stop
        self._session = -1
        self._connection: int | None = None
        self._endpoint: BrokerEndpoint | None = None
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
            begun = self._ledger.begin("connect", self._session, **self._route_columns())
            subscribing = self._subscribe()
            try:
                self._client.open(sends_to, receives_from, transacted=self._config.transaction > 0)
            except ClientError as error:
                outcome = Outcome(FAIL, str(error))
            else:
                outcome = self._reach()
                if outcome.result == OK:
                    self._connection = self._client.connection_id()
                    self._ledger.end(begun, outcome, self._endpoint)
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
        """Choose the router that the next attempt to connect asks; without routers there is nothing to choose."""

    def _route_columns(self) -> Mapping[str, Any]:
        """Return the columns of a connect that say with which key and by way of which router it was made."""
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
        lost_ns = clock.at(times.lost_ns) if times else None
        begun = self._ledger.begin("connect", self._session, start_ns=lost_ns, **self._route_columns())
        back_ns = clock.at(times.back_ns) if times else None
        self._back_ns = self._ledger.end(begun, outcome, self._endpoint, end_ns=back_ns)
        return True

    def _disconnect(self) -> None:
        """Close the connection, if there is one, with its row."""
        if self._connection is None:
            return
        self._connection = None
        begun = self._ledger.begin("close", self._session)
        self._ledger.end(begun, self._client.close())
        self._ledger.flush()

    def _served(self, address: str) -> None:
        """Count a success of `address`."""
        self.counts.served[address] = self.counts.served.get(address, 0) + 1
