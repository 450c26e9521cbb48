"""What the document on Artemis' high availability says to whoever writes a client, on a real broker that dies and comes
back: first connections, listeners, temporary queues, prepared transactions, sends without transactions.

The broker that is back has what its journal has, as a backup that takes over would; that both know the same is what
drills are for.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jpype
import pytest

from brokerdrill.workload.client import ClientError, Outcome
from brokerdrill.workload.config import BrokerEndpoint
from brokerdrill.workload.core_jms import CoreJms
from tests.free_ports import free_port
from tests.pausing import pause
from tests.workload.conftest import config_for
from tests.workload.core_calls import (
    WAITS_MS,
    asking,
    batch,
    drain,
    in_thread,
    send,
    through,
    until_blocked,
    wait_until,
)
from tests.workload.standalone_broker import QUEUES, USER, Broker, Relay

Q = QUEUES[0]
OpenClient = Callable[..., CoreJms]
RECONNECTS = "ha=true&reconnectAttempts=-1&retryInterval=100&retryIntervalMultiplier=1.0"
XA_RETRY = 4


def made(kind: str, url: str) -> Any:
    """A connection factory of the product, with nothing set but what the URL says."""
    return jpype.JClass(f"org.apache.activemq.artemis.jms.client.{kind}")(url)


@pytest.fixture
def connect(broker: Broker, relay: Relay) -> Iterator[Callable[..., Any]]:
    """Open connections of the product's own factory; all are closed in the end."""
    opened = []

    def connection(params: str, kind: str = "ActiveMQConnectionFactory", method: str = "createConnection") -> Any:
        factory = made(kind, f"{relay.url}?{params}")
        one = getattr(factory, method)(USER, broker.password)
        opened.append(one)
        return one

    yield connection
    for one in opened:
        with contextlib.suppress(jpype.JException):
            one.close()


def kind_of(error: Any) -> str:
    """The ActiveMQExceptionType of a throwable or of one of its causes."""
    wanted = jpype.JClass("org.apache.activemq.artemis.api.core.ActiveMQException")
    while error is not None and not isinstance(error, wanted):
        error = error.getCause()
    return str(error.getType().name()) if error is not None else ""


# --- the first connection -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "tries"),
    [("", 1), ("reconnectAttempts=-1&", 1), ("initialConnectAttempts=1&", 1), ("initialConnectAttempts=4&", 4)],
)
def test_initial_connect_attempts_is_how_often_it_dials(broker: Broker, said: str, tries: int) -> None:
    """Nobody is there. Between two attempts it waits, so long that who tries once is told from who tries twice on a
    busy machine, too. How often it reconnects is not asked here."""
    waits = 0.5 if tries > 1 else 20
    params = f"{said}retryInterval={int(waits * 1000)}"
    factory = made("ActiveMQConnectionFactory", f"tcp://127.0.0.1:{free_port()}?{params}")
    begun = time.monotonic()
    with pytest.raises(jpype.JClass("javax.jms.JMSException")) as failed:
        factory.createConnection(USER, broker.password)
    took = time.monotonic() - begun
    assert kind_of(failed.value) == "NOT_CONNECTED"
    assert took >= waits * (tries - 1) and (took < waits or tries > 1)


def test_a_client_that_is_given_one_address_dials_no_other(broker: Broker, client: OpenClient) -> None:
    there = (BrokerEndpoint("127.0.0.1", free_port(), "a0", "h0"), *config_for(broker).endpoints)
    assert client(config_for(broker, endpoints=there), [Q]).served_by() == there[1]
    with pytest.raises(ClientError, match="NOT_CONNECTED"):
        client(config_for(broker, endpoints=there, dials=1), [Q])


