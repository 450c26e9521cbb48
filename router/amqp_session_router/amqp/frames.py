# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False
"""Frames of AMQP 0-9-1 and the arguments of methods (specification 4.2). Compiled, with the types of `frames.pxd`: a
handshake makes and reads dozens.

What the methods say is in `codec`.
"""

from __future__ import annotations

from amqp_session_router.base import native

OVERHEAD = 8
"""Seven bytes before a frame's payload and the end octet after it."""
METHOD, BODY, HEARTBEAT = 1, 3, 8
END = 0xCE
FRAME_ERROR = 501
SYNTAX_ERROR = 502

# As C numbers.
_HEADER, _OVERHEAD, _METHOD, _END_OCTET = 7, OVERHEAD, METHOD, END


class ProtocolError(Exception):
    """The peer's bytes are not AMQP 0-9-1; `code` is the reply code of the specification."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Frame:
    """One frame without its header and end octet. `method`: class and method as one number (`codec.OPEN`), 0 for what
    is no method frame of channel 0."""

    __slots__ = ("channel", "method", "payload", "type")

    type: int
    channel: int
    payload: bytes
    method: int


def next_frame(buffer: bytearray, limit: int) -> Frame | None:
    """Take the first frame off `buffer`, None if it is not whole; raises ProtocolError, also above `limit` bytes."""
    length = len(buffer)
    if length and buffer[0] not in (1, 2, 3, 8):
        raise ProtocolError(FRAME_ERROR, f"no frame has the type {buffer[0]}")
    if length < _HEADER:
        return None
    whole = buffer[3]
    whole = whole << 24 | buffer[4] << 16 | buffer[5] << 8 | buffer[6]
    whole += _OVERHEAD
    if whole > limit:
        raise ProtocolError(FRAME_ERROR, f"a frame of {whole} bytes is above the limit of {limit}")
    if length < whole:
        return None
    if buffer[whole - 1] != _END_OCTET:
        raise ProtocolError(FRAME_ERROR, "a frame does not end with its end octet")
    found = Frame.__new__(Frame)
    found.type = buffer[0]
    found.channel = buffer[1] << 8 | buffer[2]
    found.payload = native.part_of_buffer(buffer, _HEADER, whole - 1)
    found.method = 0
    if found.type == _METHOD and not found.channel and whole - _OVERHEAD >= 4:
        method = buffer[7]
        found.method = method << 24 | buffer[8] << 16 | buffer[9] << 8 | buffer[10]
    del buffer[:whole]
    return found


def frame(payload: bytes, channel: int = 0, kind: int = METHOD) -> bytes:
    """Return `payload` as a frame."""
    size = len(payload)
    room = native.blank(size + _OVERHEAD)
    data = native.octets(room)
    data[0], data[1], data[2] = kind, channel >> 8, channel & 0xFF
    data[3], data[4], data[5], data[6] = size >> 24, size >> 16 & 0xFF, size >> 8 & 0xFF, size & 0xFF
    native.copy(data, _HEADER, payload)
    data[_HEADER + size] = _END_OCTET
    return native.filled(room)


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
    return _counted(raw, 1)


def long(data: bytes) -> bytes:
    """Return a long string."""
    return _counted(data, 4)


def _counted(data: bytes, width: int) -> bytes:
    """Return `data` behind its length, a number of `width` bytes: 1 or 4."""
    size = len(data)
    room = native.blank(width + size)
    to = native.octets(room)
    if width == 4:
        to[0], to[1], to[2] = size >> 24, size >> 16 & 0xFF, size >> 8 & 0xFF
    to[width - 1] = size & 0xFF
    native.copy(to, width, data)
    return native.filled(room)


class Reader:
    """Reads a method's arguments in order; raises ProtocolError where they end too early."""

    __slots__ = ("_at", "_payload")

    def __init__(self, payload: bytes, at: int = 4) -> None:
        self._payload = payload
        self._at = at

    def number(self, width: int) -> int:
        """Return an unsigned number of `width` bytes, at most eight."""
        return self._number(width)

    def _number(self, width: int) -> int:
        at = self._step(width)
        payload = self._payload
        value = 0
        for index in range(width):
            value = value << 8 | payload[at + index]
        return value

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        at = self._step(count)
        return native.part(self._payload, at, at + count)

    def _step(self, count: int) -> int:
        """Step over `count` bytes; return where they begin."""
        at = self._at
        if count > len(self._payload) - at:
            raise ProtocolError(SYNTAX_ERROR, "a method's arguments end too early")
        self._at = at + count
        return at

    def short(self) -> str:
        """Return a short string; bytes that are not UTF-8 are kept as surrogates."""
        return self.take(self._number(1)).decode(errors="surrogateescape")

    def long(self) -> bytes:
        """Return a long string or the inside of a table."""
        return self.take(self._number(4))
