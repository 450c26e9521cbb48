"""What a client outside of the load does to the drill's own messages on purpose, unrecorded, so that a promise breaks:
the control that shows that its check can fail on a real broker. It is of the protocol that the load's clients have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from brokerdrill.workload.client import FAIL, Client, ClientError, Delivery, Message, Outcome
from brokerdrill.workload.header import sha

RECEIVE_S = 5.0
# No broker gives a message back more often before it is a dead letter.
MOST_DELIVERIES = 1000


@dataclass(frozen=True)
class Tampering:
    """What is done (`how`, one of HOWS) to `count` messages on the queue `address`."""

    how: str
    address: str
    count: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object whose items `Tampering(**object)` takes."""
        return asdict(self)


def tamper(client: Client, wanted: Tampering, name: str) -> None:
    """Do what is `wanted` with `client`, which is not open yet, and close it; `name` distinguishes its messages.

    Raises ClientError where the broker refuses, or has fewer messages.
    """
    transacted = wanted.how == "reject"
    client.open((wanted.address,), (wanted.address,), transacted=transacted)
    try:
        HOWS[wanted.how](client, wanted, name)
    finally:
        client.close()


def _forge(client: Client, wanted: Tampering, name: str) -> None:
    """Send messages as the load's would be."""
    for number in range(wanted.count):
        body = f"{name}-forged-{number}".encode()
        _done(client.send(wanted.address, Message(body.decode(), number, None, body, sha(body)), 0))


def _keep(client: Client, wanted: Tampering, name: str) -> None:
    """Take messages without a record."""
    for _ in range(wanted.count):
        _taken(client)


def _requeue(client: Client, wanted: Tampering, name: str) -> None:
    """Take messages and send them again, behind what has come since, as a tool that retries does. What is in them is
    not what it was."""
    for one in [_taken(client) for _ in range(wanted.count)]:
        body = one.message_id.encode()
        message = Message(one.message_id, one.seq or 0, one.key, body, sha(body))
        _done(client.send(wanted.address, message, one.attempt or 0))


def _reject(client: Client, wanted: Tampering, name: str) -> None:
    """Take the first message and give it back, until the broker gives it to nobody any more; then the next."""
    rejected: set[str] = set()
    for _ in range(MOST_DELIVERIES):
        one = _received(client)
        if one.message_id not in rejected and len(rejected) == wanted.count:
            _done(client.rollback())
            return
        rejected.add(one.message_id)
        _done(client.rollback())
    raise ClientError(f"the broker gave {len(rejected)} messages again {MOST_DELIVERIES} times, and is not done")


HOWS: Mapping[str, Callable[[Client, Tampering, str], None]] = {
    "forge": _forge,
    "keep": _keep,
    "requeue": _requeue,
    "reject": _reject,
}


def _received(client: Client) -> Delivery:
    found = client.receive(RECEIVE_S)
    if found is None:
        raise ClientError(f"no message came within {RECEIVE_S:g} s")
    return found


def _taken(client: Client) -> Delivery:
    found = _received(client)
    _done(client.ack(found))
    return found


def _done(outcome: Outcome) -> None:
    if outcome.result == FAIL or not outcome.usable:
        raise ClientError(outcome.error or "refused")
