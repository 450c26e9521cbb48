"""AMQP 0-9-1 bytes: frames, and the few Connection methods that the router reads or writes itself (specification 4.2).

Bodies of the methods that pass through are kept as they are; only tables that must be looked into are decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from pamqp import decode, encode

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_HEADER = struct.Struct(">BHI")
_METHOD = struct.Struct(">I").unpack_from
_TUNE = struct.Struct(">IHIH")
FRAME_OVERHEAD = 8
"""Seven bytes before a frame's payload and the end octet after it."""
FRAME_END = 0xCE
FRAME_MIN = 4096
"""The smallest frame_max that peers may agree on (frame-min-size)."""
METHOD, CONTENT_HEADER, BODY, HEARTBEAT_TYPE = 1, 2, 3, 8
FRAME_TYPES = frozenset((METHOD, CONTENT_HEADER, BODY, HEARTBEAT_TYPE))
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"

START, START_OK, SECURE, SECURE_OK, TUNE, TUNE_OK, OPEN, OPEN_OK, CLOSE, CLOSE_OK, BLOCKED, UNBLOCKED = (
    (10 << 16) | method for method in (10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61)
)

FRAME_ERROR = 501
SYNTAX_ERROR = 502
COMMAND_INVALID = 503
UNEXPECTED_FRAME = 505
NOT_IMPLEMENTED = 540


class ProtocolError(Exception):
    """The peer's bytes are not AMQP 0-9-1; `code` is the reply code of the specification."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


Simple = str | bool
"""Values of a table's fields that are written often."""


class Frame(NamedTuple):
    """One frame without its header and end octet."""

    type: int
    channel: int
    payload: bytes
    method: int
    """Class and method as one number (`wire.OPEN`), 0 for what is no method frame of channel 0."""


def next_frame(buffer: bytearray, limit: int) -> Frame | None:
    """Take the first frame off `buffer`, None if it is not whole; raises ProtocolError, also above `limit` bytes."""
    length = len(buffer)
    if length < 7:
        if buffer and buffer[0] not in FRAME_TYPES:
            raise ProtocolError(FRAME_ERROR, f"no frame has the type {buffer[0]}")
        return None
    kind, channel, size = FRAME_HEADER.unpack_from(buffer)
    if kind not in FRAME_TYPES:
        raise ProtocolError(FRAME_ERROR, f"no frame has the type {kind}")
    whole = size + FRAME_OVERHEAD
    if whole > limit:
        raise ProtocolError(FRAME_ERROR, f"a frame of {whole} bytes is above the limit of {limit}")
    if length < whole:
        return None
    if buffer[whole - 1] != FRAME_END:
        raise ProtocolError(FRAME_ERROR, "a frame does not end with its end octet")
    payload = bytes(buffer[7 : whole - 1])
    del buffer[:whole]
    method = _METHOD(payload)[0] if kind == METHOD and not channel and size >= 4 else 0
    return Frame(kind, channel, payload, method)


def frame(payload: bytes, channel: int = 0, kind: int = METHOD) -> bytes:
    """Return `payload` as a frame."""
    return FRAME_HEADER.pack(kind, channel, len(payload)) + payload + b"\xce"


def short(text: str | bytes) -> bytes:
    """Return a short string; what is longer than its 255 bytes is cut at a whole character."""
    if isinstance(text, str):
        # What a client sent that is no UTF-8 goes back to the bytes that it was.
        raw = text.encode(errors="surrogateescape")
        text = raw if len(raw) <= 255 else raw[:255].decode(errors="ignore").encode()
    return bytes((len(text),)) + text


def long(data: bytes) -> bytes:
    """Return a long string."""
    return len(data).to_bytes(4, "big") + data


class Reader:
    """Reads a method's arguments in order; raises ProtocolError where they end too early."""

    def __init__(self, payload: bytes, at: int = 4) -> None:
        self.payload = payload
        self.at = at

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self.at + count
        if end > len(self.payload):
            raise ProtocolError(SYNTAX_ERROR, "a method's arguments end too early")
        taken = self.payload[self.at : end]
        self.at = end
        return taken

    def number(self, width: int) -> int:
        """Return an unsigned number of `width` bytes."""
        return int.from_bytes(self.take(width), "big")

    def short(self) -> str:
        """Return a short string; bytes that are not UTF-8 are kept as surrogates."""
        return self.take(self.take(1)[0]).decode(errors="surrogateescape")

    def long(self) -> bytes:
        """Return a long string or the inside of a table."""
        return self.take(int.from_bytes(self.take(4), "big"))


