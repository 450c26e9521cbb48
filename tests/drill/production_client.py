"""Another application's client, run on a load host: sends plain messages and looks at what is in a queue.

Its input is two lines: a worker's configuration and a list of orders, `["send", ADDRESS, COUNT, LIVES_MS]` (0: for
ever), `["look", ADDRESS]`, `["prepare", ADDRESS]` (of Open MQ: a transaction with a message in it, which stays),
`["rollback", ADDRESS]` (the same one) or `["consume", ADDRESS]` until its input ends. It prints the messages of each in
their order as a line of JSON, `[body, redelivered]`; for `consume` an empty list once it consumes.
"""

from __future__ import annotations

import json
import os
import select
import sys
from functools import partial
from typing import Any

from brokerdrill.workload import config as configuration
from brokerdrill.workload.amqp091 import Amqp091
from brokerdrill.workload.client import client_type
from brokerdrill.workload.jms import JmsClient

Messages = list[list[Any]]


def send_jms(client: JmsClient, address: str, bodies: list[str], lives_ms: int) -> None:
    # Each alone, a hundred thousand would take minutes.
    session = client._connection.createSession(True, 0)
    producer = session.createProducer(session.createQueue(address))
    producer.setTimeToLive(lives_ms)
    for number, body in enumerate(bodies, start=1):
        producer.send(session.createTextMessage(body))
        if number % 1000 == 0 or number == len(bodies):
            session.commit()
    session.close()


def look_jms(client: JmsClient, address: str) -> Messages:
    session = client._session
    browser = session.createBrowser(session.createQueue(address))
    found, messages = [], browser.getEnumeration()
    while messages.hasMoreElements():
        one = messages.nextElement()
        body = str(one.getText()) if hasattr(one, "getText") else str(one.getJMSMessageID())
        found.append([body, bool(one.getJMSRedelivered())])
    browser.close()
    return found


def send_amqp(client: Amqp091, address: str, bodies: list[str]) -> None:
    import pika

    connection = client._connection
    assert connection is not None
    # What is not confirmed may be lost: the leader of a queue that was just made, for one, may change.
    for number, body in enumerate(bodies, start=1):
        connection.call(
            connection.channel.basic_publish, "", address, body.encode(), pika.BasicProperties(delivery_mode=2)
        )
        connection.wait(partial(client._answers.__contains__, number), None, "no confirm")
        assert client._answers[number], f"{address} did not take {body}"


def look_amqp(client: Amqp091, address: str) -> Messages:
    """Get all without an acknowledgement: once, at the end of everything."""
    from pika.spec import Basic

    connection = client._connection
    assert connection is not None
    found: Messages = []
    answers: list[bool] = []

    def got(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        found.append([body.decode(errors="replace"), bool(method.redelivered)])
        answers.append(True)

    connection.channel.add_callback(lambda _: answers.append(False), [Basic.GetEmpty], one_shot=False)
    while True:
        answers.clear()
        connection.call(connection.channel.basic_get, address, got)
        connection.wait(lambda: bool(answers), None, "no answer to basic_get")
        if not answers[0]:
            return found


def prepare(client: Any, address: str, *, end: bool) -> None:
    """Leave a transaction behind that is prepared, as a transaction manager does that has ended; or end that one."""
    import jpype

    from brokerdrill.workload.openmq_jms import properties

    config = client._config
    factory = jpype.JClass("com.sun.messaging.XAConnectionFactory")()
    for name, value in properties(config, config.endpoints, 0).items():
        factory.setProperty(name, value)
    connection = factory.createXAConnection(config.credentials.username, config.credentials.password)
    session = connection.createXASession()
    resource = session.getXAResource()
    identity = {
        "getFormatId": lambda: 1,
        "getGlobalTransactionId": lambda: jpype.JArray(jpype.JByte)(b"left behind"),
        "getBranchQualifier": lambda: jpype.JArray(jpype.JByte)(b"1"),
    }
    xid = jpype.JProxy("javax.transaction.xa.Xid", dict=identity)
    if end:
        resource.rollback(xid)
        return
    resource.start(xid, resource.TMNOFLAGS)
    session.createProducer(session.createQueue(address)).send(session.createTextMessage("prepared"))
    resource.end(xid, resource.TMSUCCESS)
    resource.prepare(xid)


def carry_out(client: Any, order: list[Any]) -> Messages:
    verb, address, *more = order
    if verb in ("prepare", "rollback"):
        prepare(client, address, end=verb == "rollback")
        return []
    if verb == "send":
        count, lives_ms = more
        bodies = [f"{address} {number}" for number in range(count)]
        if isinstance(client, Amqp091):
            send_amqp(client, address, bodies)
        else:
            send_jms(client, address, bodies, lives_ms)
        return [[body, False] for body in bodies]
    return look_amqp(client, address) if isinstance(client, Amqp091) else look_jms(client, address)


def main() -> None:
    config = configuration.from_json(sys.stdin.readline())
    orders = json.loads(sys.stdin.readline())
    kind = client_type(config.client)
    kind.start_process(config)
    for order in orders:
        client: Any = kind(config, "production")
        if order[0] == "consume":
            client.open([], [order[1]], transacted=False)
            print("[]", flush=True)
            # Some libraries send heartbeats only while they are waited for.
            while not select.select([sys.stdin], [], [], 0)[0]:
                client.receive(0.2)
            client.close()
            continue
        client.open(order[1:2] if order[0] == "send" else [], [], transacted=False)
        print(json.dumps(carry_out(client, order)), flush=True)
        client.close()
    # A library's threads may keep the JVM, and it this process.
    os._exit(0)


if __name__ == "__main__":
    main()
