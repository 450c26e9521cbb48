"""AMQP 0-9-1 bytes: the few Connection methods that the router reads or writes itself (specification 1.4 and 4.2).

Bodies of the methods that pass through are kept as they are; only tables that must be looked into are decoded.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from pamqp import encode

from amqp_session_router.amqp.frames import SYNTAX_ERROR, ProtocolError, Reader, frame, long, short

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
_TUNE = struct.Struct(">IHIH")
FRAME_MIN = 4096
"""The smallest frame_max that peers may agree on (frame-min-size)."""
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"

START, START_OK, SECURE, SECURE_OK, TUNE, TUNE_OK, OPEN, OPEN_OK, CLOSE, CLOSE_OK, BLOCKED, UNBLOCKED = (
    (10 << 16) | method for method in (10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61)
)

COMMAND_INVALID = 503
NOT_IMPLEMENTED = 540


def encode_table(values: dict[str, Any]) -> bytes:
    """Return a table's inside."""
    return encode.field_table(values)[4:]


@lru_cache(maxsize=16)
def start(server_properties: bytes, mechanisms: str) -> bytes:
    """Return Connection.Start as a frame; `server_properties` is a table's inside."""
    return frame(
        START.to_bytes(4, "big") + b"\x00\x09" + long(server_properties) + long(mechanisms.encode()) + long(b"en_US")
    )


@lru_cache(maxsize=16)
def read_start(payload: bytes) -> tuple[tuple[int, int], bytes, tuple[bytes, ...]]:
    """Return version, server properties (a table's inside) and mechanisms of a Connection.Start."""
    arguments = Reader(payload)
    version = arguments.number(1), arguments.number(1)
    return version, arguments.long(), tuple(arguments.long().split())


def start_ok(client_properties: bytes, mechanism: str, response: bytes, locale: str) -> bytes:
    """Return Connection.Start-Ok as a frame; `client_properties` is a table's inside."""
    return frame(
        START_OK.to_bytes(4, "big") + long(client_properties) + short(mechanism) + long(response) + short(locale)
    )


@lru_cache(maxsize=64)
def tune(method: int, channel_max: int, frame_max: int, heartbeat: int) -> bytes:
    """Return Connection.Tune or Tune-Ok (`method`) as a frame."""
    return frame(_TUNE.pack(method, channel_max, frame_max, heartbeat))


@lru_cache(maxsize=64)
def open_(vhost: str) -> bytes:
    """Return Connection.Open as a frame."""
    return frame(OPEN.to_bytes(4, "big") + short(vhost.encode(errors="surrogateescape")) + b"\x00\x00")


def close(code: int, text: str, because_of: int = 0) -> bytes:
    """Return Connection.Close as a frame; `text` is cut to 255 bytes; `because_of` is the method that failed, or 0."""
    return frame(struct.pack(">IH", CLOSE, code) + short(text) + because_of.to_bytes(4, "big"))


def blocked(reason: str) -> bytes:
    """Return Connection.Blocked as a frame."""
    return frame(BLOCKED.to_bytes(4, "big") + short(reason))


OPEN_OK_FRAME = frame(OPEN_OK.to_bytes(4, "big") + b"\x00")
CLOSE_OK_FRAME = frame(CLOSE_OK.to_bytes(4, "big"))
UNBLOCKED_FRAME = frame(UNBLOCKED.to_bytes(4, "big"))


def read_tune(payload: bytes) -> tuple[int, int, int]:
    """Return channel_max, frame_max and heartbeat of a Connection.Tune or Tune-Ok."""
    if len(payload) < _TUNE.size:
        raise ProtocolError(SYNTAX_ERROR, "a method's arguments end too early")
    _, channel_max, frame_max, heartbeat = _TUNE.unpack_from(payload)
    return channel_max, frame_max, heartbeat


def read_close(payload: bytes) -> tuple[int, str, int]:
    """Return reply code and text of a Connection.Close, and the method that failed (0: none)."""
    arguments = Reader(payload)
    return arguments.number(2), arguments.short(), arguments.number(4)
