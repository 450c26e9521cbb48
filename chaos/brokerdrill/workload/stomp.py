"""STOMP 1.2 clients, by the standard library alone: frames over a TLS socket, a receipt for what must be proven.

Facts about ActiveMQ Classic 5.18.3 that this rests on:
- a SEND, ACK or COMMIT with a `receipt` header is answered when the broker has done it; an ERROR frame ends all;
- what was sent in a transaction counts with its COMMIT only, and a connection that ends before that rolls it back;
- there is no failover in the protocol: the client tries the endpoints in turn, and what has no receipt is unknown;
- `ack:client-individual` hands out what was not acknowledged again once the connection is gone.

Artemis 2.56.0 redirects no STOMP client: one that is led asks the router's management first, and then connects to whom
it names. What Artemis does not know of the above is a browser: there it is a subscription that acknowledges nothing.
"""

from __future__ import annotations

import itertools
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

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
from brokerdrill.workload.config import STOMP_PREFIX, BrokerEndpoint, Router, WorkerConfig

CONNECT_S = 3.0
PREFETCH = 100
BROWSE_IDLE_S = 1.0
CHUNK = 65536
# STOMP 1.2, "Value Encoding".
_ESCAPES = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}


class Frame(NamedTuple):
    """A frame: command, headers, body."""

    command: str
    headers: Mapping[str, str]
    body: bytes = b""


def escape(text: str) -> str:
    """Return a header's name or value as STOMP 1.2 writes it."""
    return "".join(_ESCAPES.get(char, char) for char in text)


def unescape(text: str) -> str:
    """Return what `escape` was given."""
    pairs = {value: key for key, value in _ESCAPES.items()}
    parts = iter(text)
    return "".join(pairs.get(char + next(parts, ""), "") if char == "\\" else char for char in parts)


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame; its body's length is always said, so that it may hold anything."""
    headers = {**frame.headers, **({"content-length": str(len(frame.body))} if frame.command == "SEND" else {})}
    # CONNECT frames are not escaped, for the sake of older servers.
    write = str if frame.command == "CONNECT" else escape
    lines = [frame.command, *(f"{write(name)}:{write(value)}" for name, value in headers.items())]
    return "\n".join(lines).encode() + b"\n\n" + frame.body + b"\0"


class Parser:
    """Takes bytes as they come and gives the frames that are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer += data
        found = []
        while frame := self._next():
            found.append(frame)
        return found

    def _next(self) -> Frame | None:
        # Between frames, single line ends are heart-beats.
        skip = len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))
        del self._buffer[:skip]
        end = self._buffer.find(b"\n\n")
        if end < 0:
            return None
        command, *lines = self._buffer[:end].decode(errors="replace").replace("\r", "").split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(unescape(name), unescape(value))  # of a repeated header the first counts
        start = end + 2
        if "content-length" in headers:
            stop = start + int(headers["content-length"])
            if len(self._buffer) <= stop:
                return None
        else:
            stop = self._buffer.find(b"\0", start)
            if stop < 0:
                return None
        body = bytes(self._buffer[start:stop])
        del self._buffer[: stop + 1]
        return Frame(command, headers, body)


class StompConnection:
    """A connection to one endpoint. Raises ClientError when it is no good any more."""

    def __init__(self, config: WorkerConfig, endpoint: BrokerEndpoint) -> None:
        self._parser = Parser()
        self._frames: deque[Frame] = deque()
        self._receipts = itertools.count(1)
        self._timeout_s = config.call_timeout_ms / 1000
        try:
            plain = socket.create_connection((endpoint.address, endpoint.port), timeout=CONNECT_S)
            self._socket: Any = plain
            if config.tls_ca:
                context = ssl.create_default_context(cafile=config.tls_ca)
                self._socket = context.wrap_socket(plain, server_hostname=endpoint.address)
            self._socket.settimeout(self._timeout_s)
        except OSError as error:
            raise ClientError(f"{type(error).__name__}: {error}") from None
        credentials = config.credentials
        headers = {
            "accept-version": "1.2",
            "host": endpoint.address,
            "login": credentials.username,
            "passcode": credentials.password,
            "heart-beat": "0,0",
        }
        self.write(Frame("CONNECT", headers))
        answer = self.wait(lambda frame: frame.command == "CONNECTED")
        if answer is None:
            self.close()
            raise ClientError("no answer to CONNECT")

    def write(self, frame: Frame) -> None:
        try:
            self._socket.sendall(encode(frame))
        except OSError as error:
            raise ClientError(f"{type(error).__name__}: {error}") from None

    def confirmed(self, frame: Frame) -> None:
        """Write the frame and wait until the broker confirms it. Raises ClientError where it does not."""
        receipt = str(next(self._receipts))
        self.write(Frame(frame.command, {**frame.headers, "receipt": receipt}, frame.body))
        if self.wait(lambda got: got.command == "RECEIPT" and got.headers.get("receipt-id") == receipt) is None:
            raise ClientError(f"no receipt for {frame.command}")

    def wait(self, wanted: Any) -> Frame | None:
        """Return the frame that is `wanted`, None where the call's time is up; messages are kept for `message`."""
        end = time.monotonic() + self._timeout_s
        while (left := end - time.monotonic()) > 0:
            for frame in self._read(left):
                if frame.command == "ERROR":
                    raise ClientError(f"ERROR: {frame.headers.get('message', '')}")
                if wanted(frame):
                    return frame
        return None

    def message(self, timeout_s: float) -> Frame | None:
        """Return the next message, None after `timeout_s`."""
        end = time.monotonic() + timeout_s
        while not self._frames and (left := end - time.monotonic()) > 0:
            for frame in self._read(left):
                if frame.command == "ERROR":
                    raise ClientError(f"ERROR: {frame.headers.get('message', '')}")
        return self._frames.popleft() if self._frames else None

    def _read(self, timeout_s: float) -> list[Frame]:
        """Read once, at most `timeout_s`; messages go to their queue, and all else is returned."""
        try:
            pending = self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0
            if not pending and not select.select([self._socket], [], [], timeout_s)[0]:
                return []
            data = self._socket.recv(CHUNK)
        except (OSError, ValueError) as error:
            raise ClientError(f"{type(error).__name__}: {error}") from None
        if not data:
            raise ClientError("the broker closed the connection")
        others = []
        for frame in self._parser.feed(data):
            if frame.command == "MESSAGE":
                self._frames.append(frame)
            else:
                others.append(frame)
        return others

    def close(self) -> None:
        try:
            self._socket.close()
        except OSError:
            return


