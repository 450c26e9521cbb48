"""The message header: what every message of a load carries so that its receiver's row can name its sender's.

It is one text property, `TAG|MESSAGE_ID|ATTEMPT|SEQ|KEY|SHA`; the tag distinguishes runs. Standard library only.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from brokerdrill.workload.client import Delivery, Message

PROPERTY = "bd"
_DIGITS = 16
_TAG_DIGITS = 8
_TAG = re.compile(f"[0-9a-f]{{{_TAG_DIGITS}}}")
_PARTS = 6


class MessageHeader(NamedTuple):
    """What a header says of its message. `key` is None where the message belongs to no group."""

    message_id: str
    attempt: int
    seq: int
    key: str | None


def sha(body: bytes) -> str:
    """Return the ledger's `payload_sha`: the first 16 hexadecimal digits of the body's SHA-256."""
    return hashlib.sha256(body).hexdigest()[:_DIGITS]


def tag_of(run_id: str) -> str:
    """Return the tag of the run: what its messages' headers begin with."""
    return sha(run_id.encode())[:_TAG_DIGITS]


def write(tag: str, message: Message, attempt: int) -> str:
    """Return the header of the message in its attempt number `attempt`, from 0."""
    return f"{tag}|{message.message_id}|{attempt}|{message.seq}|{message.key or ''}|{message.sha}"


def _parsed(text: str) -> tuple[str, MessageHeader] | None:
    """Return the tag and what else the header `text` says; None: it is none."""
    parts = text.split("|")
    if len(parts) != _PARTS or not _TAG.fullmatch(parts[0]):
        return None
    try:
        return parts[0], MessageHeader(parts[1], int(parts[2]), int(parts[3]), parts[4] or None)
    except ValueError:
        return None


def selector(tag: str) -> str:
    """Return the JMS selector of the messages of the run with this tag."""
    return f"{PROPERTY} LIKE '{tag}|%'"


def read(tag: str, text: str) -> MessageHeader | None:
    """Return what the header `text` says, None unless run `tag` has written it."""
    found = _parsed(text)
    return found[1] if found and found[0] == tag else None


def delivery(
    tag: str, address: str, text: str | None, broker_id: str, *, redelivered: bool, body: bytes, handle: object
) -> Delivery:
    """Return the delivery of a message with the header `text`, None without one.

    A message that an earlier run left behind says so, as does one that no run has sent. Neither has a name of this
    run's: it is made from the id `broker_id`, and where it is received the analysis finds it unexpected.
    """
    found = _parsed(text) if text is not None else None
    left_by = found[0] if found and found[0] != tag else None
    own = found is not None and not left_by
    known = found[1] if found and own else MessageHeader(f"foreign-{broker_id}", 0, 0, None)
    return Delivery(
        address,
        known.message_id,
        known.attempt,
        known.seq,
        known.key,
        redelivered,
        sha(body),
        handle,
        left_by=left_by,
        foreign=found is None,
    )