def table(inside: bytes) -> dict[str, Any]:
    """Decode a table's inside; raises ProtocolError."""
    try:
        # The decoder takes a name at the end for a field without a value.
        _fields(inside)
        return decode.field_table(long(inside))[1]
    except (ValueError, struct.error, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise ProtocolError(SYNTAX_ERROR, "a table cannot be read") from error


def encode_table(values: dict[str, Any]) -> bytes:
    """Return a table's inside."""
    return encode.field_table(values)[4:]


_WIDTHS = {ord(kind): width for width, kinds in ((0, "V"), (1, "tbB"), (2, "sUu"), (4, "IifF"), (8, "LldT"), (5, "D"))
           for kind in kinds if kind != "F"}  # fmt: skip
_TABLE = ord("F")


def _fields(inside: bytes) -> list[tuple[bytes, int, int, int]]:
    """Return (name, type, start of the value, its end) of each field of a table; raises IndexError if one is cut."""
    fields, at, end = [], 0, len(inside)
    while at < end:
        start = at + 1 + inside[at]
        name, kind = inside[at + 1 : start], inside[start]
        start += 1
        width = _WIDTHS.get(kind)
        at = start + (4 + int.from_bytes(inside[start : start + 4], "big") if width is None else width)
        if at > end:
            raise IndexError
        if kind == _TABLE:
            _fields(inside[start + 4 : at])
        fields.append((name, kind, start, at))
    return fields


# The sessions of one application mostly say the same of themselves. Tables with passwords do not come here.
@lru_cache(maxsize=64)
def _seams(inside: bytes) -> tuple[frozenset[bytes], tuple[int, int] | None]:
    """Return a table's names, and where the value of its table `capabilities` begins and ends (None: it has none)."""
    fields = _fields(inside)
    places = ((start, end) for name, kind, start, end in fields if name == b"capabilities" and kind == _TABLE)
    return frozenset(name for name, _, _, _ in fields), next(places, None)


def add_properties(inside: bytes, capabilities: Mapping[str, Simple], properties: Mapping[str, Simple]) -> bytes:
    """Return the table with `properties` added (an own name replaces nothing) and `capabilities` put into its own.

    The other fields stay byte for byte: a client's types are not the decoder's.
    """
    present, place = _seams(inside)
    added = b"".join([_field(name, value) for name, value in properties.items() if name.encode() not in present])
    if place is not None and capabilities:
        start, end = place
        inner = add_properties(inside[start + 4 : end], {}, capabilities)
        return inside[:start] + long(inner) + inside[end:] + added
    if b"capabilities" in present or not capabilities:
        return inside + added
    return inside + added + short("capabilities") + b"F" + long(add_properties(b"", {}, capabilities))


def _field(name: str, value: Simple) -> bytes:
    return short(name) + (b"S" + long(value.encode()) if isinstance(value, str) else b"t\x01" if value else b"t\x00")


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


def tune(method: int, channel_max: int, frame_max: int, heartbeat: int) -> bytes:
    """Return Connection.Tune or Tune-Ok (`method`) as a frame."""
    return frame(_TUNE.pack(method, channel_max, frame_max, heartbeat))


def open_(vhost: str) -> bytes:
    """Return Connection.Open as a frame."""
    return frame(OPEN.to_bytes(4, "big") + short(vhost.encode(errors="surrogateescape")) + b"\x00\x00")


def close(code: int, text: str) -> bytes:
    """Return Connection.Close as a frame; `text` is cut to 255 bytes."""
    return frame(struct.pack(">IH", CLOSE, code) + short(text) + b"\x00\x00\x00\x00")


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


def read_close(payload: bytes) -> tuple[int, str]:
    """Return reply code and text of a Connection.Close."""
    arguments = Reader(payload)
    return arguments.number(2), arguments.short()
