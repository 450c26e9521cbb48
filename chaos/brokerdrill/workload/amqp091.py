"""AMQP 0-9-1 clients by pika: publisher confirms, consumers with manual acknowledgements and a prefetch.

Facts about RabbitMQ 3.10 that this rests on:
- Basic.Ack of a publish means that the message is where it is kept: on the disks of a majority for a quorum queue;
- a message that no queue takes comes back (`mandatory`) before its Ack: it certainly was not sent;
- Basic.Nack does not prove that nobody gets the message: a queue whose process died may have handed it out before;
- an acknowledgement has no answer. But a queue hands out no more than the prefetch beyond what it has settled, so that
  a later delivery of the same consumer proves the acknowledgements that its room came from;
- a consumer of a queue that is gone gets a Basic.Cancel, and gets nothing more;
- there is no failover in the protocol: the client tries the endpoints in turn.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import pika
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import AMQPError
from pika.spec import Basic, BasicProperties

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload import header
from brokerdrill.workload.client import (
    DONE,
    FAIL,
    OK,
    UNKNOWN,
    Answer,
    Browsing,
    ClientError,
    Delivery,
    Message,
    Outcome,
    Reconnect,
    endpoint_at,
)
from brokerdrill.workload.config import BrokerEndpoint, WorkerConfig
from brokerdrill.workload.confirms import Confirms

CONNECT_S = 5.0
CLOSE_S = 3.0
# Short, so that a peer that is gone without a word is noticed.
HEARTBEAT_S = 4
PREFETCH = 10
ONE_WAY = "one-way"
PERSISTENT, TRANSIENT = 2, 1


def place(name: str) -> int:
    """Return the number in a client's name (producer-3, and producer-3.1 in its place), 0 without one."""
    number = name.rpartition("-")[2].partition(".")[0]
    return int(number) if number.isdecimal() else 0


