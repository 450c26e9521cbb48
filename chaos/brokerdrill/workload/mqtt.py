"""MQTT 5 clients by paho: QoS 1, so that each message that is sent or that comes has an acknowledgement (PUBACK).

Facts about Artemis 2.56.0 that this rests on:
- the topic `a/b` is the address `a.b`, and the name `a.b` another one: a dot in a topic is none of an address's. Where
  the address is ANYCAST a message to the topic goes into its queue, and a subscription consumes from that queue, with
  all its other consumers. An acceptor's `anycastPrefix` has no part in this;
- a PUBACK means that the message is where it is kept. One to an address that is not there is answered as well;
- user properties are the message's: the header is one. An MQTT 3.1.1 message could not have it;
- what was not acknowledged goes back to the queue with its connection, and comes again without the DUP flag, for that
  speaks of one session, and each here is new;
- an acknowledgement has no answer. But the broker hands a connection no more than its receive maximum beyond what that
  has acknowledged, so that a later delivery proves the acknowledgements that its room came from;
- acknowledgements right before a DISCONNECT may be lost, and are not where an UNSUBSCRIBE is answered in between;
- there are no transactions, message groups or browsers: who looks subscribes and acknowledges nothing.

No connection router redirects MQTT clients: one that is led asks the router's management first, and then connects to
whom it names.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload import asking, header
from brokerdrill.workload.client import (
    DONE,
    FAIL,
    UNKNOWN,
    Aim,
    Browsing,
    ClientError,
    Delivery,
    Message,
    Outcome,
    Reconnect,
)
from brokerdrill.workload.config import BrokerEndpoint, Router, WorkerConfig

CONNECT_S = 3.0
CLOSE_S = 3.0
# Short, so that a peer that is gone without a word is noticed.
KEEPALIVE_S = 4
PREFETCH = 100
BROWSE_IDLE_S = 1.0
QOS = 1
ONE_WAY = "one-way"
# The answers to a PUBLISH that say for certain that the message is nowhere (MQTT 5, section 3.4.2.1): no matching
# subscribers, not authorized, topic name invalid, quota exceeded, payload format invalid.
REFUSED = (0x10, 0x87, 0x90, 0x97, 0x99)
# What means something else in a topic than in an address's name.
_SPECIAL = re.compile("[/+#$]")


def topic_of(address: str) -> str:
    """Return the topic that is the broker's `address`."""
    return address.replace(".", "/")


def address_of(topic: str) -> str:
    """Return the address that is the topic."""
    return topic.replace("/", ".")


def said(reason: ReasonCode) -> Outcome:
    """Return what the broker's answer to a PUBLISH proves."""
    if reason.value in REFUSED:
        return Outcome(FAIL, f"PUBACK: {reason}")
    return Outcome(UNKNOWN, f"PUBACK: {reason}") if reason.is_failure else DONE


