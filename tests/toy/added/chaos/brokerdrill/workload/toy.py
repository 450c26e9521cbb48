"""Clients of the toy broker's line protocol."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from brokerdrill.workload import header
from brokerdrill.workload.client import (
    DONE,
    REFUSED_AS_DUPLICATE,
    UNKNOWN,
    Browsing,
    ClientError,
    Delivery,
    Message,
    Outcome,
    Reconnect,
)
from brokerdrill.workload.config import BrokerEndpoint, WorkerConfig


class Toy:
    """One connection. See the client protocol for what each method promises. There are no transactions."""

    protocol: ClassVar[str] = "toy"
    browsing: ClassVar[Browsing] = "shows"

    @classmethod
    def start_process(cls, config: WorkerConfig) -> None:
        """Nothing is needed."""

    def __init__(self, config: WorkerConfig, name: str) -> None:
        self._config = config
        self._tag = header.tag_of(config.run_id)
        self._socket: socket.socket | None = None
        self._queues: list[str] = []
        self._opened = 0

    def _ask(self, timeout_s: float = 0, **request: Any) -> dict[str, Any]:
        """Return the answer to a request. Raises ClientError without one: the connection is not used on."""
        if self._socket is None:
            raise ClientError("the connection is closed")
        try:
            self._socket.settimeout(timeout_s + self._config.call_timeout_ms / 1000)
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._lines.readline()
        except OSError as error:
            raise ClientError(f"{type(error).__name__}: {error}") from None
        if not line:
            raise ClientError("the broker closed the connection")
        return json.loads(line)

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        (endpoint,) = self._config.endpoints
        try:
            self._socket = socket.create_connection((endpoint.address, endpoint.port), timeout=3)
        except OSError as error:
            raise ClientError(f"{type(error).__name__}: {error}") from None
        self._lines = self._socket.makefile()
        self._ask(op="hello", password=self._config.credentials.password)
        self._queues = list(receives_from)
        self._opened += 1

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        body = base64.b64encode(message.payload).decode()
        head = header.write(self._tag, message, attempt)
        try:
            answer = self._ask(op="send", queue=address, message_id=message.message_id, header=head, body=body)
        except ClientError as error:
            return Outcome(UNKNOWN, str(error), usable=False)
        return REFUSED_AS_DUPLICATE if answer.get("duplicate") else DONE

    def commit(self, *, resent: bool) -> Outcome:
        return DONE

    def rollback(self) -> Outcome:
        return DONE

    def _delivery(self, kept: dict[str, Any]) -> Delivery:
        return header.delivery(
            self._tag,
            kept["queue"],
            kept["header"],
            str(kept["id"]),
            redelivered=kept["redelivered"],
            body=base64.b64decode(kept["body"]),
            handle=kept["id"],
        )

    def receive(self, timeout_s: float) -> Delivery | None:
        kept = self._ask(timeout_s, op="take", queues=self._queues, wait=timeout_s)
        return self._delivery(kept) if kept else None

    def ack(self, delivery: Delivery) -> Outcome:
        try:
            self._ask(op="ack", id=delivery.handle)
        except ClientError as error:
            return Outcome(UNKNOWN, str(error), usable=False)
        return DONE

    def browse(self, address: str, *, own: bool = False) -> Iterable[Delivery]:
        return [self._delivery(kept) for kept in self._ask(op="browse", queue=address)["messages"]]

    def connection_id(self) -> int:
        return self._opened

    def reconnect(self) -> Reconnect | None:
        return None

    def served_by(self) -> BrokerEndpoint | None:
        return self._config.endpoints[0]

    def close(self) -> Outcome:
        line, self._socket = self._socket, None
        if line is not None:
            line.close()
        return DONE
