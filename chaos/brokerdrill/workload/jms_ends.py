"""A JMS session with its ends: what messages are sent by and received by, as the worker's configuration wants them."""

from __future__ import annotations

from typing import Any

import jpype

from brokerdrill.workload.config import WorkerConfig


class JmsEnds:
    """Makes them of the JMS interfaces of the package `api`. Each method raises Java's throwables."""

    def __init__(self, config: WorkerConfig, api: str, *, message_ids: bool) -> None:
        """`message_ids`: whether the library needs message ids and time stamps in what it sends."""
        self._subscriptions = config.subscriptions
        self._durable = config.durable
        self._api = api
        self._message_ids = message_ids

    def session(self, connection: Any, *, transacted: bool) -> Any:
        """Make a session."""
        constants = jpype.JClass(f"{self._api}.Session")
        mode = constants.SESSION_TRANSACTED if transacted else constants.CLIENT_ACKNOWLEDGE
        return connection.createSession(transacted, mode)

    def producer(self, session: Any, address: str) -> Any:
        """Make what sends to `address`."""
        delivery = jpype.JClass(f"{self._api}.DeliveryMode")
        producer = session.createProducer(self._destination(session, address))
        producer.setDeliveryMode(delivery.PERSISTENT if self._durable else delivery.NON_PERSISTENT)
        if not self._message_ids:
            producer.setDisableMessageID(True)
            producer.setDisableMessageTimestamp(True)
        return producer

    def consumer(self, session: Any, address: str) -> Any:
        """Make what receives from `address`; of a topic, a durable subscription with its name."""
        destination = self._destination(session, address)
        if self._subscriptions:
            return session.createDurableSubscriber(destination, address)
        return session.createConsumer(destination)

    def _destination(self, session: Any, address: str) -> Any:
        return session.createTopic(address) if self._subscriptions else session.createQueue(address)
