"""Another application's client, run on a load host: sends plain messages and looks at what is in a queue.

Its input is two lines: a worker's configuration and a list of orders, `["send", ADDRESS, COUNT, LIVES_MS]` (0: for
ever), `["look", ADDRESS]` or `["consume", ADDRESS]` until its input ends. It prints the messages of each in their order
as a line of JSON, `[body, redelivered]`; for `consume` an empty list once it consumes.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from brokerdrill.workload import config as configuration
from brokerdrill.workload.amqp091 import Amqp091
from brokerdrill.workload.client import client_type
from brokerdrill.workload.jms import JmsClient

Messages = list[list[Any]]


def send_jms(client: JmsClient, address: str, bodies: list[str], lives_ms: int) -> None:
    session = client._session
    producer = session.createProducer(session.createQueue(address))
    producer.setTimeToLive(lives_ms)
    for body in bodies:
        producer.send(session.createTextMessage(body))
    producer.close()


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

    line = client._line
    assert line is not None
    for body in bodies:
        line.tell(line.channel.basic_publish, "", address, body.encode(), pika.BasicProperties(delivery_mode=2))
    line.flush()


def look_amqp(client: Amqp091, address: str) -> Messages:
    """Get all without an acknowledgement: once, at the end of everything."""
    from pika.spec import Basic

    line = client._line
    assert line is not None
    found: Messages = []
    answers: list[bool] = []

    def got(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        found.append([body.decode(errors="replace"), bool(method.redelivered)])
        answers.append(True)

    line.channel.add_callback(lambda _: answers.append(False), [Basic.GetEmpty], one_shot=False)
    while True:
        answers.clear()
        line.tell(line.channel.basic_get, address, got)
        line.wait(lambda: bool(answers), None, "no answer to basic_get")
        if not answers[0]:
            return found


def carry_out(client: Any, order: list[Any]) -> Messages:
    verb, address, *more = order
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
            sys.stdin.read()
            client.close()
            continue
        client.open([], [], transacted=False)
        print(json.dumps(carry_out(client, order)), flush=True)
        client.close()
    # A library's threads may keep the JVM, and it this process.
    os._exit(0)


if __name__ == "__main__":
    main()