class Stomp:
    """One STOMP connection. See the client protocol for what each method promises."""

    protocol: ClassVar[str] = "stomp"
    browsing: ClassVar[Browsing] = "takes"

    @classmethod
    def start_process(cls, config: WorkerConfig) -> None:
        """Nothing is needed."""

    def __init__(self, config: WorkerConfig, name: str) -> None:
        self._config = config
        self._tag = header.tag_of(config.run_id)
        self._aimed: Aim | None = None
        self._connection: StompConnection | None = None
        self._endpoint: BrokerEndpoint | None = None
        self._opened = 0
        self._transacted = False
        self._transactions = itertools.count(1)
        self._transaction: str | None = None
        self._subscriptions: dict[str, str] = {}

    def aim(self, router: Router, key: str) -> None:
        self._aimed = Aim(router, key)

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        problems = []
        for endpoint in asking.whom_to_dial(self._config, self._aimed):
            try:
                self._connection = StompConnection(self._config, endpoint)
                break
            except ClientError as error:
                problems.append(f"{endpoint.instance}: {error}")
        else:
            raise ClientError("; ".join(problems))
        self._endpoint = endpoint
        self._opened += 1
        self._transacted = transacted
        self._transaction = None
        self._subscriptions = {f"s{number}": address for number, address in enumerate(receives_from)}
        for name, address in self._subscriptions.items():
            self._subscribe(name, address, {"activemq.prefetchSize": str(PREFETCH)})

    def _subscribe(self, name: str, address: str, more: Mapping[str, str]) -> None:
        headers = {"id": name, "destination": f"{STOMP_PREFIX}{address}", "ack": "client-individual", **more}
        assert self._connection is not None
        self._connection.confirmed(Frame("SUBSCRIBE", headers))

    def _in_transaction(self) -> dict[str, str]:
        """The header of the open transaction, which is begun first where there is none."""
        if not self._transacted:
            return {}
        if self._transaction is None:
            self._transaction = f"{self._tag}-{self._opened}-{next(self._transactions)}"
            assert self._connection is not None
            self._connection.write(Frame("BEGIN", {"transaction": self._transaction}))
        return {"transaction": self._transaction}

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        headers = {
            "destination": f"{STOMP_PREFIX}{address}",
            header.PROPERTY: header.write(self._tag, message, attempt),
        }
        headers["persistent"] = "true" if self._config.durable else "false"
        if message.key is not None:
            headers["JMSXGroupID"] = message.key
        try:
            assert self._connection is not None
            frame = Frame("SEND", {**headers, **self._in_transaction()}, message.payload)
            (self._connection.write if self._transacted else self._connection.confirmed)(frame)
        except ClientError as error:
            return Outcome(UNKNOWN, str(error), usable=False)
        return DONE

    def _end(self, command: str) -> Outcome:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return DONE
        try:
            assert self._connection is not None
            self._connection.confirmed(Frame(command, {"transaction": transaction}))
        except ClientError as error:
            return Outcome(UNKNOWN, str(error), usable=False)
        return DONE

    def commit(self, *, resent: bool) -> Outcome:
        return self._end("COMMIT")

    def rollback(self) -> Outcome:
        return self._end("ABORT")

    def receive(self, timeout_s: float) -> Delivery | None:
        if self._connection is None:
            raise ClientError("the connection is closed")
        frame = self._connection.message(timeout_s)
        if frame is None:
            return None
        if self._transacted:
            self._connection.write(Frame("ACK", {"id": frame.headers.get("ack", ""), **self._in_transaction()}))
        return self._delivery(self._subscriptions.get(frame.headers.get("subscription", ""), ""), frame)

    def _delivery(self, address: str, frame: Frame) -> Delivery:
        return header.delivery(
            self._tag,
            address,
            frame.headers.get(header.PROPERTY),
            frame.headers.get("message-id", ""),
            redelivered=frame.headers.get("redelivered") == "true",
            body=frame.body,
            handle=frame.headers.get("ack"),
        )

    def ack(self, delivery: Delivery) -> Outcome:
        try:
            assert self._connection is not None
            self._connection.confirmed(Frame("ACK", {"id": str(delivery.handle)}))
        except ClientError as error:
            return Outcome(UNKNOWN, str(error), usable=False)
        return DONE

    def browse(self, address: str, *, own: bool = False) -> Iterable[Delivery]:
        return list(self._browsed(address))

    def _browsed(self, address: str) -> Iterator[Delivery]:
        self._subscribe("browser", address, {"browser": "true"})
        assert self._connection is not None
        while frame := self._connection.message(BROWSE_IDLE_S):
            # The end of what there is comes as a message, too.
            if frame.headers.get("browser") == "end":
                return
            yield self._delivery(address, frame)

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
        try:
            connection.confirmed(Frame("DISCONNECT", {}))
        except ClientError as error:
            return Outcome(FAIL if "ERROR" in str(error) else UNKNOWN, str(error))
        finally:
            connection.close()
        return DONE