# --- who is told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("params", "code"), [(RECONNECTS, "FAILOVER"), ("reconnectAttempts=0", "DISCONNECT")])
def test_an_exception_listener_is_told_whether_it_failed_over(
    broker: Broker, relay: Relay, connect: Callable[..., Any], params: str, code: str
) -> None:
    connection, told = connect(params), []
    listener = jpype.JProxy("javax.jms.ExceptionListener", dict={"onException": lambda error: told.append(error)})
    connection.setExceptionListener(listener)
    connection.start()
    relay.restart(broker)
    wait_until(lambda: bool(told))
    assert [str(error.getErrorCode()) for error in told] == [code]


@pytest.mark.parametrize(("params", "over"), [(RECONNECTS, True), ("reconnectAttempts=0", False)])
def test_a_session_failure_listener_is_told_whether_it_failed_over(
    broker: Broker, relay: Relay, connect: Callable[..., Any], params: str, over: bool
) -> None:
    connection, told = connect(params), []
    core = connection.createSession(False, 1).getCoreSession()
    kind = "org.apache.activemq.artemis.api.core.client.SessionFailureListener"

    def failed(_: Any, failed_over: Any, *__: Any) -> None:
        told.append(bool(failed_over))

    core.addFailureListener(jpype.JProxy(kind, dict={"connectionFailed": failed, "beforeReconnect": lambda _: None}))
    relay.restart(broker)
    wait_until(lambda: bool(told))
    assert told == [over]


def test_a_blocked_call_of_the_core_api_is_unblocked(broker: Broker, relay: Relay, connect: Callable[..., Any]) -> None:
    connection = connect(f"{RECONNECTS}&callTimeout={WAITS_MS}")
    core = connection.createSession(False, 1).getCoreSession()
    producer = core.createProducer(Q)
    producer.send(core.createMessage(True))  # a producer's first send waits for credit
    pause(broker.pid)
    failed: list[Any] = []

    def ask() -> None:
        try:
            producer.send(core.createMessage(True))
        except jpype.JException as error:
            failed.append(error)

    thread = asking(ask)
    thread.start()
    until_blocked()
    relay.restart(broker)
    thread.join(60)
    assert [kind_of(error) for error in failed] == ["UNBLOCKED"], CoreJms.stacks()


# --- what is made anew ----------------------------------------------------------------------------------------------


def test_a_temporary_queue_is_made_anew_with_its_consumer(
    broker: Broker, relay: Relay, connect: Callable[..., Any]
) -> None:
    connection = connect(RECONNECTS)
    session = connection.createSession(False, 1)
    queue = session.createTemporaryQueue()
    consumer = session.createConsumer(queue)
    connection.start()
    relay.restart(broker)
    # The same session and consumer; somebody else sends there, until one arrives: what is sent before the first client
    # has made its queue anew may find an address without a queue.
    other = connect(RECONNECTS).createSession(False, 1)

    def arrives() -> bool:
        try:
            other.createProducer(queue).send(other.createTextMessage("hello"))
        except jpype.JException:
            return False
        got = consumer.receive(500)
        return got is not None and str(got.getText()) == "hello"

    wait_until(arrives)


# --- prepared transactions ------------------------------------------------------------------------------------------


class Branch:
    """A branch of a distributed transaction in which a persistent and a non-persistent message are sent, and one that
    waited is taken; prepared."""

    def __init__(self, connection: Any, session: Any) -> None:
        xid = jpype.JClass("org.apache.activemq.artemis.core.transaction.impl.XidImpl")
        self.xid = xid(secrets.token_bytes(8), 1, secrets.token_bytes(8))
        self.resource = session.getXAResource()
        connection.start()
        queue = session.createQueue(Q)
        self.resource.start(self.xid, 0)
        taken = session.createConsumer(queue).receive(5_000)
        assert taken is not None
        producer = session.createProducer(session.createQueue(QUEUES[1]))
        for mode, name in ((2, "persistent"), (1, "not")):
            producer.setDeliveryMode(mode)
            producer.send(session.createTextMessage(name))
        self.resource.end(self.xid, 0x4000000)
        assert self.resource.prepare(self.xid) == 0

    def commit(self) -> int:
        """Commit in the second phase; return the code that it ends with, 0: it is done."""
        try:
            self.resource.commit(self.xid, False)
        except jpype.JClass("javax.transaction.xa.XAException") as error:
            return int(error.errorCode)
        return 0


