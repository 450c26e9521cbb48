"""The small protocol that a client of each messaging protocol implements, and the registry of those that do.

One `Client` object is one logical client's connection and session, used by one thread. It says what became of each
operation as an `Outcome`; `fail` only with proof (the writers' rules of the ledger's contract). The loops of
`producer.py` and `consumer.py` decide what to do then, and write the ledger.
"""

from __future__ import annotations

import importlib
import re
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from brokerdrill.base.errors import unknown_name
from brokerdrill.workload.config import NO_KEY, BrokerEndpoint, Router, WorkerConfig

OK = "ok"
FAIL = "fail"
UNKNOWN = "unknown"

# How a client browses: it takes messages and gives them back, so that they are flagged or change places; the broker
# shows it some, from the first on; or all that a selector chooses.
TAKES, SHOWS, SELECTS = "takes", "shows", "selects"
Browsing = Literal["takes", "shows", "selects"]
DUPLICATE = "duplicate"


class Outcome(NamedTuple):
    """What became of an operation: `result` ok, fail (proven) or unknown; `error` class and first line, None where ok
    (`duplicate`: ok, because the broker refused it as one it has already). `usable`: the connection can be used on."""

    result: str
    error: str | None = None
    usable: bool = True


DONE = Outcome(OK)
REFUSED_AS_DUPLICATE = Outcome(OK, DUPLICATE)


class ClientError(Exception):
    """An operation that gave no result; its text is the ledger's `error`. The connection is not to be used on."""


class Message(NamedTuple):
    """A message to send: the application's id, its place in its producer's order on the address, group, body, sha."""

    message_id: str
    seq: int
    key: str | None
    payload: bytes
    sha: str


class Delivery(NamedTuple):
    """A message received or browsed. `attempt`, `seq` and `key` are its sender's; `handle` is the client's own.

    `proves`: how many of the oldest acknowledgements on this address that had no answer (`ack` was unknown, the
    connection usable on) its coming proves. `left_by`: the tag of another run that sent it; None: this one, or nobody
    who says so. `foreign`: no run has sent it, and its `message_id` is the broker's.
    """

    address: str
    message_id: str
    attempt: int | None
    seq: int | None
    key: str | None
    redelivered: bool
    sha: str
    handle: Any
    proves: int = 0
    left_by: str | None = None
    foreign: bool = False


class Reconnect(NamedTuple):
    """When the client library noticed that its connection was lost and when it had the new one (monotonic ns)."""

    lost_ns: int
    back_ns: int


class Client(Protocol):
    """See the module. `protocol` is the ledger's word, `browsing` one of TAKES, SHOWS and SELECTS. Only `open`,
    `receive` and `browse` raise, and only ClientError."""

    protocol: ClassVar[str]
    browsing: ClassVar[Browsing]

    @classmethod
    def start_process(cls, config: WorkerConfig) -> None:
        """Called once in the main thread before any client is made (a JVM, a library's set-up).

        Raises InfrastructureError where the process cannot have such clients.
        """
        ...

    def __init__(self, config: WorkerConfig, name: str) -> None: ...

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        """Connect, once, to whichever endpoint serves. Raises ClientError."""
        ...

    def send(self, address: str, message: Message, attempt: int) -> Outcome:
        """Send one message. In a transaction the commit decides, and ok means only that it was handed over."""
        ...

    def commit(self, *, resent: bool) -> Outcome:
        """Commit what was sent or received. `resent`: the batch is the identical retry of an earlier attempt, so that
        a refusal as duplicate is ok with error `duplicate`; of a first attempt it is fail."""
        ...

    def rollback(self) -> Outcome:
        """Roll back what was sent or received."""
        ...

    def receive(self, timeout_s: float) -> Delivery | None:
        """Return the next message, or None after `timeout_s`. Raises ClientError."""
        ...

    def ack(self, delivery: Delivery) -> Outcome:
        """Acknowledge one delivery, outside transactions. Where there is no answer to it: unknown, usable; a later
        delivery may prove it."""
        ...

    def browse(self, address: str, *, own: bool = False) -> Iterable[Delivery]:
        """Look at the messages on a queue, which stay there; `own`: at this run's alone, where the client SELECTS.
        Raises ClientError."""
        ...

    def connection_id(self) -> int:
        """Name the connection under the session now: another number after a transparent failover."""
        ...

    def reconnect(self) -> Reconnect | None:
        """When the newest transparent failover took place, None where the library does not say."""
        ...

    def served_by(self) -> BrokerEndpoint | None:
        """Which endpoint the connection reaches, by its remote address, behind a balancer by the certificate that it
        was shown; None where it is none of the endpoints. Raises ClientError where it only leads to a router, which
        neither serves the session nor led it on."""
        ...

    def close(self) -> Outcome:
        """Close connection and session; may be called at any time, twice, and from another thread to end a call."""
        ...


@runtime_checkable
class Routed(Protocol):
    """What a client can do besides, that goes where a connection router leads it."""

    def aim(self, router: Router, key: str) -> None:
        """Have the next `open` ask `router`, as `key` where the key is the client's to choose."""
        ...


