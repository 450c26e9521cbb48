"""The load's messages as JMS has them: their properties when they are sent, and what is read of one that came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jpype

from brokerdrill.workload import header
from brokerdrill.workload.client import Delivery, Message

GROUP = "JMSXGroupID"


class JmsMessages:
    """The messages of one run, whose `tag` is in the header of each. Made when the JVM runs."""

    def __init__(self, api: str, tag: str) -> None:
        """`api`: the package of the JMS interfaces."""
        self._tag = tag
        # What the load sends; another application may have sent another kind of message.
        self._bytes = jpype.JClass(f"{api}.BytesMessage")
        self._property = jpype.JString(header.PROPERTY)

    def properties(self, batch: Sequence[Message], attempt: int) -> dict[str, Sequence[str]]:
        """Return the string properties of messages to be sent, and their values message by message."""
        groups = [message.key for message in batch if message.key is not None]
        headers = [header.write(self._tag, message, attempt) for message in batch]
        return {header.PROPERTY: headers, **({GROUP: groups} if groups else {})}

    def delivery(self, address: str, java: Any, handle: Any) -> Delivery:
        """Return what a Java message from `address` is. Raises Java's throwables."""
        body = jpype.JArray(jpype.JByte)(int(java.getBodyLength()) if isinstance(java, self._bytes) else 0)
        if len(body):
            java.readBytes(body)
        text = java.getStringProperty(self._property)
        return header.delivery(
            self._tag,
            address,
            str(text) if text is not None else None,
            str(java.getJMSMessageID()),
            redelivered=bool(java.getJMSRedelivered()),
            body=memoryview(body).tobytes(),
            handle=handle,
        )