class MqttConnection:
    """A connection to one endpoint. Raises ClientError when it is no good any more.

    The library reads and writes in a thread of its own, which ends with the connection; it never connects anew.
    """

    def __init__(self, config: WorkerConfig, endpoint: BrokerEndpoint, name: str, prefetch: int | None) -> None:
        self._owner = threading.get_ident()
        self._changed = threading.Condition()
        self._call_s = config.call_timeout_ms / 1000
        self._connected = False
        self._broken: str | None = None
        # By the packets' ids: what the broker answered.
        self._published: dict[int, ReasonCode] = {}
        self._answered: dict[int, list[ReasonCode]] = {}
        self._topics: list[str] = []
        self._messages: deque[paho.MQTTMessage] = deque()
        self._client = client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            protocol=paho.MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.username_pw_set(config.credentials.username, config.credentials.password)
        client.connect_timeout = CONNECT_S
        if config.tls_ca:
            client.tls_set_context(ssl.create_default_context(cafile=config.tls_ca))
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        client.on_subscribe = client.on_unsubscribe = self._on_answer
        client.on_message = self._on_message
        asked = Properties(PacketTypes.CONNECT)
        if prefetch is not None:
            asked.ReceiveMaximum = prefetch
        try:
            client.connect(endpoint.address, endpoint.port, KEEPALIVE_S, clean_start=True, properties=asked)
        except (OSError, ValueError) as error:
            raise ClientError(f"{type(error).__name__}: {error}") from None
        client.loop_start()
        try:
            self._wait(lambda: self._connected, "no answer to CONNECT")
        except ClientError:
            self.close()
            raise

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any) -> None:
        with self._changed:
            if reason.is_failure:
                self._broken = self._broken or f"CONNACK: {reason}"
            else:
                self._connected = True
            self._changed.notify_all()

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any) -> None:
        self.breaks(f"disconnected: {reason}")

    def _on_publish(self, _client: Any, _data: Any, mid: int, reason: ReasonCode, _properties: Any) -> None:
        with self._changed:
            self._published[mid] = reason
            self._changed.notify_all()

    def _on_answer(self, _client: Any, _data: Any, mid: int, reasons: list[ReasonCode], _properties: Any) -> None:
        with self._changed:
            self._answered[mid] = reasons
            self._changed.notify_all()

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()

    def breaks(self, why: str) -> None:
        """The connection is no good any more; the first reason counts. From any thread."""
        with self._changed:
            self._broken = self._broken or why
            self._changed.notify_all()

    @property
    def broken(self) -> str | None:
        """Why the connection is no good any more, None while it is."""
        return self._broken

    def _until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `done()` holds, at most `timeout_s`; return whether it holds. Raises ClientError."""
        end = time.monotonic() + timeout_s
        with self._changed:
            # What has come before the end of the connection counts.
            while not done():
                if self._broken:
                    raise ClientError(self._broken)
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True

    def _wait(self, done: Callable[[], bool], failure: str) -> None:
        if not self._until(done, self._call_s):
            raise ClientError(f"{failure} within {self._call_s:g} s")

    def publish(self, topic: str, body: bytes, properties: Properties) -> ReasonCode:
        """Publish and return the broker's answer. Raises ClientError: there is none, and it may be there or not."""
        info = self._client.publish(topic, body, qos=QOS, properties=properties)
        self._wait(lambda: info.mid in self._published, "no PUBACK")
        return self._published.pop(info.mid)

    def subscribe(self, topic: str) -> None:
        """Subscribe and wait for the broker's answer. Raises ClientError where it refuses."""
        _, mid = self._client.subscribe(topic, options=SubscribeOptions(qos=QOS))
        if mid is None:
            raise ClientError(self._broken or "not connected")
        self._wait(lambda: mid in self._answered, "no SUBACK")
        refused = [reason for reason in self._answered.pop(mid) if reason.is_failure]
        if refused:
            raise ClientError(f"SUBACK: {refused[0]}")
        self._topics.append(topic)

    def message(self, timeout_s: float) -> paho.MQTTMessage | None:
        """Return the next message, None after `timeout_s`. Raises ClientError."""
        # What was handed out by a connection that is gone is the broker's to hand out again.
        if self._broken:
            raise ClientError(self._broken)
        return self._messages.popleft() if self._until(lambda: bool(self._messages), timeout_s) else None

    def acknowledge(self, mid: int) -> None:
        """Send the acknowledgement of a message. Raises ClientError: it certainly was not sent."""
        if self._broken:
            raise ClientError(self._broken)
        self._client.ack(mid, QOS)

    def _unsubscribe(self) -> None:
        """End the subscriptions. The answer comes when the broker has taken all acknowledgements before it."""
        topics, self._topics = self._topics, []
        if topics and not self._broken:
            _, mid = self._client.unsubscribe(topics)
            try:
                if not self._until(lambda: mid in self._answered, CLOSE_S):
                    self.breaks(f"no UNSUBACK within {CLOSE_S:g} s")
            except ClientError:
                return

    def close(self) -> bool:
        """Close; return whether the broker was informed. From another thread a call that hangs is ended by it."""
        if threading.get_ident() != self._owner:
            self.breaks("closed")
        self._unsubscribe()
        agreed = self._connected and not self._broken
        with contextlib.suppress(OSError, ValueError):
            self._client.disconnect()
        with self._changed:
            gone = self._changed.wait_for(lambda: bool(self._broken), CLOSE_S if agreed else 0)
        self.breaks("closed")
        if not gone:
            # A peer that takes nothing: the library's thread ends with its socket.
            peer = self._client.socket()
            with contextlib.suppress(OSError):
                if isinstance(peer, socket.socket):
                    peer.shutdown(socket.SHUT_RDWR)
        # Else the two would keep each other, and the library its file descriptors, until the next garbage collection.
        client = self._client
        client.on_connect = client.on_disconnect = client.on_publish = client.on_message = None
        client.on_subscribe = client.on_unsubscribe = None
        return agreed and gone