@runtime_checkable
class Batching(Protocol):
    """What a client can do besides that sends many messages faster together than one by one."""

    def send_batch(self, address: str, batch: Sequence[Message], attempt: int) -> tuple[Outcome, list[int]]:
        """Send messages that all have a group or all have none, as `send` does each, up to the first that is not ok.
        Return the last one's outcome and when each call that was made returned, in ns of the monotonic clock."""
        ...


class Answer(NamedTuple):
    """What became of the message `message_id` that had been handed over, and when the client learned that (ns of the
    monotonic clock)."""

    message_id: str
    outcome: Outcome
    at_ns: int


@runtime_checkable
class Windowed(Protocol):
    """What a client can do besides that has several messages in flight, outside transactions; of one id one at most."""

    def hand_over(self, address: str, message: Message, attempt: int) -> Outcome:
        """Send one message without waiting. ok: it was handed over, and its answer will come; else there is none."""
        ...

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        """Return the answers that have come since, and wait for one at most `timeout_s`. Raises ClientError where the
        connection is lost, after the last answer was returned: what is in flight then has none."""
        ...


@runtime_checkable
class Idling(Protocol):
    """What a client does besides whose library has no thread of its own."""

    def idle(self) -> None:
        """Do at once what the connection wants done while its client waits, as heartbeats. What is wrong with it the
        next operation says."""
        ...


@runtime_checkable
class Traced(Protocol):
    """What a client can do besides whose library has stacks of its own."""

    @classmethod
    def stacks(cls) -> Mapping[str, Sequence[str]]:
        """Return the calls in the library that each client of this process is in now, by the client's name, the
        innermost first."""
        ...


@runtime_checkable
class Subscribing(Protocol):
    """What a client can do besides, that has a durable subscription on each topic that it receives from, as the
    configuration's `subscriptions` says: `open` makes it, or goes on with it."""

    def unsubscribe(self, address: str) -> Outcome:
        """End the subscription on a topic; nothing is received from it any more."""
        ...


class Aim(NamedTuple):
    """Which connection router a client asks, and as whom."""

    router: Router
    key: str


def known_as(config: WorkerConfig, aim: Aim) -> str | None:
    """Return the key by which the router knows a connection of this process: what its key-filter leaves of `aim.key`
    where the client chooses it or its account has it; None where no address of this host leads to the router any more.
    """
    key = _unfiltered(config, aim)
    if key is None or key == NO_KEY or config.key_filter is None:
        return key
    found = re.search(config.key_filter, key)
    return found[0] if found else NO_KEY


def _unfiltered(config: WorkerConfig, aim: Aim) -> str | None:
    if config.key_type == "USER_NAME":
        return config.credentials.username
    if config.key_type != "SOURCE_IP":
        return aim.key
    try:
        family = socket.getaddrinfo(aim.router.address, aim.router.port, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.connect((aim.router.address, aim.router.port))  # which sends nothing
            return str(one.getsockname()[0])
    except OSError:
        return None


# Protocol name → where its class is; a name with a colon is such a place itself.
CLIENTS: dict[str, str] = {
    "amqp": "brokerdrill.workload.amqp_jms:AmqpJms",
    "amqp091": "brokerdrill.workload.amqp091:Amqp091",
    "core": "brokerdrill.workload.core_jms:CoreJms",
    "mqtt": "brokerdrill.workload.mqtt:Mqtt",
    "openmq": "brokerdrill.workload.openmq_jms:OpenMqJms",
    "openwire": "brokerdrill.workload.openwire_jms:OpenWireJms",
    "stomp": "brokerdrill.workload.stomp:Stomp",
}


def client_type(name: str) -> type[Client]:
    """Return the class of the client called `name`. Raises UsageError where there is none."""
    place = name if ":" in name else CLIENTS.get(name)
    if place is None:
        raise unknown_name("client", name, CLIENTS)
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise unknown_name("client", name, CLIENTS) from None


def endpoint_at(remote: str, endpoints: Sequence[BrokerEndpoint]) -> BrokerEndpoint | None:
    """Return the endpoint with the remote address `ADDRESS:PORT` (a scheme or slash before it is ignored), else the
    only one with that address, else None; None too where it is an address of several instances."""
    address, _, port = remote.rpartition("/")[2].rpartition(":")
    same = [item for item in endpoints if item.address == address.strip("[]")]
    exact = [item for item in same if str(item.port) == port]
    if exact:
        return exact[0] if len({item.instance for item in exact}) == 1 else None
    return same[0] if len(same) == 1 else None


def endpoint_certified(names: Collection[str], endpoints: Sequence[BrokerEndpoint]) -> BrokerEndpoint | None:
    """Return the endpoint whose host or address is among the `names` of a certificate, None where that is not one
    instance's alone."""
    found = [item for item in endpoints if item.host in names or item.address in names]
    return found[0] if len({item.instance for item in found}) == 1 else None
