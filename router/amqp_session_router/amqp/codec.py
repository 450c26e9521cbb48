"""AMQP 0-9-1 bytes: the few Connection methods that the router reads or writes itself (specification 1.4 and 4.2).

Bodies of the methods that pass through are kept as they are; only tables that must be looked into are decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pamqp import decode, encode

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
UNEXPECTED_FRAME = 505
NOT_IMPLEMENTED = 540


Simple = str | bool
"""Values of a table's fields that are written often."""


def table(inside: bytes) -> dict[str, Any]:
    """Decode a table's inside; raises ProtocolError."""
    try:
        # The decoder takes a name at the end for a field without a value.
        _fields(inside)
        return decode.field_table(long(inside))[1]
    except (ValueError, struct.error, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise ProtocolError(SYNTAX_ERROR, "a table cannot be read") from error


def field_names(inside: bytes) -> list[bytes]:
    """Return the names of a table's fields in their order, doubled ones too; raises ProtocolError."""
    try:
        return [name for name, _, _, _ in _fields(inside)]
    except (IndexError, RecursionError) as error:
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


def _layout(inside: bytes) -> tuple[frozenset[bytes], tuple[int, int] | None]:
    """Return a table's names, and the bounds of the value of its table `capabilities` (None: it has none)."""
    fields = _fields(inside)
    places = ((start, end) for name, kind, start, end in fields if name == b"capabilities" and kind == _TABLE)
    return frozenset(name for name, _, _, _ in fields), next(places, None)


def _without(inside: bytes, names: frozenset[bytes]) -> bytes:
    """Return the table without the fields of these names."""
    kept, begin = b"", 0
    for name, _, _, end in _fields(inside):
        if name not in names:
            kept += inside[begin:end]
        begin = end
    return kept


def add_properties(inside: bytes, capabilities: Mapping[str, Simple], properties: Mapping[str, Simple]) -> bytes:
    """Return the table with `properties` in place of any fields of these names, and `capabilities` merged into its own.

    The other fields stay byte for byte: a client's types are not the decoder's.
    """
    before, behind = _around(inside, tuple(capabilities.items()), tuple(properties))
    return before + b"".join([_field(name, value) for name, value in properties.items()]) + behind


# The sessions of one application mostly have equal properties. Tables with passwords do not come here.
@lru_cache(maxsize=64)
def _around(inside: bytes, capabilities: tuple[tuple[str, Simple], ...], names: tuple[str, ...]) -> tuple[bytes, bytes]:
    """Return what stands before and behind the properties of these names that are added to a table."""
    present, place = _layout(inside)
    if forged := present.intersection(name.encode() for name in names):
        inside = _without(inside, forged)
        present, place = _layout(inside)
    if place is not None and capabilities:
        start, end = place
        inner = _add_missing(inside[start + 4 : end], capabilities)
        return inside[:start] + long(inner) + inside[end:], b""
    if b"capabilities" in present or not capabilities:
        return inside, b""
    return inside, short("capabilities") + b"F" + long(_add_missing(b"", capabilities))


def _add_missing(inside: bytes, fields: Iterable[tuple[str, Simple]]) -> bytes:
    """Return the table with those of `fields` added that it does not have."""
    present, _ = _layout(inside)
    return inside + b"".join([_field(name, value) for name, value in fields if name.encode() not in present])


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


@lru_cache(maxsize=64)
def tune(method: int, channel_max: int, frame_max: int, heartbeat: int) -> bytes:
    """Return Connection.Tune or Tune-Ok (`method`) as a frame."""
    return frame(_TUNE.pack(method, channel_max, frame_max, heartbeat))


@lru_cache(maxsize=64)
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