class Mqtt:
    """One MQTT connection. See the client protocol for what each method promises."""

    protocol: ClassVar[str] = "mqtt"
    browsing: ClassVar[Browsing] = "takes"

    @classmethod
    def start_process(cls, config: WorkerConfig) -> None:
        """Refuse what the protocol has no word for."""
        if config.transaction > 0:
            raise InfrastructureError("clients of mqtt send without transactions: set load.transaction to 0")
        if config.keys > 0:
            raise InfrastructureError("clients of mqtt have no message groups: set load.keys to 0")
        if not config.durable:
            raise InfrastructureError("clients of mqtt send durable messages only: set load.durable to true")
        for address in config.addresses:
            if _SPECIAL.search(address):
                raise InfrastructureError(f"clients of mqtt cannot name {address}: it has one of / + # $")

    def __init__(self, config: WorkerConfig, name: str) -> None:
        self._config = config
        self._tag = header.tag_of(config.run_id)
        # A broker lets one connection have an id: the run's own, for others' clients may have these names.
        self._name = f"{self._tag}-{name}"
        self._aimed: Aim | None = None
        self._connection: MqttConnection | None = None
        self._endpoint: BrokerEndpoint | None = None
        self._opened = 0
        self._delivered = 0
        # Whose acknowledgements no delivery has proven yet, oldest first (None: of another run's message), and how many
        # are proven that the addresses' next deliveries are to report.
        self._acknowledged: deque[str | None] = deque()
        self._proven: Counter[str] = Counter()

    def aim(self, router: Router, key: str) -> None:
        self._aimed = Aim(router, key)

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        problems = []
        for endpoint in asking.whom_to_dial(self._config, self._aimed):
            try:
                # Who receives nothing may look, and is to see all that there is.
                connection = self._connection = MqttConnection(
                    self._config, endpoint, self._name, PREFETCH if receives_from else None
                )
                for address in receives_from:
                    connection.subscribe(topic_of(address))
                break
            except ClientError as error:
                problems.append(f"{endpoint.instance}: {error}")
                self.close()
        else:
            raise ClientError("; ".join(problems))
        self._endpoint = endpoint
        self._opened += 1
        self._delivered = 0
        self._acknowledged.clear()
        self._proven.clear()

    def _open_connection(self) -> MqttConnection:
        connection = self._connection
        if connection is None:
            raise ClientError("the connection is closed")
        if connection.broken:
            raise ClientError(connection.broken)
        return connection

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = (header.PROPERTY, header.write(self._tag, message, attempt))
        try:
            connection = self._open_connection()
        except ClientError as error:
            return Outcome(FAIL, str(error), usable=False)
        try:
            return said(connection.publish(topic_of(address), message.payload, properties))
        except ClientError as error:
            return Outcome(UNKNOWN, str(error), usable=False)

    def commit(self, *, resent: bool) -> Outcome:
        return DONE

    def rollback(self) -> Outcome:
        return DONE

    def receive(self, timeout_s: float) -> Delivery | None:
        message = self._open_connection().message(timeout_s)
        if message is None:
            return None
        self._delivered += 1
        if self._delivered > PREFETCH and self._acknowledged and (proven := self._acknowledged.popleft()):
            self._proven[proven] += 1
        found = self._delivery(message)
        return found._replace(proves=self._proven.pop(found.address, 0))

    def _delivery(self, message: paho.MQTTMessage) -> Delivery:
        own = dict(getattr(message.properties, "UserProperty", ()))
        return header.delivery(
            self._tag,
            address_of(message.topic),
            own.get(header.PROPERTY),
            f"{self._opened}-{message.mid}",
            redelivered=message.dup,
            body=bytes(message.payload),
            handle=message.mid,
        )

    def ack(self, delivery: Delivery) -> Outcome:
        try:
            self._open_connection().acknowledge(delivery.handle)
        except ClientError as error:
            return Outcome(FAIL, str(error), usable=False)
        self._acknowledged.append(None if delivery.left_by else delivery.address)
        return Outcome(UNKNOWN, ONE_WAY)

    def browse(self, address: str, *, own: bool = False) -> Iterable[Delivery]:
        """Take what is there without an acknowledgement: with the end of the connection all of it is back."""
        return list(self._browsed(address))

    def _browsed(self, address: str) -> Iterator[Delivery]:
        connection = self._open_connection()
        connection.subscribe(topic_of(address))
        while message := connection.message(BROWSE_IDLE_S):
            yield self._delivery(message)

    def connection_id(self) -> int:
        return self._opened

    def reconnect(self) -> Reconnect | None:
        return None

    def served_by(self) -> BrokerEndpoint | None:
        return self._endpoint

    def close(self) -> Outcome:
        connection, self._connection = self._connection, None
        if connection is None:
            return DONE
        why = connection.broken
        return DONE if connection.close() else Outcome(UNKNOWN, why or "closed without an answer")
