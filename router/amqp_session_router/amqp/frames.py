"""Frames of AMQP 0-9-1 and the arguments of methods (specification 4.2), where `frames.pyx` could not be compiled.

What is compiled is imported in its place. A test holds each against the other.
"""

from __future__ import annotations

OVERHEAD = 8
"""Seven bytes before a frame's payload and the end octet after it."""
METHOD, BODY, HEARTBEAT = 1, 3, 8
END = 0xCE
FRAME_ERROR = 501
SYNTAX_ERROR = 502

_HEADER = 7
_TYPES = (1, 2, 3, 8)


class ProtocolError(Exception):
    """The peer's bytes are not AMQP 0-9-1; `code` is the reply code of the specification."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Frame:
    """One frame without its header and end octet. `method`: class and method as one number (`wire.OPEN`), 0 for what is
    no method frame of channel 0."""

    __slots__ = ("channel", "method", "payload", "type")

    def __init__(self, kind: int, channel: int, payload: bytes) -> None:
        self.type = kind
        self.channel = channel
        self.payload = payload
        named = kind == METHOD and not channel and len(payload) >= 4
        self.method = int.from_bytes(payload[:4]) if named else 0


def next_frame(buffer: bytearray, limit: int) -> Frame | None:
    """Take the first frame off `buffer`, None if it is not whole; raises ProtocolError, also above `limit` bytes."""
    if buffer and buffer[0] not in _TYPES:
        raise ProtocolError(FRAME_ERROR, f"no frame has the type {buffer[0]}")
    if len(buffer) < _HEADER:
        return None
    whole = int.from_bytes(buffer[3:_HEADER]) + OVERHEAD
    if whole > limit:
        raise ProtocolError(FRAME_ERROR, f"a frame of {whole} bytes is above the limit of {limit}")
    if len(buffer) < whole:
        return None
    if buffer[whole - 1] != END:
        raise ProtocolError(FRAME_ERROR, "a frame does not end with its end octet")
    found = Frame(buffer[0], int.from_bytes(buffer[1:3]), bytes(buffer[_HEADER : whole - 1]))
    del buffer[:whole]
    return found


def frame(payload: bytes, channel: int = 0, kind: int = METHOD) -> bytes:
    """Return `payload` as a frame."""
    return b"".join((bytes((kind,)), channel.to_bytes(2), len(payload).to_bytes(4), payload, bytes((END,))))


def short(text: str | bytes) -> bytes:
    """Return a short string. Text is cut to 255 bytes at a whole character; raises ValueError for more bytes."""
    if isinstance(text, str):
        # What a client sent that is no UTF-8 goes back to the bytes that it was.
        raw = text.encode(errors="surrogateescape")
        if len(raw) > 255:
            raw = raw[:255].decode(errors="ignore").encode()
    else:
        raw = text
        if len(raw) > 255:
            raise ValueError(f"a short string has at most 255 bytes, not {len(raw)}")
    return bytes((len(raw),)) + raw


def long(data: bytes) -> bytes:
    """Return a long string."""
    return len(data).to_bytes(4) + data


class Reader:
    """Reads a method's arguments in order; raises ProtocolError where they end too early."""

    __slots__ = ("_at", "_payload")

    def __init__(self, payload: bytes, at: int = 4) -> None:
        self._payload = payload
        self._at = at

    def number(self, width: int) -> int:
        """Return an unsigned number of `width` bytes, at most eight."""
        return int.from_bytes(self.take(width))

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        at = self._at
        if count > len(self._payload) - at:
            raise ProtocolError(SYNTAX_ERROR, "a method's arguments end too early")
        self._at = at + count
        return self._payload[at : at + count]

    def short(self) -> str:
        """Return a short string; bytes that are not UTF-8 are kept as surrogates."""
        return self.take(self.number(1)).decode(errors="surrogateescape")

    def long(self) -> bytes:
        """Return a long string or the inside of a table."""
        return self.take(self.number(4))