def texts(connection: Any, address: str) -> list[str]:
    """What waits on a queue, taken from it."""
    session = connection.createSession(False, 1)
    consumer = session.createConsumer(session.createQueue(address))
    connection.start()
    found = []
    while (one := consumer.receive(1_000)) is not None:
        found.append(str(one.getText()))
    return found


def test_a_prepared_transaction_is_committed_where_the_broker_is_back(
    broker: Broker, relay: Relay, connect: Callable[..., Any]
) -> None:
    plain = connect(RECONNECTS)
    sending = plain.createSession(False, 1)
    sending.createProducer(sending.createQueue(Q)).send(sending.createTextMessage("waits"))
    connection = connect(RECONNECTS, "ActiveMQXAConnectionFactory", "createXAConnection")
    branch = Branch(connection, connection.createXASession())
    relay.restart(broker)
    # The document has XA_RETRY here, too; it was seen where the failover meets the commit itself (below).
    codes = [branch.commit()]
    end = time.monotonic() + 30
    while codes[-1] == XA_RETRY and time.monotonic() < end:
        time.sleep(0.1)
        codes.append(branch.commit())
    assert codes[-1] == 0 and set(codes[:-1]) <= {XA_RETRY}, codes
    reader = connect(RECONNECTS)
    assert texts(reader, QUEUES[1]) == ["persistent"], "the other one is lost"
    assert texts(reader, Q) == [], "what was taken is taken"


def test_a_commit_under_way_ends_with_xa_retry(broker: Broker, relay: Relay, connect: Callable[..., Any]) -> None:
    plain = connect(RECONNECTS)
    sending = plain.createSession(False, 1)
    sending.createProducer(sending.createQueue(Q)).send(sending.createTextMessage("waits"))
    connection = connect(f"{RECONNECTS}&callTimeout={WAITS_MS}", "ActiveMQXAConnectionFactory", "createXAConnection")
    branch = Branch(connection, connection.createXASession())
    pause(broker.pid)
    codes: list[int] = []
    committing = asking(lambda: codes.append(branch.commit()))
    committing.start()
    until_blocked()
    relay.restart(broker)
    committing.join(60)
    assert codes == [XA_RETRY], CoreJms.stacks()
    wait_until(lambda: branch.commit() == 0)
    assert texts(connect(RECONNECTS), QUEUES[1]) == ["persistent"]


# --- without transactions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detection", [True, False])
def test_a_single_send_in_doubt_is_once_and_only_once_with_detection(
    broker: Broker, relay: Relay, client: OpenClient, detection: bool
) -> None:
    """The broker stores it and dies before it answers: sent again, it is a second one unless it has an id."""
    config = config_for(broker, transaction=0, duplicate_detection=detection)
    sending = replace(config, endpoints=through(relay))
    one = client(sending, [Q], transacted=False)
    reading = replace(config, transaction=10)
    other = client(reading, [], [Q])
    send(one, batch(0, 1))  # a producer's first send waits for credit
    assert drain(other) == ["p-0"]
    relay.hold()
    result = in_thread(lambda: one.send(Q, batch(1, 1)[0], 0))
    assert drain(other) == ["p-1"], "the broker has it"
    other.close()
    relay.restart(broker)
    relay.cut()
    assert result().result == "unknown"
    if one.send(Q, batch(1, 1)[0], 1) != Outcome("ok"):
        one.close()
        one = client(sending, [Q], transacted=False)
        assert one.send(Q, batch(1, 1)[0], 1) == Outcome("ok")
    after = client(reading, [], [Q])
    assert drain(after) == ([] if detection else ["p-1"])