class PikaConnection:
    """A connection with one channel to one endpoint. Every call raises ClientError when it is no good any more."""

    def __init__(self, config: WorkerConfig, endpoint: BrokerEndpoint, name: str) -> None:
        self.owner = threading.get_ident()
        self._broken: str | None = None
        self._closed = False
        self._opened = False
        self._channel: Any = None
        self._loop = IOLoop()
        self._loop.activate_poller()
        self._call_s = config.call_timeout_ms / 1000
        context = ssl.create_default_context(cafile=config.tls_ca) if config.tls_ca else None
        parameters = pika.ConnectionParameters(
            host=endpoint.address,
            port=endpoint.port,
            credentials=pika.PlainCredentials(config.credentials.username, config.credentials.password),
            ssl_options=pika.SSLOptions(context, endpoint.address) if context else None,
            heartbeat=HEARTBEAT_S,
            connection_attempts=1,
            socket_timeout=CONNECT_S,
            stack_timeout=CONNECT_S,
            client_properties={"connection_name": name},
        )
        self._connection = SelectConnection(
            parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_lost,
            on_close_callback=self._on_lost,
            custom_ioloop=self._loop,
        )
        try:
            self.wait(lambda: self._opened, CONNECT_S, "no connection")
            self.channel = self._open_channel()
        except ClientError:
            self.close()
            raise

    def _on_open(self, _connection: Any) -> None:
        self._opened = True

    def _on_lost(self, _connection: Any, reason: BaseException) -> None:
        self._closed = True
        self.breaks(f"{type(reason).__name__}: {reason}")

    def breaks(self, why: str) -> None:
        """The connection is no good any more; the first reason counts."""
        self._broken = self._broken or why

    def _open_channel(self) -> Any:
        opened: list[Any] = []
        try:
            channel = self._connection.channel(on_open_callback=opened.append)
        except AMQPError as error:  # it was closed right after it had been opened
            raise ClientError(f"{type(error).__name__}: {error}") from None
        channel.add_on_close_callback(lambda _, reason: self.breaks(f"{type(reason).__name__}: {reason}"))
        channel.add_on_cancel_callback(lambda _: self.breaks("the broker cancelled the consumer"))
        self.wait(lambda: bool(opened), self._call_s, "no channel")
        return channel

    @property
    def broken(self) -> str | None:
        """Why the connection is no good any more, None while it is."""
        return self._broken

    def until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Let things happen until `done()` holds, at most `timeout_s`; return whether it holds. Raises ClientError."""
        end = time.monotonic() + timeout_s
        while not done():
            if self._broken:
                raise ClientError(self._broken)
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._turn(left)
        return True

    def _turn(self, limit_s: float) -> None:
        """Wait for the next thing to happen, at most `limit_s`."""
        timer = self._loop.call_later(limit_s, lambda: None)
        try:
            self._loop.poll()
            self._loop.process_timeouts()
        except (AMQPError, OSError) as error:
            self.breaks(f"{type(error).__name__}: {error}")
        except ValueError as error:
            # What pika says of a socket whose peer was gone again before it looked who that is.
            if "connected socket" not in str(error):
                raise
            self.breaks(f"{type(error).__name__}: {error}")
        finally:
            self._loop.remove_timeout(timer)

    def flush(self) -> None:
        """Write what was called, as far as the socket takes it now. Raises ClientError."""
        self._turn(0)
        if self._broken:
            raise ClientError(self._broken)

    def wait(self, done: Callable[[], bool], timeout_s: float | None, failure: str) -> None:
        """As `until`, at most one call's time where `timeout_s` is None; the time being up is a ClientError too."""
        if not self.until(done, self._call_s if timeout_s is None else timeout_s):
            raise ClientError(f"{failure} within {self._call_s if timeout_s is None else timeout_s:g} s")

    def call_answered(self, method: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        """Call a method of the channel and wait for its answer. Raises ClientError."""
        answers: list[Any] = []
        self.call(method, *arguments, callback=answers.append, **more)
        self.wait(lambda: bool(answers), None, f"no answer to {method.__name__}")

    def call(self, method: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        """Call a method of the channel that has no answer. Raises ClientError: nothing was sent."""
        if self._broken:
            raise ClientError(self._broken)
        try:
            method(*arguments, **more)
        except AMQPError as error:
            self.breaks(f"{type(error).__name__}: {error}")
            raise ClientError(self._broken or "") from None

    def close(self) -> bool:
        """Close; return whether the broker agreed. From another thread a call that hangs is ended by it."""
        if threading.get_ident() != self.owner:
            self._loop.add_callback_threadsafe(lambda: self.breaks("closed"))
            return False
        agreed = self._opened and not self._broken
        if agreed:
            end = time.monotonic() + CLOSE_S
            try:
                self._connection.close()
                while not self._closed and (left := end - time.monotonic()) > 0:
                    self._turn(left)
            except AMQPError:
                agreed = False
            agreed = agreed and self._closed
        self._loop.deactivate_poller()
        self._loop.close()
        return agreed


class Amqp091:
    """One AMQP 0-9-1 connection. See the client protocol for what each method promises."""

    protocol: ClassVar[str] = "amqp091"
    browsing: ClassVar[Browsing] = "takes"

    @classmethod
    def start_process(cls, config: WorkerConfig) -> None:
        """Refuse transactions: RabbitMQ's are not atomic, and the ledger has no word for them."""
        if config.transaction > 0:
            raise InfrastructureError("clients of amqp091 send without transactions: set load.transaction to 0")
        logging.getLogger("pika").setLevel(logging.CRITICAL)

    def __init__(self, config: WorkerConfig, name: str) -> None:
        self._config = config
        self._name = name
        self._tag = header.tag_of(config.run_id)
        # Clients begin with the endpoints in turn, so that all of these are used.
        first = place(name) % len(config.endpoints)
        self._endpoints = [*config.endpoints[first:], *config.endpoints[:first]]
        self._connection: PikaConnection | None = None
        self._endpoint: BrokerEndpoint | None = None
        self._opened = 0
        self._confirms = Confirms()
        self._deliveries: deque[Delivery] = deque()
        self._delivered: Counter[str] = Counter()

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        problems = []
        for endpoint in self._endpoints:
            try:
                connection = self._connection = PikaConnection(self._config, endpoint, self._name)
                self._begin(connection, bool(sends_to), receives_from)
                break
            except ClientError as error:
                problems.append(f"{endpoint.instance}: {error}")
                self.close()
        else:
            raise ClientError("; ".join(problems))
        self._endpoint = endpoint
        self._opened += 1

    def _begin(self, connection: PikaConnection, sends: bool, receives_from: Sequence[str]) -> None:
        confirms = self._confirms = Confirms()
        self._deliveries.clear()
        self._delivered.clear()
        if sends:
            connection.channel.add_on_return_callback(confirms.on_return)
        if sends and self._config.confirms:
            answered: list[Any] = []
            connection.call(connection.channel.confirm_delivery, confirms.on_confirm, callback=answered.append)
            connection.wait(lambda: bool(answered), None, "no answer to confirm_delivery")
        if receives_from:
            connection.call_answered(connection.channel.basic_qos, prefetch_count=PREFETCH)
        for address in receives_from:
            connection.call_answered(
                connection.channel.basic_consume, address, self._taker(address), consumer_tag=address
            )

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        if not self._config.confirms:
            return self._write(address, message, attempt)
        handed = self.hand_over(address, message, attempt)
        if handed.result != OK:
            return handed
        connection, confirms = self._connection, self._confirms
        assert connection is not None
        try:
            connection.wait(lambda: bool(confirms), None, "no confirm")
        except ClientError as error:
            return Outcome(UNKNOWN, str(error), usable=False)
        return confirms.take()[0].outcome

    def _write(self, address: str, message: Message, attempt: int) -> Outcome:
        """Publish, and write what the socket takes: nobody answers."""
        published = self._publish(address, message, attempt)
        if published.result == OK and self._connection is not None:
            try:
                self._connection.flush()
            except ClientError as error:
                return Outcome(UNKNOWN, str(error), usable=False)
        return published

    def _publish(self, address: str, message: Message, attempt: int) -> Outcome:
        connection = self._connection
        if connection is None:
            return Outcome(FAIL, "not connected", usable=False)
        properties = BasicProperties(
            delivery_mode=PERSISTENT if self._config.durable else TRANSIENT,
            message_id=message.message_id,
            headers={header.PROPERTY: header.write(self._tag, message, attempt)},
        )
        try:
            connection.call(connection.channel.basic_publish, "", address, message.payload, properties, mandatory=True)
        except ClientError as error:
            return Outcome(FAIL, str(error), usable=False)
        return DONE

    def hand_over(self, address: str, message: Message, attempt: int) -> Outcome:
        published = self._publish(address, message, attempt)
        if published.result == OK:
            self._confirms.published(message.message_id)
        return published

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        connection, confirms = self._connection, self._confirms
        if connection is None:
            raise ClientError("not connected")
        try:
            connection.flush()
            connection.until(lambda: bool(confirms), timeout_s)
        except ClientError:
            if not confirms:
                raise
        return confirms.take()

    def commit(self, *, resent: bool) -> Outcome:
        return DONE

    def rollback(self) -> Outcome:
        return DONE

    def _taker(self, address: str) -> Callable[..., None]:
        def take(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self._delivered[address] += 1
            proves = self._delivered[address] > PREFETCH
            self._deliveries.append(self._delivery(address, method, properties, body, proves=int(proves)))

        return take

    def _delivery(self, address: str, method: Any, properties: Any, body: bytes, *, proves: int = 0) -> Delivery:
        text = (properties.headers or {}).get(header.PROPERTY)
        found = header.delivery(
            self._tag,
            address,
            text,
            str(properties.message_id or method.delivery_tag),
            redelivered=bool(method.redelivered),
            body=body,
            handle=method.delivery_tag,
        )
        return found._replace(proves=proves)

    def receive(self, timeout_s: float) -> Delivery | None:
        connection = self._connection
        if connection is None:
            raise ClientError("the connection is closed")
        if connection.broken:
            raise ClientError(connection.broken)
        connection.until(lambda: bool(self._deliveries), timeout_s)
        return self._deliveries.popleft() if self._deliveries else None

    def ack(self, delivery: Delivery) -> Outcome:
        connection = self._connection
        try:
            if connection is None:
                raise ClientError("the connection is closed")
            connection.call(connection.channel.basic_ack, delivery.handle)
        except ClientError as error:
            return Outcome(FAIL, str(error), usable=False)
        return Outcome(UNKNOWN, ONE_WAY)

    def browse(self, address: str, *, own: bool = False) -> Iterable[Delivery]:
        """Get what is there without an acknowledgement: with the end of the connection all of it is back."""
        connection = self._connection
        if connection is None:
            raise ClientError("the connection is closed")
        found: list[Delivery] = []
        answers: list[bool] = []

        def got(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
            found.append(self._delivery(address, method, properties, body))
            answers.append(True)

        connection.channel.add_callback(lambda _: answers.append(False), [Basic.GetEmpty], one_shot=False)
        while True:
            answers.clear()
            connection.call(connection.channel.basic_get, address, got)
            connection.wait(lambda: bool(answers), None, "no answer to basic_get")
            if not answers[0]:
                return found

    def idle(self) -> None:
        if self._connection is not None and not self._connection.broken:
            with contextlib.suppress(ClientError):
                self._connection.flush()

    def connection_id(self) -> int:
        return self._opened

    def reconnect(self) -> Reconnect | None:
        return None

    def served_by(self) -> BrokerEndpoint | None:
        at = self._endpoint
        # No client learns who serves at a virtual address.
        return None if at is None else endpoint_at(f"{at.address}:{at.port}", self._config.endpoints)

    def close(self) -> Outcome:
        connection = self._connection
        if connection is None:
            return DONE
        why = connection.broken
        agreed = connection.close()
        if threading.get_ident() == connection.owner:
            self._connection = None
        return DONE if agreed else Outcome(UNKNOWN, why or "closed without an answer")
